"""Samples of pages that have no test of their own, run on a gate that delivers to a simulator."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from aiogram import Dispatcher
from aiogram.fsm.storage.base import StorageKey
from aiohttp import web
from fastapi import FastAPI

from system.bots.scenes import GENEROUS
from system.shops import FAST, TOKEN
from system.snippets import DOCS, blocks, read
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.sim.telegram.http import TelegramServer

PAGES: Final = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*.md")}
PEOPLE: Final = [
    {"chat_id": 1001, "name": "Ann", "town": "Rye"},
    {"chat_id": 1002, "name": "Bob", "town": "Hythe"},
]


class Here:
    """A gate that delivers, and what the simulator got."""

    def __init__(self, gate: Tidegate, server: TelegramServer) -> None:
        self.gate, self.server = gate, server
        self.clock = Clock()

    async def sample(self, page: str, word: str, /, **names: Any) -> dict[str, Any]:  # noqa: ANN401  (anything)
        """Run the first block of a page that has this word; return the names that it makes."""
        block = next(block for block in await asyncio.to_thread(blocks, page) if word in block)
        block = block.replace('add_bot("42:token")', f'add_bot("42:token", api_url="{self.server.url}")')
        made: dict[str, Any] = {"gate": self.gate, "__name__": "bot", **names}
        running = eval(read(block, page), made)  # noqa: S307  (our own docs)
        if running is not None:
            await running
        return made

    async def is_told(self, text: str) -> None:
        async with self.clock.timeout(20):
            while text not in [entry.text for entry in self.server.telegram.request_log.log]:
                await self.clock.sleep(0.02)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in FAST.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
async def here(workplace: Path) -> AsyncIterator[Here]:
    async with TelegramServer(limits=GENEROUS) as server:
        gate = Tidegate(str(workplace / "shop.db"))
        gate.add_bot(TOKEN, api_url=server.url)
        gate.record_history()
        async with gate, gate.worker():
            yield Here(gate, server)


async def test_a_broadcast_is_watched_paused_and_ended(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    page = "howto/broadcast-to-100000.md"
    await here.sample(page, "gate.forecast(2_000)")
    assert " s at " in capsys.readouterr().out
    made = await here.sample(page, "everything at half price", audience=PEOPLE)
    await here.is_told("Hello Bob, everything at half price!")
    await here.sample(page, "campaign.watch()", campaign=made["campaign"])
    assert "2 of 2, " in capsys.readouterr().out


async def test_rows_of_a_program_are_told_with_their_fields(here: Here) -> None:
    made = await here.sample("howto/broadcast-to-a-list.md", "start_broadcast", rows=PEOPLE)
    assert made["record"].name == "ferry-in-may"
    async with here.gate.keep_campaigns():
        await here.is_told("Hello Ann, the ferry to Rye runs again.")


async def test_the_first_sample_of_the_reference_delivers(here: Here) -> None:
    made = await here.sample("reference/gate.md", "gate.drained()")
    assert made["receipt"].message_id > 0


async def test_a_history_is_looked_up(here: Here) -> None:
    ticket = await here.gate.send(chat_id=1001, text="Your refund was paid, see your payments")
    receipt = await ticket.delivered(timeout=20)
    recorder = here.gate.history_recorder
    assert recorder is not None
    async with here.clock.timeout(20):
        while not (await here.gate.history.stats()).messages:
            await here.clock.sleep(0.05)
    made = await here.sample("howto/keep-history.md", "gate.history.search", time=time)
    assert made["page"].messages == []  # of those that came in
    assert [message.text for message in made["found"].messages] == ["Your refund was paid, see your payments"]
    assert receipt.message_id


async def test_a_storage_of_conversations_is_listed_and_expired(here: Here) -> None:
    page = "explanation/bot-libraries.md"
    block = await asyncio.to_thread(blocks, page)
    opening = block[0].partition("\n\nfound")[0]
    made: dict[str, Any] = {"Dispatcher": Dispatcher, "time": time}
    exec(read(opening, page), made)  # noqa: S102  (our own docs)
    key = StorageKey(bot_id=42, chat_id=1001, user_id=1001)
    await made["storage"].set_state(key, "Order:paying")
    rest = eval(read(block[0][len(opening) :], page), made)  # noqa: S307
    await rest
    assert len(made["found"]) == 1
    await made["storage"].close()
    assert here.gate.is_open


async def test_an_application_of_fastapi_serves_the_gate_below_it(here: Here) -> None:
    made = await here.sample("howto/run-behind-a-webhook.md", "FastAPI")
    assert isinstance(made["app"], FastAPI)


@pytest.mark.usefixtures("workplace")
async def test_metrics_are_served_by_an_application_of_aiohttp() -> None:
    block = (await asyncio.to_thread(blocks, "howto/watch-with-prometheus.md"))[0]
    made: dict[str, Any] = {}
    await asyncio.to_thread(exec, read(block, "watch-with-prometheus.md"), made)
    answer = await made["show"](SimpleNamespace(headers={}))
    assert isinstance(answer, web.Response)
    assert b"tidegate_" in bytes(answer.body or b"")  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["gate.on_incident", "gate.loop_delay"])
async def test_incidents_and_the_delay_of_the_loop_are_asked_for(here: Here, word: str) -> None:
    await here.sample("howto/find-what-blocks-the-bot.md", word)


async def test_flows_of_the_pages_are_sound(here: Here) -> None:
    shop = await here.sample("reference/flows.md", "flow.build()")
    assert shop["payment"].validate() == []
    paying = await here.sample("howto/build-a-conversation.md", "batch_check_payment_status")
    assert paying["flow"].build().validate() == []


def test_a_day_passes_in_a_moment() -> None:
    [block] = blocks("explanation/virtual-time.md")
    exec(read(block, "virtual-time.md"), {})  # noqa: S102  (our own docs)
