"""A process becomes the sender: crashed claims are settled, and the schedule is rebuilt from the file."""

import heapq
import json
import logging
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.model import BotId, Record, State
from tidegate.outbox.dispatcher import OutboxDispatcher
from tidegate.outbox.flood_control import WHOLE_BOT, StoredLimit, remember_call, remember_limit
from tidegate.outbox.lanes import URGENT, Entry
from tidegate.outbox.schedule import Schedule
from tidegate.outbox.transitions import after_crash
from tidegate.pacing.learned import LearnedSnapshot
from tidegate.stores.message_codec import CODEC_ERRORS, UnreadableBody, read_body
from tidegate.stores.sqlite import own_limits
from tidegate.stores.sqlite.file import Transaction
from tidegate.stores.sqlite.message_rows import (
    PRIORITIES,
    RECORD_COLUMNS,
    WAITING_COLUMNS,
    Buried,
    WaitingRow,
    bury_unreadable,
    record_of,
)
from tidegate.stores.sqlite.own_limits import StoredLimits
from tidegate.stores.sqlite.settle_sql import AnsweredCall, record_calls

log = logging.getLogger("tidegate.store")

ROWS_PER_LOAD: Final = 10_000  # messages read in one step


class SenderHistory(msgspec.Struct, gc=False):
    """The file's knowledge of the time before, in wall time."""

    clean: bool  # whether the last sender said that it ended
    aliases: list[Any]
    calls: list[AnsweredCall]
    limits: list[tuple[StoredLimit, float]]
    own_limits: dict[BotId, StoredLimits]
    pauses: list[Any]


class LoadedRows(msgspec.Struct, gc=False):
    """Some waiting messages, and those that were being sent when their sender died."""

    places: list[WaitingRow]
    last: int
    crashed: list[Record]  # messages that ended by this
    calls: list[AnsweredCall]  # those that may have been made
    unreadable: list[Buried]


def take_over(tx: Transaction, now: float) -> SenderHistory:
    """Become the sender. The journal is dropped: all rows are about to be read."""
    clean = tx.execute("SELECT value FROM facts WHERE name = 'clean'").fetchone()
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('clean', 0)")
    tx.execute("DELETE FROM journal")
    tx.execute("DELETE FROM answers")
    limits = tx.execute("SELECT bot, chat_id, kind, closed_for, learned, heard_at FROM limits")
    calls, all_read = _calls(tx, now)
    return SenderHistory(
        clean=all_read and (clean is None or bool(clean[0])),
        aliases=tx.execute("SELECT bot, old, new FROM aliases ORDER BY n").fetchall(),
        calls=calls,
        limits=[
            (StoredLimit(bot, chat, kind, closed_for, _learned(learned)), heard_at)
            for bot, chat, kind, closed_for, learned, heard_at in limits
        ],
        own_limits=own_limits.read(tx),
        pauses=tx.execute("SELECT bot, chat_id FROM pauses").fetchall(),
    )


def _calls(tx: Transaction, now: float) -> tuple[list[AnsweredCall], bool]:
    """Recent calls. Those of the future were in flight, or the clock was set back: they count as made now.

    False if some cannot be decoded: then the sender waits as after a crash.
    """
    calls: list[AnsweredCall] = []
    all_read = True
    for n, at, body in tx.execute("SELECT n, at, body FROM calls ORDER BY n").fetchall():
        try:
            found = msgspec.msgpack.decode(body, type=list[AnsweredCall])
        except CODEC_ERRORS as error:
            log.error("recent calls cannot be decoded (%s): waiting as after a crash", error)  # noqa: TRY400
            tx.execute("DELETE FROM calls WHERE n = ?", (n,))
            all_read = False
            continue
        if at > now:
            found = [msgspec.structs.replace(call, at=min(call.at, now)) for call in found]
            tx.execute("DELETE FROM calls WHERE n = ?", (n,))
            record_calls(tx, found)
        calls += found
    return calls, all_read


def hand_over(tx: Transaction) -> None:
    """Stop being the sender, with everything written."""
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('clean', 1)")


