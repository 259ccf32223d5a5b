"""Arrivals in memory: for tests, and for bots that may forget."""

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from tidegate.clock import Clock
from tidegate.errors import StoreFullError
from tidegate.inbound.arrivals import Arrival, Held, Parked, Source
from tidegate.inbound.inbox.base import MOST, PARKED_AT_MOST, REMEMBER, Inbox, InboxStats
from tidegate.inbound.inbox.lanes import Lane, Lanes, Waiting

_Seen = dict[tuple[Source, str], float]


class MemoryInbox(Inbox):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lanes = Lanes()
        self._arrivals: dict[int, Held] = {}
        self._seen: _Seen = {}  # in order of time
        self._parked: dict[tuple[Source, str], Parked] = {}  # in order of time
        self._number = 0
        self._news = asyncio.Event()

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def accept(self, arrivals: Sequence[Arrival]) -> list[bool]:
        self._forget()
        fresh = {name for one in arrivals if (name := (one.source, one.key)) not in self._seen}
        if self._lanes.waiting + len(fresh) > MOST:
            raise StoreFullError(f"{MOST} updates wait to be handled: handle them faster, or drop them")
        return [self._take_in(arrival) for arrival in arrivals]

    def _take_in(self, arrival: Arrival) -> bool:
        if (arrival.source, arrival.key) in self._seen:
            return False
        self._seen[arrival.source, arrival.key] = self._clock.monotonic()
        self._queue(arrival, self._clock.now())
        return True

    def _queue(self, arrival: Arrival, arrived_at: float) -> None:
        self._number += 1
        self._arrivals[self._number] = Held(str(self._number), arrival, arrived_at)
        self._lanes.add(_lane(arrival), Waiting(self._number))
        self._news.set()

    async def claim(self, sources: Collection[Source], limit: int, *, suspects: int) -> list[Held]:
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

    async def done(self, held: Sequence[Held]) -> None:
        for one in held:
            self._end(one)

    async def release(self, held: Held, *, after: float = 0.0, failed: bool = False) -> None:
        number = int(held.id)
        not_before = self._clock.monotonic() + after if after else 0.0
        if self._lanes.free(_lane(held.arrival), number, Waiting(number, held.crashes, not_before)):
            attempts = held.attempts + failed
            self._arrivals[number] = msgspec.structs.replace(held, attempts=attempts)
            self._news.set()

    async def park(self, held: Held, reason: str) -> None:
        if not self._end(held):
            return
        parked = Parked(held.arrival, held.arrived_at, self._clock.now(), reason)
        self._parked[held.arrival.source, held.arrival.key] = parked
        of_source = [key for key in self._parked if key[0] == held.arrival.source]
        for key in of_source[: len(of_source) - PARKED_AT_MOST]:
            del self._parked[key]

    async def parked(self, source: Source | None = None, *, limit: int = 100) -> list[Parked]:
        found = [one for one in reversed(self._parked.values()) if source in {None, one.arrival.source}]
        return found[:limit]

    async def replay(self, source: Source, key: str) -> bool:
        parked = self._parked.pop((source, key), None)
        if parked is not None:
            self._queue(parked.arrival, parked.arrived_at)
        return parked is not None

    async def drop(self, source: Source, key: str) -> bool:
        return self._parked.pop((source, key), None) is not None

    async def stats(self) -> InboxStats:
        return InboxStats(self._lanes.waiting, self._lanes.held, len(self._parked))

    async def lease(self, name: str, seconds: float) -> bool:  # noqa: ARG002  (there is no other process)
        return True

    async def give_back(self, name: str) -> None:
        """Nobody else wants it."""

    def _end(self, held: Held) -> bool:
        if not self._lanes.free(_lane(held.arrival), int(held.id)):
            return False
        del self._arrivals[int(held.id)]
        self._news.set()
        return True

    def _forget(self) -> None:
        before = self._clock.monotonic() - REMEMBER
        while self._seen and self._seen[first := next(iter(self._seen))] < before:
            del self._seen[first]


def _lane(arrival: Arrival) -> Lane:
    return (arrival.source, arrival.lane)
