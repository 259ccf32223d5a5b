"""The inbox in the SQLite file, and the lanes in memory that follow it.

The file holds the items; which one is next, by numbers only, is in memory. One process at a time, the sender
of the file, has the inbox open and claims. Others accept, list, replay and drop without opening it, and the
sender follows them.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError
from tidegate.inbound.inbox import (
    DEDUP_SECONDS,
    ClaimedItem,
    Inbox,
    InboxItem,
    InboxSource,
    InboxStats,
    ParkedItem,
    full_error,
)
from tidegate.inbound.inbox_lanes import InboxLane, InboxLanes, WaitingItem, lane_of
from tidegate.leader_lease import UncontestedLeases
from tidegate.stores.group_commit import GroupCommit
from tidegate.stores.sqlite import inbox_sql
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.inbox_sql import FIRST_SEEN_KEY, AcceptedItems, IsNewFlags, PlacedItem

FOLLOW_INTERVAL: Final = 0.25  # seconds between two checks for changes by other processes
ITEMS_PER_COMMIT: Final = 500

_TakenItems = list[tuple[InboxLane, WaitingItem]]


class SqliteInbox(Inbox):
    """`file` is opened before it and closed after it."""

    def __init__(self, file: StoreFile, clock: Clock, *, poll: float = FOLLOW_INTERVAL) -> None:
        self.leases = UncontestedLeases()  # the process that has it open holds the sender lock
        self._file = file
        self._clock = clock
        self._changed = asyncio.Event()
        self._followed = FollowedLanes(file, clock, self._changed, poll=poll)
        self._forgotten_up_to = FIRST_SEEN_KEY
        self._accepts: GroupCommit[InboxItem, IsNewFlags] = GroupCommit(
            self._accept, file.is_last, ITEMS_PER_COMMIT
        )

    async def open(self) -> None:
        await self._file.write(inbox_sql.take_over)
        await self._followed.start()

    async def close(self) -> None:
        self._followed.stop()
        with suppress(ClosedError, StoreError):  # the items of a cancelled claim go back first
            await self._file.read(lambda _: None)

    async def accept(self, items: Sequence[InboxItem]) -> list[bool]:
        if not items:
            return []
        answer = await self._accepts.ask(items)
        if answer is None:
            raise full_error(items)
        return answer

    def _accept(self, calls: list[Sequence[InboxItem]]) -> "asyncio.Future[list[IsNewFlags]]":
        now, after = self._clock.now(), self._forgotten_up_to

        def apply(accepted: AcceptedItems) -> list[IsNewFlags]:
            self._forgotten_up_to = accepted.forgotten_up_to
            self._followed.enter(accepted.placed)
            return accepted.answers

        return self._file.write(lambda tx: inbox_sql.accept(tx, calls, now, after), apply)

    async def claim(
        self, sources: Collection[InboxSource], limit: int, *, suspects: int
    ) -> list[ClaimedItem]:
        self._changed.clear()
        await self._followed.catch_up()
        taken = self._followed.lanes.take(sources, limit, suspects, self._clock.monotonic())
        if not taken:
            return []
        numbers = [waiting.number for _, waiting in taken]
        written = self._file.write(
            lambda tx: inbox_sql.claim(tx, numbers), lambda rows: self._claimed(taken, rows)
        )
        try:
            claimed: list[ClaimedItem] = await asyncio.shield(written)
        except asyncio.CancelledError:
            written.add_done_callback(lambda _: self._undo_claim(written, taken))
            raise
        except Exception:
            self._put_back(taken)
            raise
        return claimed

    def _claimed(self, taken: _TakenItems, rows: dict[int, Any]) -> list[ClaimedItem]:
        claimed = []
        for (source, lane), waiting in taken:
            row = rows.get(waiting.number)
            if row is None:  # another process has removed it
                self._followed.lanes.free((source, lane), waiting.number)
                self._changed.set()
                continue
            key, arrived_at, attempts, crashes, body = row
            item = InboxItem(source, key, lane, body)
            claimed.append(ClaimedItem(str(waiting.number), item, arrived_at, attempts, crashes))
        return claimed

    def _put_back(self, taken: _TakenItems) -> None:
        for lane, waiting in taken:
            self._followed.lanes.free(lane, waiting.number, waiting)
        self._changed.set()

    def _undo_claim(self, written: "asyncio.Future[list[ClaimedItem]]", taken: _TakenItems) -> None:
        """The caller was cancelled while the claim was written."""
        if written.cancelled() or written.exception() is not None:
            self._put_back(taken)
            return
        with suppress(ClosedError):
            for claimed in written.result():
                self._release(claimed, 0.0, failed=False).add_done_callback(_ignore_failure)

    async def wait(self) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(self._followed.next_at() - self._clock.monotonic()):
                await self._changed.wait()

    async def done(self, claimed: Sequence[ClaimedItem]) -> None:
        if not claimed:
            return
        numbers = [int(one.id) for one in claimed]
        await self._file.write(lambda tx: inbox_sql.done(tx, numbers), lambda _: self._free(claimed))

    def _free(self, claimed: Sequence[ClaimedItem]) -> None:
        for one in claimed:
            self._followed.lanes.free(lane_of(one.item), int(one.id))
        self._changed.set()

    async def release(self, claimed: ClaimedItem, *, after: float = 0.0, failed: bool = False) -> None:
        await self._release(claimed, after, failed=failed)

    def _release(self, claimed: ClaimedItem, after: float, *, failed: bool) -> asyncio.Future[Any]:
        number, lane = int(claimed.id), lane_of(claimed.item)
        not_before = self._clock.now() + after if after > 0 else None
        until = self._clock.monotonic() + after if after > 0 else 0.0

        def apply(_: object) -> None:
            self._followed.lanes.free(lane, number, WaitingItem(number, claimed.crashes, until))
            self._changed.set()

        return self._file.write(lambda tx: inbox_sql.release(tx, number, not_before, failed=failed), apply)

    async def park(self, claimed: ClaimedItem, reason: str) -> None:
        number, source, now = int(claimed.id), claimed.item.source, self._clock.now()
        await self._file.write(
            lambda tx: inbox_sql.park(tx, number, source, now, reason), lambda _: self._free([claimed])
        )

    async def parked(self, source: InboxSource | None = None, *, limit: int = 100) -> list[ParkedItem]:
        return await self._file.read(lambda tx: inbox_sql.parked(tx, source, limit))

    async def replay(self, source: InboxSource, key: str) -> bool:
        def apply(placed: list[PlacedItem]) -> bool:
            self._followed.enter(placed)
            return bool(placed)

        return await self._file.write(lambda tx: inbox_sql.replay(tx, source, key), apply)

    async def drop(self, source: InboxSource, key: str) -> bool:
        return await self._file.write(lambda tx: inbox_sql.drop(tx, source, key))

    async def waiting(self, source: InboxSource) -> int:
        return await self._file.read(lambda tx: inbox_sql.waiting_of(tx, source))

    async def lane_length(self, item: InboxItem) -> int:
        return await self._file.read(lambda tx: inbox_sql.lane_length(tx, item))

    async def stats(self) -> InboxStats:
        return await self._file.read(inbox_sql.stats)


def _ignore_failure(released: "asyncio.Future[Any]") -> None:
    """An item that could not be given back is found when the inbox is opened next."""
    if not released.cancelled():
        released.exception()


class FollowedLanes:
    """The lanes in memory, kept in step with the file: with this process, and with what others write.

    `changed` is set when something was added to the lanes.
    """

    def __init__(self, file: StoreFile, clock: Clock, changed: asyncio.Event, *, poll: float) -> None:
        self.lanes = InboxLanes()
        self._file = file
        self._clock = clock
        self._changed = changed
        self._poll = poll
        self._is_running = False
        self._last = 0  # the number up to which all waiting items are in the lanes
        self._is_behind = False  # items after it were accepted elsewhere
        self._version = 0  # of the file, when it was last checked
        self._check_at = 0.0

    async def start(self) -> None:
        self.lanes, self._last, self._is_running = InboxLanes(), 0, True
        self._version = await self._file.changed()
        await self._load()

    def stop(self) -> None:
        self.lanes, self._is_running, self._is_behind = InboxLanes(), False, False

    def enter(self, placed: Sequence[PlacedItem]) -> None:
        """Add items written by this process. Those that others wrote before them have to be loaded first."""
        if not placed or not self._is_running:
            return
        if placed[0].number == self._last + 1:
            self._add(placed)
            self._last = placed[-1].number
        else:
            self._is_behind = True
        self._changed.set()

    async def catch_up(self) -> None:
        """Load what other processes accepted or replayed."""
        if self._is_behind:
            await self._load()
        if self._clock.monotonic() < self._check_at:
            return
        self._check_at = self._clock.monotonic() + self._poll
        version = await self._file.changed()
        if version != self._version and self._is_running:
            await self._load()
            self._version = version

    def next_at(self) -> float:
        """Return when there may be something new, unless `changed` is set before."""
        next_attempt = self.lanes.next_at()
        return self._check_at if next_attempt is None else min(next_attempt, self._check_at)

    async def _load(self) -> None:
        while await self._file.read(lambda tx: inbox_sql.load(tx, self._last), self._loaded):
            pass

    def _loaded(self, loaded: inbox_sql.LoadedItems) -> bool:
        self._add([one for one in loaded.placed if one.number > self._last])
        self._last = max(self._last, loaded.upto)
        self._is_behind = loaded.more
        if loaded.placed:
            self._changed.set()
        return loaded.more

    def _add(self, placed: Sequence[PlacedItem]) -> None:
        now, wall = self._clock.monotonic(), self._clock.now()
        for number, source, lane, crashes, not_before in placed:
            # Bounded, as the wall clock may have been set back.
            after = 0.0 if not_before is None else min(not_before - wall, DEDUP_SECONDS)
            self.lanes.add((source, lane), WaitingItem(number, crashes, now + after if after > 0 else 0.0))
