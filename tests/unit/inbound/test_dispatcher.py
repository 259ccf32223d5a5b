"""The dispatcher: one chat in order, chats side by side, bounded; nothing that a handler does stops it."""

import asyncio
import itertools
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

import pytest

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreAwayError
from tidegate.handler_run import repeatable, waiting_for_gate
from tidegate.inbound.dispatcher import InboxDispatcher, RegisteredHandler
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import ClaimedItem, InboxItem, InboxSource, bot_source
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.inbox import MemoryInbox

BOT = bot_source(42)
Open = Callable[..., Awaitable[HandlerRegistry]]
Handler = Callable[[ClaimedItem], Awaitable[None]]


def update(number: int, lane: str = "1") -> InboxItem:
    return InboxItem(BOT, str(number), lane, b"{}")


@pytest.fixture
async def open_registry(clock: VirtualClock) -> AsyncIterator[Open]:
    opened: list[HandlerRegistry] = []

    async def open_one(
        handler: Handler, *, attempts: int = 1, at_once: int = 100, inbox: MemoryInbox | None = None
    ) -> HandlerRegistry:
        registry = HandlerRegistry(inbox or MemoryInbox(clock), clock, at_once=at_once, deadline=60)
        registry.register(BOT, handler, attempts=attempts)
        await registry.start()
        opened.append(registry)
        return registry

    yield open_one
    for registry in opened:
        await registry.stop(0)


async def test_one_chat_is_handled_in_order_and_chats_side_by_side(
    clock: VirtualClock, open_registry: Open
) -> None:
    log: list[tuple[str, str, float]] = []

    async def handle(held: ClaimedItem) -> None:
        await clock.sleep(1)
        log.append((held.item.lane, held.item.key, clock.monotonic() - begun))

    registry, begun = await open_registry(handle), clock.monotonic()
    await registry.accept([update(1, "a"), update(2, "a"), update(3, "b"), update(4, "a")])
    await clock.sleep(10)

    assert [(lane, key) for lane, key, _ in log] == [("a", "1"), ("b", "3"), ("a", "2"), ("a", "4")]
    assert [round(at) for *_, at in log] == [1, 1, 2, 3]


async def test_never_more_at_once_than_it_was_told(clock: VirtualClock, open_registry: Open) -> None:
    most = now = 0

    async def handle(_: ClaimedItem) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await clock.sleep(1)
        now -= 1

    registry = await open_registry(handle, at_once=7)
    await registry.accept([update(number, str(number)) for number in range(50)])
    await clock.sleep(20)

    assert most == 7
    assert (await registry.stats()).waiting == 0


