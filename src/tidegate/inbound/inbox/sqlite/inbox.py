"""Arrivals in a file. The truth is in the file; which one is next, by numbers only, is in memory.

One process at a time has it open and hands out: whoever sends for the file. Others accept, look, replay and
drop without opening it; the one that hands out follows them.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError, StoreFullError
from tidegate.inbound.arrivals import Arrival, Held, Parked, Source
from tidegate.inbound.inbox.base import MOST, Inbox, InboxStats
from tidegate.inbound.inbox.lanes import Lane, Waiting
from tidegate.inbound.inbox.sqlite import accepting, settling
from tidegate.inbound.inbox.sqlite.accepting import BEGINNING, Accepted, Answer, Placed
from tidegate.inbound.inbox.sqlite.following import Following
from tidegate.outbox.sqlite.file import StoreFile

POLL: Final = 0.25  # seconds between two looks at what other processes did
TOGETHER: Final = 500  # calls that share a step

_Taken = list[tuple[Lane, Waiting]]


class _Together(msgspec.Struct):
    """Arrivals that are accepted in one step, for all who came before it began: several times faster."""

    calls: list[Sequence[Arrival]]
    written: "asyncio.Future[list[Answer]]"


class SqliteInbox(Inbox):
    """`file` is open before it and closed after it."""

    def __init__(self, file: StoreFile, clock: Clock, *, poll: float = POLL) -> None:
        self._file = file
        self._clock = clock
        self._news = asyncio.Event()
        self._following = Following(file, clock, self._news, poll=poll)
        self._cleaned = BEGINNING
        self._accepting: _Together | None = None

    async def open(self) -> None:
        await self._file.write(settling.take_over)
        await self._following.begin()

    async def close(self) -> None:
        self._following.end()
        with suppress(ClosedError, StoreError):  # what a cancelled claim has held goes back first
            await self._file.read(lambda _: None)

    # --- in ---

    async def accept(self, arrivals: Sequence[Arrival]) -> list[bool]:
        if not arrivals:
            return []
        together = self._accepting
        if together is None or not self._file.is_last(together.written) or len(together.calls) >= TOGETHER:
            together = self._accepting = self._accept([])
        place = len(together.calls)
        together.calls.append(arrivals)
        try:
            # Shared: one that does not wait any more must not take it from the others.
            answers = await asyncio.shield(together.written)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001  (one of them is to blame: the others must not suffer)
            place, answers = 0, await self._accept([arrivals]).written
        answer = answers[place]
        if answer is None:
            raise StoreFullError(f"{MOST} updates wait to be handled: handle them faster, or drop them")
        return answer

    def _accept(self, calls: list[Sequence[Arrival]]) -> _Together:
        """What is added to the calls before the step begins is accepted with them."""
        now, cleaned = self._clock.now(), self._cleaned

        def apply(accepted: Accepted) -> list[Answer]:
            calls.clear()
            self._cleaned = accepted.cleaned
            self._following.enter(accepted.placed)
            return accepted.answers

        return _Together(calls, self._file.write(lambda tx: accepting.accept(tx, calls, now, cleaned), apply))

    # --- out ---

    async def claim(self, sources: Collection[Source], limit: int, *, suspects: int) -> list[Held]:
        self._news.clear()
        await self._following.catch_up()
        taken = self._following.lanes.take(sources, limit, suspects, self._clock.monotonic())
        if not taken:
            return []
        numbers = [waiting.number for _, waiting in taken]
        written = self._file.write(
            lambda tx: settling.hold(tx, numbers), lambda rows: self._given(taken, rows)
        )
        try:
            held: list[Held] = await asyncio.shield(written)
        except asyncio.CancelledError:
            written.add_done_callback(lambda _: self._hand_back(written, taken))
            raise
        except Exception:
            self._put_back(taken)
            raise
        return held

    def _given(self, taken: _Taken, rows: dict[int, Any]) -> list[Held]:
        held = []
        for (source, lane), waiting in taken:
            row = rows.get(waiting.number)
            if row is None:  # somebody has removed it
                self._following.lanes.free((source, lane), waiting.number)
                self._news.set()
                continue
            key, arrived_at, attempts, crashes, body = row
            arrival = Arrival(source, key, lane, body)
            held.append(Held(str(waiting.number), arrival, arrived_at, attempts, crashes))
        return held

    def _put_back(self, taken: _Taken) -> None:
        for lane, waiting in taken:
            self._following.lanes.free(lane, waiting.number, waiting)
        self._news.set()

    def _hand_back(self, written: "asyncio.Future[list[Held]]", taken: _Taken) -> None:
        """Whoever claimed these is not there any more."""
        if written.cancelled() or written.exception() is not None:
            self._put_back(taken)
            return
        with suppress(ClosedError):
            for held in written.result():
                self._release(held, 0.0, failed=False).add_done_callback(_take_note)

    async def wait(self) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(self._following.next_at() - self._clock.monotonic()):
                await self._news.wait()

    # --- over ---

    async def done(self, held: Sequence[Held]) -> None:
        if not held:
            return
        numbers = [int(one.id) for one in held]
        await self._file.write(lambda tx: settling.done(tx, numbers), lambda _: self._end(held))

    def _end(self, held: Sequence[Held]) -> None:
        for one in held:
            self._following.lanes.free(_lane(one.arrival), int(one.id))
        self._news.set()

    async def release(self, held: Held, *, after: float = 0.0, failed: bool = False) -> None:
        await self._release(held, after, failed=failed)

    def _release(self, held: Held, after: float, *, failed: bool) -> asyncio.Future[Any]:
        number, lane = int(held.id), _lane(held.arrival)
        not_before = self._clock.now() + after if after > 0 else None
        until = self._clock.monotonic() + after if after > 0 else 0.0

        def apply(_: object) -> None:
            self._following.lanes.free(lane, number, Waiting(number, held.crashes, until))
            self._news.set()

        return self._file.write(lambda tx: settling.release(tx, number, not_before, failed=failed), apply)

    async def park(self, held: Held, reason: str) -> None:
        number, source, now = int(held.id), held.arrival.source, self._clock.now()
        await self._file.write(
            lambda tx: settling.park(tx, number, source, now, reason), lambda _: self._end([held])
        )

    async def parked(self, source: Source | None = None, *, limit: int = 100) -> list[Parked]:
        found: list[Parked] = await self._file.read(lambda tx: settling.parked(tx, source, limit))
        return found

    async def replay(self, source: Source, key: str) -> bool:
        def apply(placed: list[Placed]) -> bool:
            self._following.enter(placed)
            return bool(placed)

        replayed: bool = await self._file.write(lambda tx: settling.replay(tx, source, key), apply)
        return replayed

    async def drop(self, source: Source, key: str) -> bool:
        dropped: bool = await self._file.write(lambda tx: settling.drop(tx, source, key))
        return dropped

    async def stats(self) -> InboxStats:
        stats: InboxStats = await self._file.read(settling.stats)
        return stats

    async def lease(self, name: str, seconds: float) -> bool:  # noqa: ARG002  (who sends for the file has it)
        return True

    async def give_back(self, name: str) -> None:
        """The lock of the sender is the lease."""


def _lane(arrival: Arrival) -> Lane:
    return (arrival.source, arrival.lane)


def _take_note(released: "asyncio.Future[Any]") -> None:
    """What could not be given back is found by whoever opens the file next."""
    if not released.cancelled():
        released.exception()
