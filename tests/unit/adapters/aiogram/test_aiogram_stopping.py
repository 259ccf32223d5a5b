"""Ctrl-C: what is waited for is said, a second one ends at once; a bot that is not attached is named."""

import asyncio
import logging
from signal import SIGINT, SIGTERM
from typing import Literal

import pytest
from aiogram import Bot
from aiogram.types import Message

from tidegate.sim.telegram.people import Person
from unit.adapters.aiogram.stage import TOKEN, Stage

ALICE = 1001
Updates = Literal["library", "durable"]


async def busy_polling(stage: Stage, updates: Updates, grace: float = 5.0) -> "asyncio.Task[None]":
    """A dispatcher whose handler sleeps for a minute."""
    stage.gate.attach(stage.dispatcher, stage.bot, updates=updates, grace=grace)
    begun = asyncio.Event()

    @stage.dispatcher.message()
    async def dawdle(_message: Message) -> None:
        begun.set()
        await stage.clock.sleep(60)

    running = asyncio.create_task(
        stage.dispatcher.start_polling(stage.bot, handle_signals=False, close_bot_session=False)
    )
    bot = stage.telegram.world.bot(TOKEN)
    assert bot is not None
    Person(stage.telegram, bot, ALICE).says("hello")
    await begun.wait()
    return running


@pytest.mark.parametrize("updates", ["library", "durable"])
async def test_a_stop_says_that_it_waits_for_a_handler(
    stage: Stage, updates: Updates, caplog: pytest.LogCaptureFixture
) -> None:
    running = await busy_polling(stage, updates)

    stage.dispatcher._signal_stop_polling(SIGINT)  # noqa: SLF001  (as the loop does)
    await running

    assert "stopping: waiting up to 5 s for 1 handler" in caplog.messages


@pytest.mark.parametrize("updates", ["library", "durable"])
async def test_a_second_ctrl_c_ends_a_dispatcher_at_once(stage: Stage, updates: Updates) -> None:
    running = await busy_polling(stage, updates, grace=30)
    began = stage.clock.monotonic()

    for _ in range(2):
        stage.dispatcher._signal_stop_polling(SIGINT)  # noqa: SLF001
        await stage.clock.sleep(0.1)
    await running

    assert stage.clock.monotonic() - began < 1
    assert not stage.gate.is_open
    await stage.clock.sleep(5)  # nothing exits later, either: it ended in good order


async def test_a_second_sigterm_changes_nothing(stage: Stage) -> None:
    running = await busy_polling(stage, "library", grace=30)
    began = stage.clock.monotonic()

    for _ in range(2):
        stage.dispatcher._signal_stop_polling(SIGTERM)  # noqa: SLF001
        await stage.clock.sleep(0.1)
    await running

    assert stage.clock.monotonic() - began == pytest.approx(30, abs=1)


async def test_a_bot_that_is_polled_but_not_attached_is_named_in_a_warning(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.tokens.add("43:other")
    other = Bot("43:other", session=stage.session)
    stage.gate.attach(stage.dispatcher, stage.bot)

    await stage.dispatcher.emit_startup(bot=other, bots=(stage.bot, other), **stage.dispatcher.workflow_data)
    await stage.dispatcher.emit_shutdown(bot=other, **stage.dispatcher.workflow_data)

    [warning] = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warning.startswith("bot 43 is polled but not attached")
