"""The inbox in the SQLite file, and the lanes in memory that follow it."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError, StoreFullError
from tidegate.inbound.inbox import (
    DEDUP_SECONDS,
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
from tidegate.stores.group_commit import GroupCommit
from tidegate.stores.sqlite import inbox_sql
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.inbox_sql import FIRST_SEEN_KEY, AcceptedItems, IsNewFlags, PlacedItem


class FollowedLanes:
    """Knows everything up to a number. `news` is set when something was added to the lanes."""

    def __init__(self, file: StoreFile, clock: Clock, news: asyncio.Event, *, poll: float) -> None:
        self.lanes = InboxLanes()
        self._file = file
        self._clock = clock
        self._news = news
        self._poll = poll
        self._follows = False
        self._last = 0  # the number up to which everything that waits is in the lanes
        self._behind = False  # something after it was accepted elsewhere
        self._version = 0  # of the file, when it was last looked at
        self._look_at = 0.0

    async def begin(self) -> None:
        self.lanes, self._last, self._follows = InboxLanes(), 0, True
        self._version = await self._file.changed()
        await self._load()

    def end(self) -> None:
        self.lanes, self._follows, self._behind = InboxLanes(), False, False

    def enter(self, placed: Sequence[PlacedItem]) -> None:
        """They were written by this process. What others wrote before them has to be loaded first."""
        if not placed or not self._follows:
            return
        if placed[0].number == self._last + 1:
            self._add(placed)
            self._last = placed[-1].number
        else:
            self._behind = True
        self._news.set()

    async def catch_up(self) -> None:
        """Other processes accept and replay, too."""
        if self._behind:
            await self._load()
        if self._clock.monotonic() < self._look_at:
            return
        self._look_at = self._clock.monotonic() + self._poll
        version = await self._file.changed()
        if version != self._version and self._follows:
            await self._load()
            self._version = version

    def next_at(self) -> float:
        """When there may be something new, if nobody says so before."""
        tried_again = self.lanes.next_at()
        return self._look_at if tried_again is None else min(tried_again, self._look_at)

    async def _load(self) -> None:
        while await self._file.read(lambda tx: inbox_sql.load(tx, self._last), self._loaded):
            pass

    def _loaded(self, loaded: inbox_sql.LoadedItems) -> bool:
        self._add([one for one in loaded.placed if one.number > self._last])
        self._last = max(self._last, loaded.upto)
        self._behind = loaded.more
        if loaded.placed:
            self._news.set()
        return loaded.more

    def _add(self, placed: Sequence[PlacedItem]) -> None:
        now, wall = self._clock.monotonic(), self._clock.now()
        for number, source, lane, crashes, not_before in placed:
            # Wall clocks may be set back.
            after = 0.0 if not_before is None else min(not_before - wall, DEDUP_SECONDS)
            self.lanes.add((source, lane), WaitingItem(number, crashes, now + after if after > 0 else 0.0))


FOLLOW_INTERVAL: Final = 0.25  # seconds between two looks at what other processes did
ITEMS_PER_COMMIT: Final = 500

_TakenItems = list[tuple[InboxLane, WaitingItem]]


class SqliteInbox(Inbox):
    """`file` is open before it and closed after it."""

    def __init__(self, file: StoreFile, clock: Clock, *, poll: float = FOLLOW_INTERVAL) -> None:
        self.leases = UncontestedLeases()  # whoever has it open holds the lock of the sender
        self._file = file
        self._clock = clock
        self._news = asyncio.Event()
        self._following = FollowedLanes(file, clock, self._news, poll=poll)
        self._cleaned = FIRST_SEEN_KEY
        self._accepts: GroupCommit[InboxItem, IsNewFlags] = GroupCommit(
            self._accept, file.is_last, ITEMS_PER_COMMIT
        )

    async def open(self) -> None:
        await self._file.write(inbox_sql.take_over)
        await self._following.begin()

    async def close(self) -> None:
        self._following.end()
        with suppress(ClosedError, StoreError):  # what a cancelled claim has held goes back first
            await self._file.read(lambda _: None)

    # --- in ---

    async def accept(self, arrivals: Sequence[InboxItem]) -> list[bool]:
        if not arrivals:
            return []
        answer = await self._accepts.ask(arrivals)
        if answer is None:
            raise StoreFullError(
                f"{MAX_WAITING_ITEMS} updates wait to be handled: handle them faster, or drop them"
            )
        return answer

    def _accept(self, calls: list[Sequence[InboxItem]]) -> "asyncio.Future[list[IsNewFlags]]":
        now, cleaned = self._clock.now(), self._cleaned

        def apply(accepted: AcceptedItems) -> list[IsNewFlags]:
            self._cleaned = accepted.cleaned
            self._following.enter(accepted.placed)
            return accepted.answers

        return self._file.write(lambda tx: inbox_sql.accept(tx, calls, now, cleaned), apply)

    # --- out ---

    async def claim(
        self, sources: Collection[InboxSource], limit: int, *, suspects: int
    ) -> list[ClaimedItem]:
        self._news.clear()
        await self._following.catch_up()
        taken = self._following.lanes.take(sources, limit, suspects, self._clock.monotonic())
        if not taken:
            return []
        numbers = [waiting.number for _, waiting in taken]
        written = self._file.write(
            lambda tx: inbox_sql.hold(tx, numbers), lambda rows: self._given(taken, rows)
        )
        try:
            held: list[ClaimedItem] = await asyncio.shield(written)
        except asyncio.CancelledError:
            written.add_done_callback(lambda _: self._hand_back(written, taken))
            raise
        except Exception:
            self._put_back(taken)
            raise
        return held

    def _given(self, taken: _TakenItems, rows: dict[int, Any]) -> list[ClaimedItem]:
        held = []
        for (source, lane), waiting in taken:
            row = rows.get(waiting.number)
            if row is None:  # somebody has removed it
                self._following.lanes.free((source, lane), waiting.number)
                self._news.set()
                continue
            key, arrived_at, attempts, crashes, body = row
            arrival = InboxItem(source, key, lane, body)
            held.append(ClaimedItem(str(waiting.number), arrival, arrived_at, attempts, crashes))
        return held

    def _put_back(self, taken: _TakenItems) -> None:
        for lane, waiting in taken:
            self._following.lanes.free(lane, waiting.number, waiting)
        self._news.set()

    def _hand_back(self, written: "asyncio.Future[list[ClaimedItem]]", taken: _TakenItems) -> None:
        """Whoever claimed these is not there any more."""
        if written.cancelled() or written.exception() is not None:
            self._put_back(taken)
            return
        with suppress(ClosedError):
            for held in written.result():
                self._release(held, 0.0, failed=False).add_done_callback(_ignore_failure)

    async def wait(self) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(self._following.next_at() - self._clock.monotonic()):
                await self._news.wait()

    # --- over ---

    async def done(self, held: Sequence[ClaimedItem]) -> None:
        if not held:
            return
        numbers = [int(one.id) for one in held]
        await self._file.write(lambda tx: inbox_sql.done(tx, numbers), lambda _: self._end(held))

    def _end(self, held: Sequence[ClaimedItem]) -> None:
        for one in held:
            self._following.lanes.free(_lane(one.arrival), int(one.id))
        self._news.set()

    async def release(self, held: ClaimedItem, *, after: float = 0.0, failed: bool = False) -> None:
        await self._release(held, after, failed=failed)

    def _release(self, held: ClaimedItem, after: float, *, failed: bool) -> asyncio.Future[Any]:
        number, lane = int(held.id), _lane(held.arrival)
        not_before = self._clock.now() + after if after > 0 else None
        until = self._clock.monotonic() + after if after > 0 else 0.0

        def apply(_: object) -> None:
            self._following.lanes.free(lane, number, WaitingItem(number, held.crashes, until))
            self._news.set()

        return self._file.write(lambda tx: inbox_sql.release(tx, number, not_before, failed=failed), apply)

    async def park(self, held: ClaimedItem, reason: str) -> None:
        number, source, now = int(held.id), held.arrival.source, self._clock.now()
        await self._file.write(
            lambda tx: inbox_sql.park(tx, number, source, now, reason), lambda _: self._end([held])
        )

    async def parked(self, source: InboxSource | None = None, *, limit: int = 100) -> list[ParkedItem]:
        found: list[ParkedItem] = await self._file.read(lambda tx: inbox_sql.parked(tx, source, limit))
        return found

    async def replay(self, source: InboxSource, key: str) -> bool:
        def apply(placed: list[PlacedItem]) -> bool:
            self._following.enter(placed)
            return bool(placed)

        replayed: bool = await self._file.write(lambda tx: inbox_sql.replay(tx, source, key), apply)
        return replayed

    async def drop(self, source: InboxSource, key: str) -> bool:
        dropped: bool = await self._file.write(lambda tx: inbox_sql.drop(tx, source, key))
        return dropped

    async def stats(self) -> InboxStats:
        stats: InboxStats = await self._file.read(inbox_sql.stats)
        return stats


def _lane(arrival: InboxItem) -> InboxLane:
    return (arrival.source, arrival.lane)


def _ignore_failure(released: "asyncio.Future[Any]") -> None:
    """What could not be given back is found by whoever opens the file next."""
    if not released.cancelled():
        released.exception()
