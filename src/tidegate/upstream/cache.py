"""Answers kept for a while, and one request for all who ask the same at the same time."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from tidegate.clock import Clock
from tidegate.errors import ClosedError

MOST: Final = 1_024  # answers
MOST_BYTES: Final = 64 * 1024 * 1024

Key = tuple[str, tuple[tuple[str, str], ...]]  # path and query
Load = Callable[[], Coroutine[Any, Any, bytes]]


class _CachedResponse(NamedTuple):
    body: bytes
    at: float


class _SharedRequest:
    """One request that several wait for. `stale`: written to meanwhile, so its answer is not kept."""

    __slots__ = ("stale", "task", "waiting")

    def __init__(self, task: asyncio.Task[bytes]) -> None:
        self.task = task
        self.waiting = 0
        self.stale = False


class ResponseCache:
    """Bounded: the one that was not asked for the longest goes first. Errors are not kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[Key, _CachedResponse] = OrderedDict()
        self._size = 0  # bytes
        self._flights: dict[tuple[Key, bool], _SharedRequest] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Key, fresh_for: float) -> bytes | None:
        """An answer that came at most so many seconds ago."""
        kept = self._kept.get(key)
        if kept is None or self._clock.monotonic() - kept.at >= fresh_for:
            return None
        self._kept.move_to_end(key)
        return kept.body

    async def load(self, key: Key, load: Load, *, background: bool) -> bytes:
        """Ask, or join who asks already. Whoever leaves does not end it for the others; the last one does."""
        flight = self._flights.get((key, background))
        if flight is None or flight.task.done():
            flight = self._depart(key, load, background=background)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if waiter is not None and waiter.cancelling():
                raise
            raise ClosedError("the client was closed: nothing is read any more") from None
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                flight.task.cancel()
                self._land(key, flight, background=background)

    def drop(self, path: str) -> None:
        """Forget what lies under this path and what it lies under; who asks now does not learn it again."""
        for key in [key for key in self._kept if _related(key[0], path)]:
            self._forget(key)
        for where, flight in list(self._flights.items()):
            if _related(where[0][0], path):
                flight.stale = True
                del self._flights[where]

    async def close(self) -> None:
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _depart(self, key: Key, load: Load, *, background: bool) -> _SharedRequest:
        flight = _SharedRequest(asyncio.create_task(load(), name=f"tidegate: read {key[0]}"))
        self._flights[key, background] = flight
        flight.task.add_done_callback(lambda _: self._arrived(key, flight, background=background))
        return flight

    def _arrived(self, key: Key, flight: _SharedRequest, *, background: bool) -> None:
        self._land(key, flight, background=background)
        task = flight.task
        if not task.cancelled() and task.exception() is None and not flight.stale:
            self._keep(key, task.result())

    def _land(self, key: Key, flight: _SharedRequest, *, background: bool) -> None:
        if self._flights.get((key, background)) is flight:
            del self._flights[key, background]

    def _keep(self, key: Key, body: bytes) -> None:
        self._forget(key)
        self._kept[key] = _CachedResponse(body, self._clock.monotonic())
        self._size += len(body)
        while len(self._kept) > MOST or self._size > MOST_BYTES:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= len(kept.body)


def _related(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
