"""The repair bot of `examples/` on each library over HTTP, used by simulated people; and its script."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from repair_bot import with_aiogram, with_ptb
from repair_bot.workshops import Workshops
from system.bots.scenes import GENEROUS
from system.shops import EXAMPLES, FAST, TOKEN
from tidegate.cli import main
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.entities import Json
from tidegate.sim.telegram.http import TelegramServer

Opened = Callable[[str, Workshops], AbstractAsyncContextManager[None]]
WITHIN: Final = 20.0  # seconds, on a busy machine


@asynccontextmanager
async def on_aiogram(url: str, workshops: Workshops) -> AsyncIterator[None]:
    executor = with_aiogram.build(TOKEN, url, workshops)
    started = asyncio.Event()
    executor.router.startup.register(started.set)
    bot = asyncio.create_task(executor.start_polling(handle_signals=False))
    await started.wait()
    yield
    await executor.dispatcher.stop_polling()
    await bot


@asynccontextmanager
async def on_ptb(url: str, workshops: Workshops) -> AsyncIterator[None]:
    application = await asyncio.to_thread(with_ptb.build, TOKEN, url, workshops)  # the library reads files
    assert application.updater is not None
    async with application:
        await application.updater.start_polling()
        await application.start()
        yield
        await application.updater.stop()
        await application.stop()


OPENINGS: Final[dict[str, Opened]] = {"aiogram": on_aiogram, "ptb": on_ptb}


class Guest:
    """A user of the bot."""

    def __init__(self, server: TelegramServer, number: int) -> None:
        bot = server.telegram.world.bot(TOKEN)
        assert bot is not None
        self.person = Person(server.telegram, bot, number)

    async def hears(self, text: str) -> Json:
        message = await self.person.hears(WITHIN)
        assert text in (message.get("text") or message.get("caption") or "")
        return message

    async def reports(self) -> list[Json]:
        """From the greeting to the confirmation. Returns the messages with photos."""
        person = self.person
        person.says("/start")
        welcome = await self.hears("We mend bicycles")
        person.presses(label="🔧 Report a damage")
        first = await self.hears("Which workshop?")
        assert first["message_id"] == welcome["message_id"]  # in place
        person.presses(label="»")
        await self.hears("Which workshop?")
        assert person.labels() == ["Workshop 6, Church Hill", "Workshop 7, North Gate", "«", "2/2"]
        person.presses(label="Workshop 7, North Gate")
        await self.hears("Send me a photo")
        person.sends_photo(b"a bent wheel")
        await self.hears("Which number")
        person.taps("📱 Send my number")
        await self.hears("Thank you")
        sure = await self.hears(f"Workshop 7, North Gate. Your number: +{person.id}")
        person.presses(label="✅ Send it")
        await self.hears("is at Workshop 7")
        assert person.keys() == []
        return [welcome, first, sure]


@pytest.mark.parametrize("library", OPENINGS)
async def test_damages_are_reported(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**FAST, "TIDEGATE_STORE": str(tmp_path / "bot.db"), "PTB_TIMEDELTA": "1"}.items():
        monkeypatch.setenv(name, value)
    workshops = Workshops()
    async with TelegramServer(limits=GENEROUS) as server, OPENINGS[library](server.url, workshops):
        shown = [*await Guest(server, 1001).reports(), *await Guest(server, 1002).reports()]
        assert server.telegram.report()["refused"] == 0
    reports = list(workshops.reports.values())
    assert [(one["workshop"], one["phone_number"]) for one in reports] == [
        ("Workshop 7", "+1001"),
        ("Workshop 7", "+1002"),
    ]
    ids = {message["photo"][-1]["file_id"] for message in shown}
    assert len(ids) == 3  # the bot's picture was uploaded once, for both; and each has a photo of their own


def test_the_script_of_the_example_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLES)
    assert main(["flow", "preview", "repair_bot.flow:REPAIR", "--script", "repair_bot/report.txt"]) == 0
    assert capsys.readouterr().out.endswith("> < Report R-7 is at B.\n> <\n")
