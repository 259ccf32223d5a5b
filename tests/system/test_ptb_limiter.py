"""A python-telegram-bot application with Tidegate as its rate limiter, over HTTP and with a store on disk."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster
from telegram import InputFile, InputMediaDocument
from telegram.error import NetworkError
from telegram.ext import Application, CallbackContext, ExtBot

from system.bots import ptb_shop
from system.bots.ptb_shop import running
from system.bots.scenes import GENEROUS, MANY, PAPER, PICTURE, SCENES, TOKEN, Scene, Visit
from tidegate import Tidegate
from tidegate.adapters.ptb import CallOptions, TidegateLimiter
from tidegate.errors import ClosedError, OutcomeUnknownError
from tidegate.model import Rate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import Faults, Limits
from tidegate.sim.telegram.http import TelegramServer

App = Application[Any, Any, Any, Any, Any, Any]
Context = CallbackContext[ExtBot[Any], Any, Any, Any]
CHAT, GROUP = 7, -5
QUEUE = CallOptions(queue=True)
FAST = Rules(bot=MANY, private=MANY, group=MANY, actions=(MANY,))
BRISK = Rules(burst=1, private=Rate(1, 0.2), group=Rate(1, 0.5))  # so that nobody waits for long
AS_BRISK = Limits(burst=1, private=Rate(1, 0.2), group=Rate(1, 0.5))


def paced(server: TelegramServer, limiter: TidegateLimiter) -> App:
    builder = Application.builder().token(TOKEN).rate_limiter(limiter)
    return builder.base_url(f"{server.url}/bot").base_file_url(f"{server.url}/file/bot").build()


def paced_shop(server: TelegramServer, limiter: TidegateLimiter) -> App:
    """The shop's own handlers, which know nothing of limits."""
    app = paced(server, limiter)
    for group, handlers in ptb_shop.application(server).handlers.items():
        app.add_handlers(handlers, group)
    limiter.follow(app)
    return app


@pytest.fixture(autouse=True)
def blocking_calls_of_the_library(no_blocking_calls: BlockBuster) -> None:
    """python-telegram-bot resolves its own path when an application is built, which is once."""
    for function in no_blocking_calls.functions.values():
        function.can_block_in("telegram/ext/_application.py", "__init__")


@pytest.fixture(scope="module")
async def open_shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TelegramServer]:
    limiter = Tidegate(tmp_path_factory.mktemp("shop") / "tidegate.db", rules=FAST).ptb()
    async with TelegramServer(limits=GENEROUS) as server:
        async with running(paced_shop(server, limiter)) as updater:
            await updater.start_polling(timeout=5)
            yield server
            await updater.stop()
        assert server.telegram.report()["refused"] == 0


@pytest.mark.parametrize("scene", SCENES)
async def test_conversation(scene: Scene, open_shop: TelegramServer) -> None:
    await scene(Visit(open_shop.telegram))


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(limits=AS_BRISK) as server:
        yield server


@pytest.fixture
def new_gate(tmp_path: Path) -> Callable[[], Tidegate]:
    """On the same file each time: as a process that was started again."""
    return lambda: Tidegate(tmp_path / "tidegate.db", rules=BRISK)


@pytest.fixture
def app(telegram: TelegramServer, new_gate: Callable[[], Tidegate]) -> App:
    return paced(telegram, new_gate().ptb())


async def test_a_job_sends_in_its_turn(app: App, telegram: TelegramServer) -> None:
    assert app.job_queue is not None
    done = asyncio.Event()

    async def remind(context: Context) -> None:
        for number in range(3):
            await context.bot.send_message(CHAT, f"Tea is ready #{number}", rate_limit_args="low")
        done.set()

    async with running(app):
        app.job_queue.run_once(remind, 0)
        await done.wait()
    times = [entry.at for entry in telegram.telegram.request_log.log if entry.method == "sendMessage"]
    assert len(times) == 3
    assert times[1] - times[0] >= 0.2
    assert times[2] - times[1] >= 0.2
    assert telegram.telegram.report()["refused"] == 0


async def test_uploads_can_be_queued(app: App, telegram: TelegramServer, tmp_path: Path) -> None:
    paper = tmp_path / "prices.txt"
    await asyncio.to_thread(paper.write_bytes, PAPER)
    handle = await asyncio.to_thread(paper.open, "rb")
    async with app:
        photo = await app.bot.send_photo(CHAT, PICTURE, caption="teapot", rate_limit_args=QUEUE)
        lazy = InputFile(handle, read_file_handle=False)
        document = await app.bot.send_document(8, lazy, rate_limit_args=QUEUE)
        album = await app.bot.send_media_group(
            9,
            [InputMediaDocument(PAPER + number, filename="p.txt") for number in (b"1", b"2")],
            rate_limit_args=QUEUE,
        )
    handle.close()
    files = telegram.telegram.world.files
    assert document.document is not None
    assert document.document.file_name == "prices.txt"
    assert (photo.caption, files[photo.photo[-1].file_id].content) == ("teapot", PICTURE)
    assert files[document.document.file_id].content == PAPER
    assert [files[item.document.file_id].content for item in album if item.document] == [
        PAPER + b"1",
        PAPER + b"2",
    ]


async def test_what_is_queued_when_the_application_ends_leaves_when_it_begins_again(
    new_gate: Callable[[], Tidegate], telegram: TelegramServer
) -> None:
    gate = new_gate()
    app = paced(telegram, gate.ptb())
    async with app:
        await app.bot.send_message(GROUP, "one")
        caller = asyncio.create_task(app.bot.send_message(GROUP, "two", rate_limit_args=QUEUE))
        while (await gate.stats()).waiting == 0:
            await gate.clock.sleep(0.01)
    with pytest.raises(ClosedError, match="waits in the queue"):
        await caller

    gate = new_gate()
    async with paced(telegram, gate.ptb()):
        await gate.drained()
    texts = [entry.text for entry in telegram.telegram.request_log.log if entry.method == "sendMessage"]
    assert texts == ["one", "two"]
    assert telegram.telegram.report()["refused"] == 0


async def test_an_answer_cut_off_says_that_it_may_have_happened(app: App, telegram: TelegramServer) -> None:
    async with app:
        telegram.telegram.faults = Faults(lost_answer=1)
        with pytest.raises(NetworkError, match="it may have happened") as caught:
            await app.bot.send_message(CHAT, "once")
    assert isinstance(caught.value, OutcomeUnknownError)
    assert telegram.telegram.report()["accepted"] == 1


async def test_without_a_connection_nothing_is_said_to_have_happened(
    app: App, telegram: TelegramServer
) -> None:
    async with app:
        await telegram.__aexit__()
        with pytest.raises(NetworkError) as caught:
            await app.bot.send_message(CHAT, "never")
    assert not isinstance(caught.value, OutcomeUnknownError)
