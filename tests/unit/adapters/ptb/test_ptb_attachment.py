"""`gate.attach` of a python-telegram-bot application that is being built."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from telegram import Update
from telegram.ext import Application, MessageHandler, filters

from simulated import TOKEN
from tidegate import ThrottleRules, Tidegate
from tidegate.adapters.ptb import TidegateLimiter
from tidegate.adapters.ptb.attachment import attach
from tidegate.adapters.ptb.update_processor import REPLY_TRACKER_GROUP, ReplyTracker
from tidegate.adapters.ptb.update_queue import InboxUpdateQueue
from tidegate.errors import BadInputError
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.ptb.equipped import Context, running, text_of
from unit.adapters.ptb.simulated_request import SimulatedRequest


async def test_attaching_a_builder_does_what_a_limiter_does_that_equips_it(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock, person: Callable[..., Person]
) -> None:
    heard: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        heard.append(text_of(update))

    requests = SimulatedRequest(telegram), SimulatedRequest(telegram, patience=100)
    builder = Application.builder().token(TOKEN).job_queue(None)
    builder = builder.request(requests[0]).get_updates_request(requests[1])
    app = gate.attach(builder).build()
    app.add_handler(MessageHandler(filters.TEXT, handle))

    async with running(app):
        person(1).says("Tea")
        await clock.sleep(1)
        assert gate.is_open

    assert heard == ["Tea"]
    assert isinstance(app.update_queue, InboxUpdateQueue)


async def test_a_builder_may_be_attached_without_an_inbox(gate: Tidegate) -> None:
    builder = Application.builder().token(TOKEN).job_queue(None).concurrent_updates(True)  # noqa: FBT003

    app = gate.attach(builder, inbox=False).build()

    assert isinstance(app.bot.rate_limiter, TidegateLimiter)
    assert not isinstance(app.update_queue, InboxUpdateQueue)
    assert [type(handler) for handler in app.handlers[REPLY_TRACKER_GROUP]] == [ReplyTracker]


async def test_rules_of_a_throttle_without_an_inbox_are_refused_and_not_ignored(gate: Tidegate) -> None:
    builder = Application.builder().token(TOKEN)
    with pytest.raises(BadInputError, match="leave out inbox=False"):
        gate.attach(builder, inbox=False, throttle=ThrottleRules())


async def test_attaching_something_else_says_what_to_give(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match=r"gate.attach\(Application.builder\(\)"):
        attach(gate.core, cast("Any", "application"))
