"""The inbox in memory, for tests and for bots that may forget."""

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from tidegate.clock import Clock
from tidegate.inbound.inbox import (
    DEDUP_SECONDS,
    MAX_PARKED_PER_SOURCE,
    MAX_WAITING_ITEMS,
    ClaimedItem,
    Inbox,
    InboxItem,
    InboxSource,
    InboxStats,
    ParkedItem,
    check_replayable,
    full_error,
)
from tidegate.inbound.inbox_lanes import InboxLanes, WaitingItem, lane_of
from tidegate.leader_lease import UncontestedLeases


class MemoryInbox(Inbox):
    def __init__(self, clock: Clock) -> None:
        self.leases = UncontestedLeases()
        self._clock = clock
        self._lanes = InboxLanes()
        self._items: dict[int, ClaimedItem] = {}
        self._seen: dict[tuple[InboxSource, str], float] = {}  # in order of time
        self._parked: dict[tuple[InboxSource, str], ParkedItem] = {}  # in order of time
        self._number = 0
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def accept(self, items: Sequence[InboxItem]) -> list[bool]:
        self._forget()
        new = {key for one in items if (key := (one.source, one.key)) not in self._seen}
        for source, count in Counter(source for source, _ in new).items():
            if self._lanes.waiting_of(source) + count > MAX_WAITING_ITEMS:
                raise full_error(items)
        return [self._accept(item) for item in items]

    def _accept(self, item: InboxItem) -> bool:
        if (item.source, item.key) in self._seen:
            return False
        self._seen[item.source, item.key] = self._clock.monotonic()
        self._queue(item, self._clock.now())
        return True

    def _queue(self, item: InboxItem, arrived_at: float) -> None:
        self._number += 1
        self._items[self._number] = ClaimedItem(str(self._number), item, arrived_at)
        self._lanes.add(lane_of(item), WaitingItem(self._number))
        self._changed.set()

    async def claim(
        self, sources: Collection[InboxSource], limit: int, *, suspects: int
    ) -> list[ClaimedItem]:
        self._changed.clear()
        taken = self._lanes.take(sources, limit, suspects, self._clock.monotonic())
        return [self._items[waiting.number] for _, waiting in taken]

    async def wait(self) -> None:
        next_at = self._lanes.next_at()
        try:
            async with self._clock.timeout(None if next_at is None else next_at - self._clock.monotonic()):
                await self._changed.wait()
        except TimeoutError:
            return

    async def done(self, claimed: Sequence[ClaimedItem]) -> None:
        for one in claimed:
            self._free(one)

    async def release(self, claimed: ClaimedItem, *, after: float = 0.0, failed: bool = False) -> None:
        number = int(claimed.id)
        not_before = self._clock.monotonic() + after if after else 0.0
        if self._lanes.free(lane_of(claimed.item), number, WaitingItem(number, claimed.crashes, not_before)):
            attempts = claimed.attempts + failed
            self._items[number] = msgspec.structs.replace(claimed, attempts=attempts)
            self._changed.set()

    async def park(self, claimed: ClaimedItem, reason: str) -> None:
        if not self._free(claimed):
            return
        parked = ParkedItem(claimed.item, claimed.arrived_at, self._clock.now(), reason)
        self._parked[claimed.item.source, claimed.item.key] = parked
        of_source = [key for key in self._parked if key[0] == claimed.item.source]
        for key in of_source[: len(of_source) - MAX_PARKED_PER_SOURCE]:
            del self._parked[key]

    async def parked(self, source: InboxSource | None = None, *, limit: int = 100) -> list[ParkedItem]:
        found = [one for one in reversed(self._parked.values()) if source in {None, one.item.source}]
        return found[:limit]

    async def replay(self, source: InboxSource, key: str) -> bool:
        parked = self._parked.get((source, key))
        if parked is None:
            return False
        check_replayable(parked)
        del self._parked[source, key]
        self._queue(parked.item, parked.arrived_at)
        return True

    async def drop(self, source: InboxSource, key: str) -> bool:
        return self._parked.pop((source, key), None) is not None

    async def waiting(self, source: InboxSource) -> int:
        return self._lanes.waiting_of(source)

    async def lane_length(self, item: InboxItem) -> int:
        return self._lanes.length(lane_of(item))

    async def stats(self) -> InboxStats:
        return InboxStats(self._lanes.waiting, self._lanes.claimed, len(self._parked))

    def _free(self, claimed: ClaimedItem) -> bool:
        if not self._lanes.free(lane_of(claimed.item), int(claimed.id)):
            return False
        del self._items[int(claimed.id)]
        self._changed.set()
        return True

    def _forget(self) -> None:
        before = self._clock.monotonic() - DEDUP_SECONDS
        while self._seen and self._seen[first := next(iter(self._seen))] < before:
            del self._seen[first]
