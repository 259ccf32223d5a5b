"""`gate.attach` of a python-telegram-bot application that is being built."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from telegram import Update
from telegram.ext import Application, MessageHandler, filters

from simulated import TOKEN
from tidegate import Rate, ThrottleRules, Tidegate
from tidegate.adapters.attach_options import AttachOptions
from tidegate.adapters.ptb import TidegateLimiter
from tidegate.adapters.ptb.attachment import attach
from tidegate.adapters.ptb.update_processor import ReplyTracker
from tidegate.adapters.ptb.update_queue import InboxUpdateQueue
from tidegate.errors import BadInputError
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.ptb.equipped import App, Context, builder_for, running, text_of


async def heard_by(
    app: App, gate: Tidegate, clock: VirtualClock, person: Callable[..., Person], texts: int = 1
) -> list[str]:
    heard: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        heard.append(text_of(update))

    app.add_handler(MessageHandler(filters.TEXT, handle))
    async with running(app):
        for number in range(texts):
            person(1).says(f"Tea {number}")
        await clock.sleep(1)
        assert gate.is_open
    return heard


async def test_attaching_a_builder_leaves_its_updates_to_the_library(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock, person: Callable[..., Person]
) -> None:
    app = gate.attach(builder_for(telegram)).build()

    assert await heard_by(app, gate, clock, person) == ["Tea 0"]
    assert isinstance(app.bot.rate_limiter, TidegateLimiter)
    assert type(app.update_queue) is asyncio.Queue
    assert [type(handler) for group in app.handlers.values() for handler in group] == [
        ReplyTracker,
        MessageHandler,
    ]


@pytest.mark.parametrize("switch", [{"updates": "durable"}, {"inbox": True}])
async def test_durable_updates_are_switched_on_by_name_new_or_old(
    gate: Tidegate,
    telegram: SimulatedTelegram,
    clock: VirtualClock,
    person: Callable[..., Person],
    switch: dict[str, Any],
) -> None:
    app = gate.attach(builder_for(telegram), **switch).build()

    assert await heard_by(app, gate, clock, person) == ["Tea 0"]
    assert isinstance(app.update_queue, InboxUpdateQueue)


@pytest.mark.parametrize("updates", ["library", "durable"])
async def test_a_throttle_is_switched_on_by_name_with_and_without_durable_updates(
    gate: Tidegate,
    telegram: SimulatedTelegram,
    clock: VirtualClock,
    person: Callable[..., Person],
    updates: Any,  # noqa: ANN401  (one of two texts)
) -> None:
    rules = ThrottleRules(user=Rate(2, 60))
    app = gate.attach(builder_for(telegram), updates=updates, throttle=rules).build()

    assert len(await heard_by(app, gate, clock, person, texts=5)) == 2


async def test_nothing_is_throttled_that_nobody_switched_on(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock, person: Callable[..., Person]
) -> None:
    app = gate.attach(builder_for(telegram), updates="durable").build()

    assert len(await heard_by(app, gate, clock, person, texts=100)) == 100


async def test_conversations_are_the_librarys_to_keep(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match="persistence"):
        gate.attach(Application.builder().token(TOKEN), conversations="store")  # type: ignore[call-overload]


async def test_attaching_something_else_says_what_to_give(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match=r"gate.attach\(Application.builder\(\)"):
        attach(gate.core, cast("Any", "application"), AttachOptions())


async def test_a_builder_is_attached_once(gate: Tidegate, telegram: SimulatedTelegram) -> None:
    builder = gate.attach(builder_for(telegram))

    with pytest.raises(BadInputError, match="attached already"):
        gate.attach(builder)


async def test_an_attached_application_is_one_of_the_class_that_was_chosen(
    gate: Tidegate, telegram: SimulatedTelegram
) -> None:
    class Shop(Application[Any, Any, Any, Any, Any, Any]):
        __slots__ = ("orders",)

    app = gate.attach(builder_for(telegram).application_class(Shop)).build()

    assert isinstance(app, Shop)
    assert repr(app).startswith("Shop[")
