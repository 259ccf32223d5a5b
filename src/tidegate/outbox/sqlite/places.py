"""The messages that wait, as the schedule knows them: entries by the number of their row."""

import heapq
from collections.abc import Iterable
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.outbox.carryover import WHOLE_BOT, remember_call, remember_limit
from tidegate.outbox.dispatch import Dispatcher
from tidegate.outbox.lanes import URGENT, Entry
from tidegate.outbox.schedule import Schedule
from tidegate.outbox.sqlite.recovery import Before
from tidegate.outbox.sqlite.rows import PRIORITIES, Place
from tidegate.outbox.sqlite.settling import Call

ROUNDING: Final = 1e-6  # seconds; the time of the wall clock is a large number
LONGEST_RETRY: Final = 3600.0  # seconds; a clock that was set back must not hold a message for longer


class Places:
    """Rows come in order of their numbers, which is the order of their lines."""

    def __init__(self, schedule: Schedule, dispatch: Dispatcher, clock: Clock) -> None:
        self._schedule = schedule
        self._dispatch = dispatch
        self._clock = clock
        self._entries: dict[int, Entry] = {}
        self.last = 0  # the number up to which the file was read
        self._late: list[tuple[float, Place]] = []  # whose time came while they were in the file
        self._read_up_to = 0.0  # when the latest of those read came

    def __contains__(self, seq: int) -> bool:
        return seq in self._entries

    def get(self, seq: int) -> Entry | None:
        return self._entries.get(seq)

    def forget(self, seq: int) -> None:
        self._entries.pop(seq, None)

    @staticmethod
    def counted_as(entry: Entry) -> str:
        """Under which name a waiting entry is counted."""
        if entry.retrying:
            return "retry"
        return PRIORITIES[1] if entry.level == URGENT else PRIORITIES[entry.level]

    def enter(self, places: Iterable[Place]) -> None:
        """They come, or take the places of those that are there."""
        now = self._clock.monotonic()
        offset = self._clock.now() - now
        for place in places:
            self._enter(place, now, offset)

    def leave(self, seqs: Iterable[int]) -> None:
        """They have ended without being sent."""
        now = self._clock.monotonic()
        for seq in seqs:
            entry = self._entries.get(seq)
            if entry is not None and not entry.token:  # else its claim finds out that it has ended
                del self._entries[seq]
                self._schedule.remove(entry, now)

    def load(self, places: list[Place], last: int) -> None:
        """Some of what the file holds. What was to wait for its time stands where that time put it."""
        now = self._clock.monotonic()
        offset = self._clock.now() - now
        for place in places:
            due = place.created_at if place.not_before is None else place.not_before
            self._read_up_to = max(self._read_up_to, min(place.created_at, due))
            if place.not_before is not None and due <= now + offset:
                heapq.heappush(self._late, (max(due, self._read_up_to), place))
                continue
            while self._late and self._late[0][0] <= self._read_up_to:
                self._enter(heapq.heappop(self._late)[1], now, offset)
            self._enter(place, now, offset)
        self.last = max(self.last, last)

    def load_late(self) -> None:
        """The rest of those whose time came while they were in the file."""
        self.enter([heapq.heappop(self._late)[1] for _ in range(len(self._late))])

    def remember(self, before: Before) -> Before:
        """What the schedule must know of the time before. Times in the future count as now."""
        now, wall = self._clock.monotonic(), self._clock.now()
        for bot, old, new in before.aliases:
            self._dispatch.remember_alias(bot, old, new)
        for limit, heard_at in before.limits:  # before the calls: they cool for as long as these say
            limit = msgspec.structs.replace(limit, chat=self._dispatch.chat(limit.bot, limit.chat))  # noqa: PLW2901
            remember_limit(self._schedule, limit, now, max(0.0, wall - heard_at))
        self.remember_calls(before.calls)
        for bot, chat in before.pauses:
            self._schedule.pause(bot, None if chat == WHOLE_BOT else chat, paused=True, now=now)
        return before

    def remember_calls(self, calls: Iterable[Call]) -> None:
        now, wall = self._clock.monotonic(), self._clock.now()
        for call in calls:
            at = min(now, now - (wall - call.at) + ROUNDING)
            chat = self._dispatch.chat(call.bot, call.chat)
            remember_call(
                self._schedule, call.bot, chat, call.kind, paid=call.paid, cost=call.cost, at=at, now=now
            )

    def _enter(self, place: Place, now: float, offset: float) -> None:
        seq, bot, chat, family, priority, urgent, cost, paid, _, due, expires, retry_at, attempts, crashes = (
            place
        )
        lane = self._schedule.lane(bot, self._dispatch.chat(bot, chat), family)
        entry = Entry(seq, lane, URGENT if urgent else priority, cost)
        entry.paid = bool(paid)
        entry.attempts, entry.crashes = attempts, crashes
        if expires is not None:
            entry.expires = expires - offset
        if retry_at is not None:
            entry.retrying = True
            entry.retry_at = min(retry_at - offset, now + LONGEST_RETRY)
        there = self._entries.get(seq)
        if there is None:
            self._entries[seq] = entry
            self._schedule.add(entry, now, 0.0 if due is None else due - offset)
        elif not there.token:
            self._schedule.replace(there, entry)
            there.attempts, there.crashes, there.retrying = attempts, crashes, entry.retrying