async def test_a_handler_that_raises_is_told_of_once_and_its_chat_goes_on(
    clock: VirtualClock, open_registry: Open, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[str] = []

    async def handle(held: ClaimedItem) -> None:
        if held.item.key == "1":
            raise ValueError("bot 12345:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw is sad")
        handled.append(held.item.key)

    registry = await open_registry(handle)
    await registry.accept([update(1), update(2)])
    await clock.sleep(1)

    [parked] = await registry.inbox.parked()
    assert handled == ["2"]
    assert parked.item.key == "1"
    assert parked.reason.startswith("ValueError: bot 12345:… is sad (inbound/test_dispatcher.py:")
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.getMessage().splitlines()[0] == f"update 1 of bot 42 is parked: {parked.reason}"
    assert "AAHdqTcv" not in caplog.text  # in the traceback that follows


async def test_one_that_never_returns_is_cancelled_and_named_and_its_chat_goes_on(
    clock: VirtualClock, open_registry: Open
) -> None:
    handled: list[str] = []

    async def wait_for_godot() -> None:
        await asyncio.Event().wait()

    async def handle(held: ClaimedItem) -> None:
        if held.item.key == "1":
            await wait_for_godot()
        handled.append(held.item.key)

    registry = await open_registry(handle)
    await registry.accept([update(1), update(2)])
    await clock.sleep(59)
    assert handled == []
    await clock.sleep(2)

    [parked] = await registry.inbox.parked()
    assert handled == ["2"]
    assert (
        "took longer than 60 s and was cancelled in wait_for_godot (inbound/test_dispatcher.py:"
        in parked.reason
    )
    assert registry.handling == 0


async def test_one_that_does_not_let_itself_be_cancelled_holds_nobody_up(
    clock: VirtualClock, open_registry: Open
) -> None:
    handled: list[str] = []
    over = asyncio.Event()

    async def handle(held: ClaimedItem) -> None:
        while held.item.key == "1" and not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue
        handled.append(held.item.key)

    registry = await open_registry(handle, at_once=1)
    await registry.accept([update(1), update(2)])
    await clock.sleep(70)

    assert handled == ["2"]
    over.set()


async def test_what_may_be_tried_again_is_with_longer_and_longer_pauses(
    clock: VirtualClock, open_registry: Open
) -> None:
    tries: list[float] = []

    async def handle(_: ClaimedItem) -> None:
        tries.append(clock.monotonic())
        raise OSError("not now")

    registry = await open_registry(handle, attempts=4)
    await registry.accept([update(1)])
    await clock.sleep(60)

    assert [round(later - earlier) for earlier, later in itertools.pairwise(tries)] == [2, 4, 8]
    assert (await registry.stats()).parked == 1


@pytest.mark.parametrize("how", ["not at all", "its registration", "the handler", "a setting"])
async def test_what_a_stop_cuts_off_is_handled_again_only_if_somebody_said_that_it_may_be(
    clock: VirtualClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[str] = []

    async def handle(held: ClaimedItem) -> None:
        await clock.sleep(1 if held.item.key == "1" else 1000)
        handled.append(held.item.key)

    registry = HandlerRegistry(MemoryInbox(clock), clock, repeats=how == "a setting")
    marked = repeatable(handle) if how == "the handler" else handle
    registry.register(BOT, marked, is_repeatable=how == "its registration")
    await registry.start()
    await registry.accept([update(1, "a"), update(2, "b"), update(3, "b")])
    await clock.sleep(0.5)
    await registry.stop(grace=5)

    stats = await registry.stats()
    assert handled == ["1"]
    if how == "not at all":
        assert (stats.waiting, stats.handling, stats.parked) == (1, 0, 1)
        assert re.search(r"update 2 of bot 42 is parked: was cut off in handle \(.*\) when its", caplog.text)
    else:
        assert (stats.waiting, stats.handling, stats.parked) == (2, 0, 0)
        assert re.search(r"update 2 of bot 42 was cut off in handle \(.*\): it is handled again", caplog.text)


async def test_waiting_for_the_gate_itself_does_not_count_towards_the_deadline(clock: VirtualClock) -> None:
    ended: list[str] = []

    async def waits(held: ClaimedItem) -> None:
        if held.item.key == "1":
            for _ in range(3):  # as for a broadcast that takes an hour, and some work between
                with waiting_for_gate():
                    await clock.sleep(1200)
                await clock.sleep(10)
        else:
            with waiting_for_gate():
                await clock.sleep(1200)
            await clock.sleep(1000)
        ended.append(held.item.key)

    registry = HandlerRegistry(MemoryInbox(clock), clock, deadline=120)
    registry.register(BOT, waits)
    await registry.start()
    await registry.accept([update(1, "a"), update(2, "b")])
    await clock.sleep(1200 + 119)
    assert (await registry.stats()).parked == 0
    await clock.sleep(130)
    assert [one.item.key for one in await registry.inbox.parked()] == ["2"]
    await clock.sleep(3600)
    assert ended == ["1"]
    await registry.stop(0)


class Lethal(MemoryInbox):
    """An inbox that reports how many processes died while they handled each update."""

    def __init__(self, clock: Clock, crashes: dict[str, int]) -> None:
        super().__init__(clock)
        self.crashes = crashes
        self.asked: list[int] = []

    async def claim(
        self, sources: Collection[InboxSource], limit: int, *, suspects: int
    ) -> list[ClaimedItem]:
        self.asked.append(suspects)
        held = await super().claim(sources, limit, suspects=suspects)
        return [ClaimedItem(one.id, one.item, 0, crashes=self.crashes[one.item.key]) for one in held]


async def test_what_kills_its_handler_again_and_again_is_parked_without_being_handled(
    clock: VirtualClock, open_registry: Open
) -> None:
    handled: list[str] = []

    async def handle(held: ClaimedItem) -> None:
        handled.append(held.item.key)

    registry = await open_registry(handle, inbox=Lethal(clock, {"1": 4, "2": 5}))
    await registry.accept([update(1, "a"), update(2, "b")])
    await clock.sleep(1)

    [parked] = await registry.inbox.parked()
    assert handled == ["1"]
    assert parked.reason == "killed the process that handled it 5 times"


async def test_while_a_suspect_is_in_hand_no_other_is_asked_for(
    clock: VirtualClock, open_registry: Open
) -> None:
    async def handle(_: ClaimedItem) -> None:
        await clock.sleep(1)

    inbox = Lethal(clock, {"1": 2, "2": 0})
    registry = await open_registry(handle, inbox=inbox)
    await registry.accept([update(1, "a")])
    await clock.sleep(0.5)
    await registry.accept([update(2, "b")])
    await clock.sleep(0.1)
    beside = inbox.asked[-1]
    await clock.sleep(2)

    assert (beside, inbox.asked[-1]) == (0, 1)


class Shaky(MemoryInbox):
    """Fails `failures` times at each verb."""

    failures = 2

    async def open(self) -> None:
        self._maybe_fail()

    async def claim(
        self, sources: Collection[InboxSource], limit: int, *, suspects: int
    ) -> list[ClaimedItem]:
        self._maybe_fail()
        return await super().claim(sources, limit, suspects=suspects)

    async def done(self, held: Sequence[ClaimedItem]) -> None:
        self._maybe_fail()
        await super().done(held)

    def _maybe_fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreAwayError("Redis cannot be reached")


async def test_a_store_that_is_away_delays_and_loses_nothing(
    clock: VirtualClock, open_registry: Open
) -> None:
    handled: list[str] = []
    inbox = Shaky(clock)

    async def handle(held: ClaimedItem) -> None:
        handled.append(held.item.key)
        inbox.failures = 2

    registry = await open_registry(handle, inbox=inbox)
    await registry.accept([update(1)])
    await clock.sleep(30)

    assert handled == ["1"]
    assert await registry.stats() == await MemoryInbox(clock).stats()


async def test_nothing_is_lost_when_a_handler_leaves_before_its_turn(clock: VirtualClock) -> None:
    inbox = MemoryInbox(clock)
    await inbox.accept([update(1)])
    dispatcher = InboxDispatcher(inbox, clock, handlers := {BOT: RegisteredHandler(_nothing)})
    await dispatcher.start()
    await clock.sleep(0)
    handlers.clear()
    await clock.sleep(1)
    await dispatcher.stop(0)

    stats = await inbox.stats()
    assert stats.waiting + stats.handling <= 1
    assert stats.parked == 0


async def _nothing(_: ClaimedItem) -> None:
    pass


async def test_numbers_that_make_no_sense_are_refused(clock: VirtualClock) -> None:
    with pytest.raises(BadInputError):
        InboxDispatcher(MemoryInbox(clock), clock, {}, at_once=0)
    with pytest.raises(BadInputError):
        InboxDispatcher(MemoryInbox(clock), clock, {}, deadline=0)


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


HALF = ValueError("half a character: \udcff")


@pytest.mark.parametrize("error", [OddError(), HALF, asyncio.CancelledError()])
async def test_whatever_is_raised_the_chat_goes_on(
    clock: VirtualClock, open_registry: Open, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[str] = []

    async def handle(held: ClaimedItem) -> None:
        if held.item.key == "1":
            raise error
        handled.append(held.item.key)

    registry = await open_registry(handle)
    await registry.accept([update(1), update(2)])
    await clock.sleep(1)

    [parked] = await registry.inbox.parked()
    assert (handled, parked.item.key) == (["2"], "1")
    (parked.reason + caplog.text).encode()  # what is written can be


async def test_a_handler_that_does_not_end_does_not_keep_it_from_ending(clock: VirtualClock) -> None:
    over = asyncio.Event()

    async def handle(_: ClaimedItem) -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    registry = HandlerRegistry(MemoryInbox(clock), clock)
    registry.register(BOT, handle)
    await registry.start()
    await registry.accept([update(number, str(number)) for number in range(3)])
    await clock.sleep(1)
    begun = clock.monotonic()
    await registry.stop(grace=1)

    over.set()
    assert clock.monotonic() - begun < 10
    assert (await registry.stats()).parked == 3


async def test_an_update_that_ends_its_process_each_time_is_parked_in_the_end(clock: VirtualClock) -> None:
    inbox, runs = MemoryInbox(clock), 0
    await inbox.accept([update(1)])
    while (await inbox.stats()).waiting:
        registry = HandlerRegistry(inbox, clock)

        async def stop_the_bot(_: ClaimedItem) -> None:
            nonlocal runs
            runs += 1
            await clock.sleep(3600)  # it waits for the end, which waits for it

        registry.register(BOT, stop_the_bot, is_repeatable=True)
        await registry.start()
        await clock.sleep(1)
        await registry.stop(grace=1)

    [parked] = await inbox.parked()
    assert runs == 5
    assert parked.reason == "was not done when its process ended, 5 times"


async def test_what_one_source_sends_can_be_ended_alone(clock: VirtualClock) -> None:
    other = bot_source(43)
    registry = HandlerRegistry(MemoryInbox(clock), clock)

    async def slow(_: ClaimedItem) -> None:
        await clock.sleep(100)

    for source in (BOT, other):
        registry.register(source, slow)
    await registry.start()
    await registry.accept([update(1), InboxItem(other, "1", "1", b"{}")])
    await clock.sleep(1)
    registry.unregister(BOT)
    await registry.finish(BOT, grace=1)

    assert registry.handling == 1
    await registry.stop(0)


async def test_a_dispatcher_that_fails_as_nobody_expects_says_so_and_goes_on(
    clock: VirtualClock, open_registry: Open
) -> None:
    handled: list[str] = []

    class Failing(MemoryInbox):
        failures = 2

        async def claim(
            self, sources: Collection[InboxSource], limit: int, *, suspects: int
        ) -> list[ClaimedItem]:
            if self.failures:
                self.failures -= 1
                raise ValueError("nobody expects this")
            return await super().claim(sources, limit, suspects=suspects)

    async def handle(held: ClaimedItem) -> None:
        handled.append(held.item.key)

    registry = await open_registry(handle, inbox=Failing(clock))
    await registry.accept([update(1)])
    await clock.sleep(0.5)
    [problem] = registry.problems()
    await clock.sleep(5)

    assert "the inbox dispatcher has failed once: ValueError: nobody expects this" in problem
    assert (handled, registry.problems()) == (["1"], [])
