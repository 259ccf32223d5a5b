"""The bots of the how-to against a flood, as they stand there."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from system.bots.scenes import GENEROUS
from system.shops import FAST, TOKEN, Street
from system.snippets import blocks, programs, read, run
from tidegate.inbound.throttle import THROTTLE_NOTICE
from tidegate.sim.telegram.http import TelegramServer

PAGE = "keep-a-flooder-out.md"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a bot that may be asked three times a minute."""
    monkeypatch.chdir(tmp_path)
    for name, value in (FAST | {"TIDEGATE_USER_RATE": "3/60"}).items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("library", ["aiogram", "ptb"])
async def test_a_flooder_is_told_once_and_others_are_answered(library: str, workplace: Path) -> None:
    program = (await asyncio.to_thread(programs, PAGE))[library == "ptb"]
    async with TelegramServer(limits=GENEROUS) as server:
        street = Street(server, workplace, library)
        ann, bob = street.person(1001), street.person(1002)
        async with run(program, TOKEN, server):
            for number in range(60):
                ann.says(str(number))
            bob.says("hello")
            assert (await bob.hears(10))["text"] == "hello"
            heard = [(await ann.hears(10))["text"] for _ in range(4)]
    assert sorted(heard) == ["0", "1", "2", THROTTLE_NOTICE.format(seconds=20)]
    assert not ann.heard


def test_what_the_page_shows_is_python() -> None:
    for block in blocks(PAGE):
        read(block, PAGE)


async def test_the_rules_and_the_throttle_that_it_shows_work() -> None:
    shown = [block for block in await asyncio.to_thread(blocks, PAGE) if "run_polling(" not in block]
    names: dict[str, Any] = {"gate": Attached(), "dp": None, "bot": None}
    for block in shown:
        made = eval(read(block, PAGE), names)  # noqa: S307  (our own docs)
        if made is not None:
            await made
    assert names["gate"].rules.costs == {"command": 2, "edited_message": 0}
    assert names["throttle"].throttled == 0


class Attached:
    def attach(self, _dispatcher: object, _bot: object, *, throttle: object, **_: object) -> None:
        self.rules = getattr(self, "rules", throttle)  # the first ones that the page shows
