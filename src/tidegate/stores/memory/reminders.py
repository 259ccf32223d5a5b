"""Reminders in memory, for tests, simulations and bots that may forget."""

import asyncio
import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError
from tidegate.model import BotId, ChatId
from tidegate.reminders.port import (
    ADD_AT_ONCE,
    Addition,
    DueBatch,
    FirstState,
    ReminderCounts,
    ReminderStore,
    Shard,
)
from tidegate.reminders.reminder import NewReminder, Reminder

FEWEST_STALE: Final = 1_000  # entries of a heap; fewer are not worth a sweep

_Entry = tuple[float, int]  # when a reminder is due, and its id


class MemoryReminders(ReminderStore):
    """One writer at a time: a claim keeps others waiting until its batch is closed."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._reminders: dict[int, Reminder] = {}
        self._ids: list[int] = []  # ascending
        self._users: defaultdict[int, list[int]] = defaultdict(list)  # ids of each, ascending
        self._keys: dict[tuple[BotId, str], int] = {}
        self._due: dict[int, float] = {}  # of active ones: next_at, or the end of the lease
        # By handler. An entry that `_due` contradicts is stale; some are there twice.
        self._heaps: defaultdict[str | None, list[_Entry]] = defaultdict(list)
        self._last_id = 0
        self._writer = asyncio.Lock()
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        """Wait for the batch that is open. What is stored stays until this object is gone."""
        self._is_open = False
        async with self._writer:
            pass

    async def add(self, reminders: Sequence[NewReminder], first: FirstState) -> list[Addition]:
        if len(reminders) > ADD_AT_ONCE:
            raise BadInputError(f"{len(reminders):,} reminders at once: add at most {ADD_AT_ONCE:,}")
        async with self._writing():
            additions: list[Addition] = []
            given: dict[tuple[BotId, str], Reminder] = {}
            last_id = self._last_id
            for new in reminders:
                old = None
                if new.key is not None:
                    place = (new.bot, new.key)
                    old = given.get(place) or self._reminders.get(self._keys.get(place, 0))
                last_id += old is None
                one = first(new, last_id if old is None else old.id, old)
                additions.append(Addition(one, old))
                if new.key is not None:
                    given[new.bot, new.key] = one
            self._last_id = last_id
            for addition in additions:
                if not addition.is_unchanged:
                    self._put(addition.reminder)
        return additions

    async def get(self, ids: Iterable[int]) -> list[Reminder]:
        self._check_open()
        return [self._reminders[one] for one in sorted(set(ids)) if one in self._reminders]

    async def find(
        self,
        *,
        bot: BotId | None = None,
        user_id: int | None = None,
        chat_id: ChatId | None = None,
        key: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[Reminder]:
        self._check_open()
        if bot is not None and key is not None:
            named = self._keys.get((bot, key))
            ids = [] if named is None else [named]
        else:
            ids = self._ids if user_id is None else self._users.get(user_id, [])
        found: list[Reminder] = []
        for number in range(bisect_right(ids, after), len(ids)):
            one = self._reminders[ids[number]]
            if (
                (bot is None or one.bot == bot)
                and (user_id is None or one.user_id == user_id)
                and (chat_id is None or one.chat_id == chat_id)
                and (key is None or one.key == key)
            ):
                found.append(one)
                if len(found) == limit:
                    break
        return found

    async def upcoming(self, *, bot: BotId | None = None, limit: int = 100) -> list[Reminder]:
        self._check_open()
        entries = ((at, one) for one, at in self._due.items() if bot in {None, self._reminders[one].bot})
        return [self._reminders[one] for _, one in heapq.nsmallest(limit, entries)]

    async def change(self, reminder_id: int, change: Callable[[Reminder], Reminder]) -> Reminder | None:
        async with self._writing():
            old = self._reminders.get(reminder_id)
            if old is None:
                return None
            new = change(old)
            due = self._due.get(reminder_id)
            self._put(new)
            if due is not None and (new.next_at, new.paused) == (old.next_at, old.paused):
                self._set_due(new, due)  # whoever has leased it keeps it
            return new

    async def remove(self, ids: Iterable[int]) -> list[Reminder]:
        async with self._writing():
            removed = [self._reminders.pop(one) for one in sorted(set(ids)) if one in self._reminders]
            for one in removed:
                self._forget(one)
                del self._ids[bisect_left(self._ids, one.id)]
                self._due.pop(one.id, None)
            return removed

    async def rewrite(self) -> None:
        self._check_open()

    @asynccontextmanager
    async def claim_due(
        self, before: float, limit: int, shard: Shard | None = None
    ) -> AsyncIterator[DueBatch]:
        async with self._writing():
            entries = self._pop(None, before, limit, shard)
            batch = _Batch([self._reminders[one] for _, one in entries])
            try:
                yield batch
                for one in batch.advanced:
                    self._put(one)
            finally:
                self._push(None, [entry for entry in entries if self._is_valid(None, entry)])

    async def lease_handled(
        self, handlers: Iterable[str], before: float, seconds: float, limit: int
    ) -> list[Reminder]:
        async with self._writing():
            now = self._clock.now()
            entries = [entry for name in set(handlers) for entry in self._pop(name, before, limit, now=now)]
            entries.sort()
            reminders = [self._reminders[one] for _, one in entries]
            for one in reminders[:limit]:
                self._set_due(one, now + seconds)
            for entry, one in zip(entries[limit:], reminders[limit:], strict=True):
                self._push(one.handler, [entry])
            return reminders[:limit]

    async def next_due(self, handlers: Iterable[str] = (), shard: Shard | None = None) -> float | None:
        self._check_open()
        found: list[float] = []
        for name in (None, *handlers):
            entries = self._pop(name, math.inf, 1, shard if name is None else None)
            self._push(name, entries)
            found += (at for at, _ in entries)
        return min(found, default=None)

    async def counts(self, now: float) -> ReminderCounts:
        self._check_open()
        ended = sum(one.has_ended for one in self._reminders.values())
        active = len(self._due)
        due = sum(at <= now for at in self._due.values())
        return ReminderCounts(active, len(self._reminders) - active - ended, ended, due)

    async def due_counts(self, start: float, step: float, steps: int, bot: BotId | None = None) -> list[int]:
        self._check_open()
        counts = [0] * steps
        for one, at in self._due.items():
            if start <= at < start + step * steps and bot in {None, self._reminders[one].bot}:
                counts[min(int((at - start) / step), steps - 1)] += 1
        return counts

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError("the reminders are not open")

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        self._check_open()
        async with self._writer:
            self._check_open()
            yield

    def _put(self, one: Reminder) -> None:
        old = self._reminders.get(one.id)
        if old is None or (old.user_id, old.bot, old.key) != (one.user_id, one.bot, one.key):
            if old is None:
                insort(self._ids, one.id)
            else:
                self._forget(old)
            insort(self._users[one.user_id], one.id)
            if one.key is not None:
                self._keys[one.bot, one.key] = one.id
        self._reminders[one.id] = one
        self._set_due(one, None if one.paused else one.next_at)

    def _forget(self, one: Reminder) -> None:
        """Remove it from what it is found by."""
        ids = self._users[one.user_id]
        ids.remove(one.id)
        if not ids:
            del self._users[one.user_id]
        if one.key is not None:
            del self._keys[one.bot, one.key]

    def _set_due(self, one: Reminder, at: float | None) -> None:
        if at is None:
            self._due.pop(one.id, None)
            return
        self._due[one.id] = at
        self._push(one.handler, [(at, one.id)])

    def _push(self, handler: str | None, entries: Iterable[_Entry]) -> None:
        heap = self._heaps[handler]
        for entry in entries:
            heapq.heappush(heap, entry)
        if len(heap) > 2 * len(self._due) + FEWEST_STALE:
            heap[:] = {entry for entry in heap if self._is_valid(handler, entry)}
            heapq.heapify(heap)

    def _is_valid(self, handler: str | None, entry: _Entry) -> bool:
        at, one = entry
        return self._due.get(one) == at and self._reminders[one].handler == handler

    def _pop(
        self,
        handler: str | None,
        before: float,
        limit: int,
        shard: Shard | None = None,
        now: float = math.inf,
    ) -> list[_Entry]:
        """Take the entries that are due first from a heap, each once; those that are leased at `now` stay."""
        heap = self._heaps[handler]
        taken: dict[_Entry, None] = {}
        passed: dict[_Entry, None] = {}
        while heap and heap[0][0] < before and len(taken) < limit:
            entry = heapq.heappop(heap)
            if not self._is_valid(handler, entry):
                continue
            at, one = entry
            reminder = self._reminders[one]
            is_leased = at > now and at != reminder.next_at
            is_ours = shard is None or reminder.user_id % shard.of == shard.number
            (taken if is_ours and not is_leased else passed)[entry] = None
        self._push(handler, passed)
        return list(taken)


class _Batch:
    def __init__(self, reminders: Sequence[Reminder]) -> None:
        self.reminders = reminders
        self.advanced: list[Reminder] = []

    async def advance(self, reminders: Sequence[Reminder]) -> None:
        self.advanced += reminders
