"""An application with an inbox that stops while something comes, or while another one goes on."""

import asyncio
import warnings
from collections.abc import Callable

import pytest
from telegram import Update
from telegram.warnings import PTBUserWarning

from tidegate import Tidegate
from tidegate.adapters.ptb.update_processor import InboxUpdateProcessor
from tidegate.sim.telegram import Person
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.ptb.equipped import OTHER, App, Build, Context, made_up, running, text_of


def stop_in_front_of_the_next(app: App, monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Task[None]]:
    """It stops when an update is on its way to it, and not there yet."""
    handover, stops = app.update_processor, list[asyncio.Task[None]]()
    assert isinstance(handover, InboxUpdateProcessor)
    offer = handover._offer  # noqa: SLF001

    def offer_late(update: Update) -> None:
        if not stops:
            stops.append(asyncio.create_task(app.stop()))
        offer(update)

    monkeypatch.setattr(handover, "_offer", offer_late)
    return stops


async def test_what_is_on_its_way_when_the_application_stops_waits_for_the_next_start(
    build: Build,
    person: Callable[[int], Person],
    clock: VirtualClock,
    gate: Tidegate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        seen.append(text_of(update))

    app = build(handle)
    stops = stop_in_front_of_the_next(app, monkeypatch)
    async with gate, running(app):
        for number in range(1, 6):
            person(number).says("hello")
        await clock.sleep(0.5)
        assert stops[0].done()
        assert seen == []
        stats = await gate.core.handler_registry.stats()
        assert (stats.waiting, stats.handling, stats.parked) == (5, 0, 0)
        await app.start()
        await clock.sleep(0.5)  # after an attempt that failed it would be more
        assert seen == ["hello"] * 5


async def test_what_went_past_the_inbox_is_handled_though_the_application_stops(
    build: Build, clock: VirtualClock
) -> None:
    seen: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        seen.append(text_of(update))

    app = build(handle)
    async with app:
        await app.start()
        await clock.sleep(1)
        await app.update_queue.put(made_up(0, "mine"))
        with warnings.catch_warnings():  # of the library: it starts it all the same
            warnings.simplefilter("ignore", PTBUserWarning)
            await app.stop()
    assert seen == ["mine"]


async def test_an_application_that_fails_while_it_stops_does_not_hang(
    build: Build, person: Callable[[int], Person], clock: VirtualClock
) -> None:
    ended: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        await clock.sleep(3)
        ended.append(text_of(update))

    app = build(handle)
    async with running(app):
        person(1).says("slow")
        await clock.sleep(1)
        await app.update_queue.put(made_up(0, "mine"))
        async with clock.timeout(20):
            with pytest.raises(PTBUserWarning, match="not running"):
                await app.stop()  # warnings are errors here
        assert sorted(ended) == ["mine", "slow"]
        person(1).says("later")
        await app.start()
        await clock.sleep(5)
    assert ended[2:] == ["later"]


async def test_of_two_applications_the_one_that_stops_gives_its_handlers_their_grace_and_no_more(
    build: Build, person: Callable[..., Person], clock: VirtualClock, gate: Tidegate
) -> None:
    ended: list[int] = []

    async def handle(_update: Update, context: Context) -> None:
        await clock.sleep(20)
        ended.append(context.bot.id)

    app = build(handle, grace=2)
    async with running(build(handle, OTHER)):
        async with running(app):
            person(1).says("hello")
            person(1, OTHER).says("hello")
            await clock.sleep(1)
            began = clock.monotonic()
            await app.stop()
            assert clock.monotonic() - began == pytest.approx(2, abs=0.5)
            await clock.sleep(1)
            stats = await gate.core.handler_registry.stats()
            assert (stats.parked, stats.handling) == (1, 1)  # cut off, and not marked as repeatable
            await app.start()
        await clock.sleep(20)
    assert ended == [43]