def load(tx: Transaction, after: int, now: float, kinds: dict[str, str]) -> LoadedRows:
    """The next waiting messages. One that was being sent may have arrived: its `on_unknown` decides."""
    rows = tx.execute(
        f"SELECT {WAITING_COLUMNS}, state FROM messages WHERE settled_at IS NULL AND seq > ?"
        " ORDER BY seq LIMIT ?",
        (after, ROWS_PER_LOAD),
    ).fetchall()
    loaded = LoadedRows([], rows[-1][0] if rows else after, [], [], [])
    for row in rows:
        place: WaitingRow | None = WaitingRow._make(row[:-1])
        if row[-1] == State.SENDING:
            place = _crash(tx, WaitingRow._make(row[:-1]), now, kinds, loaded)
        if place is not None:
            loaded.places.append(place)
    record_calls(tx, loaded.calls)
    return loaded


def settle_crashed(
    tx: Transaction, now: float, kinds: dict[str, str], seqs: Iterable[int] | None = None
) -> LoadedRows:
    """Settle messages that were being sent when their sender died: all of them, or those of these numbers.

    Only for a process that knows that nobody sends them.
    """
    among = "" if seqs is None else " AND seq IN (SELECT value FROM json_each(?))"
    rows = tx.execute(
        f"SELECT {WAITING_COLUMNS} FROM messages WHERE settled_at IS NULL AND state = 'sending'{among}"
        " ORDER BY seq",
        () if seqs is None else (json.dumps(list(seqs)),),
    ).fetchall()
    loaded = LoadedRows([], rows[-1][0] if rows else 0, [], [], [])
    for row in rows:
        place = _crash(tx, WaitingRow._make(row), now, kinds, loaded)
        if place is not None:
            loaded.places.append(place)
    record_calls(tx, loaded.calls)
    return loaded


def _crash(
    tx: Transaction, place: WaitingRow, now: float, kinds: dict[str, str], loaded: LoadedRows
) -> WaitingRow | None:
    ticket, body = tx.execute("SELECT id, body FROM messages WHERE seq = ?", (place.seq,)).fetchone()
    kind, paid = kinds[place.family], bool(place.paid)
    loaded.calls.append(AnsweredCall(now, place.bot, place.chat_id, kind, paid, place.cost))
    message, crashes = read_body(body, ticket, place.bot, place.chat_id), place.crashes + 1
    if isinstance(message, UnreadableBody):
        loaded.unreadable += bury_unreadable(tx, {place.seq: message}, now)
        return None
    step = after_crash(message, place.attempts, crashes)
    waits = step.state == State.QUEUED
    row = tx.execute(
        "UPDATE messages SET state = ?, crashes = ?, reason = ?, description = ?, retry_at = NULL,"
        f" settled_at = ? WHERE seq = ? RETURNING {RECORD_COLUMNS}",
        (step.state, crashes, step.reason, step.description, None if waits else now, place.seq),
    ).fetchone()
    tx.count(place.bot, State.SENDING, -1)
    tx.count(place.bot, message.priority if waits else step.state)
    if waits:
        return place._replace(crashes=crashes, retry_at=None)
    loaded.crashed.append(record_of(row, now))
    return None


def _learned(kept: bytes | None) -> LearnedSnapshot | None:
    """A learned limit that cannot be decoded is learned anew."""
    try:
        return None if kept is None else msgspec.msgpack.decode(kept, type=LearnedSnapshot)
    except CODEC_ERRORS:
        return None


CLOCK_ROUNDING: Final = 1e-6  # seconds; the time of the wall clock is a large number
LONGEST_RETRY: Final = 3600.0  # seconds; bounds the harm of a clock that was set back


