"""An application that stops while handlers run, something comes, or another application goes on."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from telegram import Update
from telegram.ext import MessageHandler, filters
from telegram.warnings import PTBUserWarning

from tidegate import Tidegate
from tidegate.adapters.ptb.update_processor import InboxUpdateProcessor
from tidegate.errors import ClosedError
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.ptb.equipped import (
    OTHER,
    POLL,
    App,
    Build,
    Context,
    Handle,
    builder_for,
    made_up,
    running,
    text_of,
)


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


Attach = Callable[..., App]
ATTACHED: list[dict[str, Any]] = [{}, {"concurrent": False}, {"updates": "durable"}]


@pytest.fixture
def attach(gate: Tidegate, telegram: SimulatedTelegram) -> Attach:
    def make(handle: Handle, *, concurrent: bool = True, **options: Any) -> App:  # noqa: ANN401
        app: App = gate.attach(builder_for(telegram, concurrent=concurrent), **options).build()
        app.add_handler(MessageHandler(filters.TEXT, handle))
        return app

    return make


async def run_until_stopped(app: App, stopped: Awaitable[object]) -> None:
    async with running(app):
        await stopped


def press_ctrl_c(app: App) -> None:
    """The loop calls this, and the library catches the exception."""
    with suppress(SystemExit):
        app._raise_system_exit()  # noqa: SLF001


@pytest.mark.parametrize("options", ATTACHED)
async def test_a_second_ctrl_c_ends_an_application_whose_handler_still_runs(
    attach: Attach,
    person: Callable[[int], Person],
    clock: VirtualClock,
    gate: Tidegate,
    options: dict[str, Any],
) -> None:
    ends: list[BaseException] = []

    async def handle(_update: Update, _context: Context) -> None:
        try:
            await clock.sleep(600)
        except asyncio.CancelledError as error:
            ends.append(error)
            raise

    app, stopped = attach(handle, grace=300, **options), asyncio.Event()
    run = asyncio.create_task(run_until_stopped(app, stopped.wait()))
    await clock.sleep(1)
    person(1).says("hello")
    await clock.sleep(1)
    press_ctrl_c(app)
    stopped.set()
    await clock.sleep(10)
    assert not run.done()
    began = clock.monotonic()
    press_ctrl_c(app)
    await run

    assert clock.monotonic() - began < 0.5
    assert len(ends) == 1
    assert not gate.is_open
    await clock.sleep(5)  # nothing exits later, either: it ended in good order


async def test_a_third_ctrl_c_raises_as_the_library_does(attach: Attach) -> None:
    app = attach(never_called)
    press_ctrl_c(app)
    async with app:  # initialized anew: it counts from here
        with pytest.raises(SystemExit):
            app._raise_system_exit()  # noqa: SLF001
        app._raise_system_exit()  # noqa: SLF001
        with pytest.raises(SystemExit):
            app._raise_system_exit()  # noqa: SLF001


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "stopping: waiting for 2 handlers, however long that takes; Ctrl-C again ends at once"),
        ({"concurrent": False}, "stopping: waiting for 1 handler, 1 update in the queue, however long"),
        ({"updates": "durable"}, "stopping: waiting up to 5 s for 2 handlers"),
    ],
)
async def test_a_stop_says_what_it_waits_for(
    attach: Attach,
    person: Callable[[int], Person],
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    line: str,
) -> None:
    async def handle(_update: Update, _context: Context) -> None:
        await clock.sleep(3)

    async with running(attach(handle, **options)):
        for number in (1, 2):
            person(number).says("hello")
        await clock.sleep(1)

    [said] = [text for text in caplog.messages if text.startswith("stopping")]
    assert said.startswith(line)


async def test_an_idle_application_says_nothing_when_it_stops(
    attach: Attach, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(attach(never_called)):
        await clock.sleep(1)
        began = clock.monotonic()

    assert clock.monotonic() - began < 0.1
    assert not [text for text in caplog.messages if text.startswith("stopping")]


async def test_a_stop_does_not_hang_on_replies_that_wait_for_their_turn(
    attach: Attach, person: Callable[[int], Person], clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    ends: list[object] = []

    async def handle(update: Update, _context: Context) -> None:
        assert update.message is not None
        sends = (update.message.reply_text(str(number)) for number in range(100))
        ends.extend(await asyncio.gather(*sends, return_exceptions=True))

    app = attach(handle, grace=3)
    async with app:
        assert app.updater is not None
        await app.updater.start_polling(timeout=POLL)
        await app.start()
        person(1).says("hello")
        await clock.sleep(1)
        await app.updater.stop()
        began = clock.monotonic()
        await app.stop()
        assert clock.monotonic() - began == pytest.approx(3, abs=0.5)
        await app.bot.send_message(2, "as in post_stop")  # calls are made again until it is shut down

    refused = [end for end in ends if isinstance(end, ClosedError)]
    assert len(ends) == 100
    assert str(refused[0]) == "sendMessage to 1 was not made: the application stops, or has stopped"
    assert telegram.report()["methods"]["sendMessage"] == 100 - len(refused) + 1


async def never_called(_update: Update, _context: Context) -> None:
    raise AssertionError
