"""A bot under a flood: people write to it while it sends a broadcast, and the limits are those of both."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from blockbuster import BlockBuster
from telegram.ext import Application, MessageHandler

from system.bots import aiogram_shop, ptb_shop
from system.bots.scenes import TOKEN
from tidegate import Tidegate
from tidegate.model import Rate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import Faults, Latency, Limits, Person
from tidegate.sim.telegram.http import TelegramServer

PEOPLE, QUESTIONS, READERS = 30, 4, 400
BOT, CHAT = Rate(30, 0.1), Rate(1, 0.1)  # Telegram's, ten times as fast
EACH_WAY = Latency(1, 8)

Running = Callable[[TelegramServer, Tidegate], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def ptb_polling(server: TelegramServer, gate: Tidegate) -> AsyncIterator[None]:
    builder = Application.builder().token(TOKEN).base_url(f"{server.url}/bot").rate_limiter(gate.ptb())
    app = builder.concurrent_updates(True).build()  # noqa: FBT003  (the library's)
    app.add_handler(MessageHandler(ptb_shop.TEXT, ptb_shop.echo))
    async with ptb_shop.running(app) as updater:
        await updater.start_polling(timeout=5)
        yield
        await updater.stop()


@pytest.fixture(autouse=True)
def blocking_calls_of_the_library(no_blocking_calls: BlockBuster) -> None:
    """python-telegram-bot resolves its own path when an application is built, which is once."""
    for function in no_blocking_calls.functions.values():
        function.can_block_in("telegram/ext/_application.py", "__init__")


async def talk(person: Person) -> None:
    for number in range(QUESTIONS):
        person.says(f"Are you there? #{number}")
        assert (await person.hears(30))["text"] == f"You said: Are you there? #{number}"


@pytest.mark.parametrize("running", [aiogram_shop.polling, ptb_polling])
async def test_everybody_is_answered_and_reached_and_nothing_is_refused(
    running: Running, tmp_path: Path
) -> None:
    faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
    gate = Tidegate(tmp_path / "tidegate.db", rules=Rules(bot=BOT, private=CHAT))
    async with TelegramServer(limits=Limits(bot=BOT, private=CHAT), faults=faults) as server:
        telegram = server.telegram
        bot = telegram.world.bot(TOKEN)
        assert bot is not None
        people = [Person(telegram, bot, 1_000 + number) for number in range(PEOPLE)]
        async with running(server, gate):
            campaign = await gate.broadcast("flood", range(1, READERS + 1), "News #0")
            await asyncio.gather(*map(talk, people))
            progress = await campaign.finished()
        report, stats = telegram.report(), await gate.stats()

    assert (report["refused"], report["doubled"], report["out_of_order"]) == (0, 0, 0)
    assert progress.accepted == progress.delivered == stats.delivered == READERS
    assert (stats.waiting, stats.dead, stats.parked) == (0, 0, 0)
    heard = Counter(entry.chat_id for entry in telegram.request_log.log if entry.method == "sendMessage")
    assert Counter(heard.values()) == {1: READERS, QUESTIONS: PEOPLE}