class ScheduledRows:
    """The waiting rows as entries of the schedule, by row number, which is the order of arrival."""

    def __init__(self, schedule: Schedule, dispatcher: OutboxDispatcher, clock: Clock) -> None:
        self._schedule = schedule
        self._dispatcher = dispatcher
        self._clock = clock
        self._entries: dict[int, Entry] = {}
        self.last = 0  # the number up to which the file was read
        self._late: list[tuple[float, WaitingRow]] = []  # rows that became due before they were read
        self._read_up_to = 0.0  # arrival of the latest row that was read

    def __contains__(self, seq: int) -> bool:
        return seq in self._entries

    def get(self, seq: int) -> Entry | None:
        return self._entries.get(seq)

    def forget(self, seq: int) -> None:
        self._entries.pop(seq, None)

    @staticmethod
    def counted_as(entry: Entry) -> str:
        """The name under which a waiting entry is counted."""
        if entry.retrying:
            return "retry"
        return PRIORITIES[1] if entry.level == URGENT else PRIORITIES[entry.level]

    def enter(self, places: Iterable[WaitingRow]) -> None:
        """Add rows to the schedule, or let them replace those with the same number."""
        now = self._clock.monotonic()
        offset = self._clock.now() - now
        for place in places:
            self._enter(place, now, offset)

    def leave(self, seqs: Iterable[int]) -> None:
        """Remove rows that ended without being sent."""
        now = self._clock.monotonic()
        for seq in seqs:
            entry = self._entries.get(seq)
            if entry is not None and not entry.token:  # else its claim finds out that it has ended
                del self._entries[seq]
                self._schedule.remove(entry, now)

    def change_level(self, seqs: Iterable[int], level: int) -> None:
        """Move rows to the lines of another priority. One that is being sent returns to that line."""
        known = [seq for seq in seqs if seq in self._entries]
        entries = [self._entries[seq] for seq in known]
        moved = self._schedule.change_level(entries, level, self._clock.monotonic())
        self._entries.update(zip(known, moved, strict=True))

    def load(self, places: list[WaitingRow], last: int) -> None:
        """Add rows as they are read. A row that had to wait stands where the time it became due put it."""
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
        """Add the rest of the rows that became due before they were read."""
        self.enter([heapq.heappop(self._late)[1] for _ in range(len(self._late))])

    def remember(self, before: SenderHistory) -> SenderHistory:
        """Restore aliases, limits, calls and pauses. Times in the future count as now."""
        now, wall = self._clock.monotonic(), self._clock.now()
        for bot, old, new in before.aliases:
            self._dispatcher.remember_alias(bot, old, new)
        for bot, stored in before.own_limits.items():  # first: they are what the others are about
            full = {kind: now + until - wall for kind, until in stored.full_until.items() if until > wall}
            self._schedule.restore_limits(bot, stored.own, full)
        for limit, heard_at in before.limits:  # before the calls: they cool for as long as these say
            limit = msgspec.structs.replace(limit, chat=self._dispatcher.chat(limit.bot, limit.chat))  # noqa: PLW2901
            remember_limit(self._schedule, limit, now, max(0.0, wall - heard_at))
        self.remember_calls(before.calls)
        for bot, chat in before.pauses:
            self._schedule.pause(bot, None if chat == WHOLE_BOT else chat, paused=True, now=now)
        return before

    def remember_calls(self, calls: Iterable[AnsweredCall]) -> None:
        now, wall = self._clock.monotonic(), self._clock.now()
        for call in calls:
            at = min(now, now - (wall - call.at) + CLOCK_ROUNDING)
            chat = self._dispatcher.chat(call.bot, call.chat)
            remember_call(
                self._schedule, call.bot, chat, call.kind, paid=call.paid, cost=call.cost, at=at, now=now
            )

    def _enter(self, place: WaitingRow, now: float, offset: float) -> None:
        seq, bot, chat, family, priority, urgent, cost, paid, _, due, expires, retry_at, attempts, crashes = (
            place
        )
        lane = self._schedule.lane(bot, self._dispatcher.chat(bot, chat), family)
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
            if there.level != entry.level:
                [there] = self._schedule.change_level([there], entry.level, now)
                self._entries[seq] = there
            self._schedule.replace(there, entry, now)
            there.attempts, there.crashes, there.retrying = attempts, crashes, entry.retrying
