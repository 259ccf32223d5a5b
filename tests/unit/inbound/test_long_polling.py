"""Long polling: stored first, confirmed later, by one process at a time."""

from collections.abc import Sequence
from typing import Any

import pytest

from tidegate.errors import StoreAwayError
from tidegate.inbound.handler_registry import WAITING_ITEMS_WHILE_FETCHING, HandlerRegistry
from tidegate.inbound.inbox import InboxItem, InboxSource, bot_source
from tidegate.inbound.long_polling import InboxSink, LongPoller
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.inbox import MemoryInbox

Json = dict[str, Any]


class Source:
    """Telegram's side: returns the updates that were not confirmed."""

    def __init__(self, count: int) -> None:
        self.updates: list[Json] = [{"update_id": number, "poll": {}} for number in range(1, count + 1)]
        self.offsets: list[int | None] = []

    async def fetch(self, offset: int | None) -> list[Json]:
        self.offsets.append(offset)
        self.updates = [one for one in self.updates if offset is None or one["update_id"] >= offset]
        return self.updates[:2]


async def test_an_update_is_confirmed_only_after_it_is_held(clock: VirtualClock) -> None:
    inbox, source = MemoryInbox(clock), Source(3)
    poller = LongPoller(42, InboxSink(42, HandlerRegistry(inbox, clock)), clock)

    fresh = [await poller.poll(source.fetch) for _ in range(3)]
    await poller.stop()

    assert fresh == [2, 1, 0]
    assert source.offsets == [None, 3, 4]
    assert (await inbox.stats()).waiting == 3


class Unwilling(MemoryInbox):
    failures = 3

    async def accept(self, arrivals: Sequence[InboxItem]) -> list[bool]:
        if self.failures:
            self.failures -= 1
            raise StoreAwayError("Redis cannot be reached")
        return await super().accept(arrivals)


async def test_what_cannot_be_held_is_not_confirmed(clock: VirtualClock) -> None:
    inbox, source = Unwilling(clock), Source(2)
    poller = LongPoller(42, InboxSink(42, HandlerRegistry(inbox, clock)), clock)

    assert await poller.poll(source.fetch) == 2
    await poller.stop()

    assert source.offsets == [None]
    assert inbox.failures == 0


class Crowded(MemoryInbox):
    crowd = WAITING_ITEMS_WHILE_FETCHING

    async def waiting(self, source: InboxSource) -> int:
        assert source == bot_source(42)
        self.crowd -= 1
        return self.crowd + 3


async def test_nothing_is_fetched_while_too_much_waits(clock: VirtualClock) -> None:
    inbox, source, begun = Crowded(clock), Source(1), clock.monotonic()
    poller = LongPoller(42, InboxSink(42, HandlerRegistry(inbox, clock)), clock)

    await poller.poll(source.fetch)
    await poller.stop()

    assert clock.monotonic() - begun == pytest.approx(3)
