"""The inbox in memory, for tests and for bots that may forget."""

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from tidegate.clock import Clock
from tidegate.errors import StoreFullError
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
)
from tidegate.inbound.inbox_lanes import InboxLane, InboxLanes, WaitingItem
from tidegate.leader_lease import UncontestedLeases

_SeenKeys = dict[tuple[InboxSource, str], float]


class MemoryInbox(Inbox):
    def __init__(self, clock: Clock) -> None:
        self.leases = UncontestedLeases()
        self._clock = clock
        self._lanes = InboxLanes()
        self._arrivals: dict[int, ClaimedItem] = {}
        self._seen: _SeenKeys = {}  # in order of time
        self._parked: dict[tuple[InboxSource, str], ParkedItem] = {}  # in order of time
        self._number = 0
        self._news = asyncio.Event()

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def accept(self, arrivals: Sequence[InboxItem]) -> list[bool]:
        self._forget()
        fresh = {name for one in arrivals if (name := (one.source, one.key)) not in self._seen}
        if self._lanes.waiting + len(fresh) > MAX_WAITING_ITEMS:
            raise StoreFullError(
                f"{MAX_WAITING_ITEMS} updates wait to be handled: handle them faster, or drop them"
            )
        return [self._take_in(arrival) for arrival in arrivals]

    def _take_in(self, arrival: InboxItem) -> bool:
        if (arrival.source, arrival.key) in self._seen:
            return False
        self._seen[arrival.source, arrival.key] = self._clock.monotonic()
        self._queue(arrival, self._clock.now())
        return True

    def _queue(self, arrival: InboxItem, arrived_at: float) -> None:
        self._number += 1
        self._arrivals[self._number] = ClaimedItem(str(self._number), arrival, arrived_at)
        self._lanes.add(_lane(arrival), WaitingItem(self._number))
        self._news.set()

    async def claim(
        self, sources: Collection[InboxSource], limit: int, *, suspects: int
    ) -> list[ClaimedItem]:
        self._news.clear()
        taken = self._lanes.take(sources, limit, suspects, self._clock.monotonic())
        return [self._arrivals[waiting.number] for _, waiting in taken]

    async def wait(self) -> None:
        next_at = self._lanes.next_at()
        try:
            async with self._clock.timeout(None if next_at is None else next_at - self._clock.monotonic()):
                await self._news.wait()
        except TimeoutError:
            return

    async def done(self, held: Sequence[ClaimedItem]) -> None:
        for one in held:
            self._end(one)

    async def release(self, held: ClaimedItem, *, after: float = 0.0, failed: bool = False) -> None:
        number = int(held.id)
        not_before = self._clock.monotonic() + after if after else 0.0
        if self._lanes.free(_lane(held.arrival), number, WaitingItem(number, held.crashes, not_before)):
            attempts = held.attempts + failed
            self._arrivals[number] = msgspec.structs.replace(held, attempts=attempts)
            self._news.set()

    async def park(self, held: ClaimedItem, reason: str) -> None:
        if not self._end(held):
            return
        parked = ParkedItem(held.arrival, held.arrived_at, self._clock.now(), reason)
        self._parked[held.arrival.source, held.arrival.key] = parked
        of_source = [key for key in self._parked if key[0] == held.arrival.source]
        for key in of_source[: len(of_source) - MAX_PARKED_PER_SOURCE]:
            del self._parked[key]

    async def parked(self, source: InboxSource | None = None, *, limit: int = 100) -> list[ParkedItem]:
        found = [one for one in reversed(self._parked.values()) if source in {None, one.arrival.source}]
        return found[:limit]

    async def replay(self, source: InboxSource, key: str) -> bool:
        parked = self._parked.pop((source, key), None)
        if parked is not None:
            self._queue(parked.arrival, parked.arrived_at)
        return parked is not None

    async def drop(self, source: InboxSource, key: str) -> bool:
        return self._parked.pop((source, key), None) is not None

    async def stats(self) -> InboxStats:
        return InboxStats(self._lanes.waiting, self._lanes.held, len(self._parked))

    def _end(self, held: ClaimedItem) -> bool:
        if not self._lanes.free(_lane(held.arrival), int(held.id)):
            return False
        del self._arrivals[int(held.id)]
        self._news.set()
        return True

    def _forget(self) -> None:
        before = self._clock.monotonic() - DEDUP_SECONDS
        while self._seen and self._seen[first := next(iter(self._seen))] < before:
            del self._seen[first]


def _lane(arrival: InboxItem) -> InboxLane:
    return (arrival.source, arrival.lane)
