"""The operator's verbs on messages in memory, and the table of messages that they work on."""

import heapq
import itertools
import math
import operator
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.events import Ended, LimitsSet
from tidegate.model import BotId, BotLimits, ChatId, Message, Priority, Rate, Record, State, TicketId, Why
from tidegate.outbox.call_counts import CallCounts
from tidegate.outbox.dispatcher import OutboxDispatcher, SettledWaiters
from tidegate.outbox.lanes import HIGH, LOW, NEVER, NORMAL, URGENT, Entry
from tidegate.outbox.letter_groups import grouped
from tidegate.outbox.limit_states import limits_in
from tidegate.outbox.port import (
    LetterGroup,
    LimitState,
    OutboxOperator,
    OutboxStats,
    RecordPage,
    stats_of_all,
    stats_of_bots,
)
from tidegate.outbox.reasons import explain, facts_of
from tidegate.outbox.schedule import Schedule
from tidegate.outbox.transitions import DEAD_LETTER_STATES, UNSETTLED_STATES, NextState
from tidegate.pacing.rules import check_limits, cost_of, family_of

WAITING_STATES: Final = frozenset({State.QUEUED, State.RETRY})
OUTDATED_AGES_KEPT: Final = 1_000  # items, before they are removed together
LEVELS: Final = {Priority.HIGH: HIGH, Priority.NORMAL: NORMAL, Priority.LOW: LOW}


class StoredMessage(msgspec.Struct, eq=False):
    """A message with its entry in the schedule."""

    message: Message
    entry: Entry
    created_at: float
    state: State = State.QUEUED
    settled_at: float | None = None
    reason: str | None = None
    description: str | None = None
    result: object = None
    since: float = 0.0  # from when it may go: the later of its put or replay and its `not_before`

    def waits(self) -> bool:
        """Return whether it is neither being sent nor just granted."""
        return self.state in {State.QUEUED, State.RETRY} and not self.entry.token

    def record(self) -> Record:
        return Record(
            message=self.message,
            state=self.state,
            created_at=self.created_at,
            attempts=self.entry.attempts,
            crashes=self.entry.crashes,
            settled_at=self.settled_at,
            reason=self.reason,
            description=self.description,
            result=self.result,
        )


class WaitingAges:
    """The messages of one bot that wait, by the time from which they may go. Outdated items are skipped."""

    def __init__(self, messages: Mapping[TicketId, StoredMessage]) -> None:
        self._messages = messages
        self._heap: list[tuple[float, TicketId]] = []

    def add(self, stored: StoredMessage, unsettled: int) -> None:
        """Add a message that waits (anew). `unsettled`: how many of its bot have not ended."""
        if len(self._heap) > 2 * unsettled + OUTDATED_AGES_KEPT:
            self._heap = [item for item in set(self._heap) if self._still_waits(*item)]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (stored.since, stored.message.id))

    def first(self) -> float | None:
        """The earliest of these times, which may be in the future; None if no message waits."""
        while self._heap and not self._still_waits(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _still_waits(self, since: float, ticket: TicketId) -> bool:
        stored = self._messages.get(ticket)
        return stored is not None and stored.state in WAITING_STATES and stored.since == since


class MemoryOperator(OutboxOperator):
    """The table of messages, with the verbs of operators. Keeps what has ended for `keep` seconds."""

    def __init__(
        self,
        schedule: Schedule,
        dispatcher: OutboxDispatcher,
        clock: Clock,
        *,
        keep: float,
    ) -> None:
        self.schedule = schedule
        self._dispatcher = dispatcher
        self._calls = CallCounts(dispatcher.events)
        self._clock = clock
        self._keep = keep
        self._messages: dict[TicketId, StoredMessage] = {}
        self._letters: dict[TicketId, None] = {}  # dead and parked, in order
        self._dedup: dict[tuple[BotId, str], tuple[TicketId, float]] = {}  # and until when
        self._coalesce: dict[tuple[BotId, ChatId, str], TicketId] = {}
        self._forget: list[tuple[float, TicketId]] = []
        self._counts: Counter[tuple[BotId, str]] = Counter()
        self._ages: dict[BotId, WaitingAges] = {}
        self._unsettled: Counter[BotId] = Counter()
        self._waiters = SettledWaiters(self._left)
        self.pauses: set[tuple[BotId, ChatId | None]] = set()  # until they are resumed

    async def cancel(self, ids: Iterable[TicketId]) -> int:
        now = self._wake()
        cancelled = 0
        for stored in self._known(ids):
            if stored.waits():
                self.schedule.remove(stored.entry, now)
                self._end(stored, NextState(State.CANCELLED, stored.entry.attempts))
                cancelled += 1
        self._dispatcher.stir()
        return cancelled

    async def reprioritize(self, ids: Iterable[TicketId], priority: Priority) -> int:
        now = self._wake()
        moving = [one for one in self._known(ids) if one.waits() and not one.message.urgent]
        entries = self.schedule.change_level([one.entry for one in moving], LEVELS[priority], now)
        for stored, entry in zip(moving, entries, strict=True):
            self._count(stored, -1)
            stored.entry, stored.message = entry, msgspec.structs.replace(stored.message, priority=priority)
            self._count(stored, +1)
        self._dispatcher.stir()
        return len(moving)

    async def pause(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        self._pause(bot, chat_id, paused=True)

    async def resume(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        self._pause(bot, chat_id, paused=False)
        self._dispatcher.stir()

    def _pause(self, bot: BotId, chat_id: ChatId | None, *, paused: bool) -> None:
        chat = None if chat_id is None else self._dispatcher.chat(bot, chat_id)
        self.schedule.pause(bot, chat, paused=paused, now=self._clock.monotonic())
        (self.pauses.add if paused else self.pauses.discard)((bot, chat))

    async def find(self, ticket: TicketId) -> Record | None:
        self._wake()
        stored = self._messages.get(ticket)
        return stored.record() if stored is not None else None

    async def ids(self, start: str, end: str = "", *, limit: int = 100) -> list[TicketId]:
        self._wake()
        found = sorted(one for one in self._messages if one.startswith(start) and one.endswith(end))
        return found[:limit]

    async def find_by_key(self, bot: BotId, dedup_key: str) -> TicketId | None:
        self._wake()
        ticket, _ = self._dedup.get((bot, dedup_key), (None, 0.0))
        return ticket if ticket in self._messages else None

    async def settled(self, ticket: TicketId) -> Record:
        record = await self.find(ticket)
        if record is None:
            raise LookupError(f"no message {ticket} is known: it was never put, or ended too long ago")
        if record.state not in UNSETTLED_STATES:
            return record
        ended = self._waiters.end_of(ticket)
        self._dispatcher.arm()
        return await ended

    async def why(self, ticket: TicketId) -> Why | None:
        now = self._wake()
        stored = self._messages.get(ticket)
        if stored is None:
            return None
        due = stored.message.not_before
        until_due = max(0.0, due - self._clock.now()) if due is not None else 0.0
        return explain(facts_of(stored.entry, stored.state, until_due, now))

    async def drained(self, bot: BotId | None = None) -> None:
        self._wake()
        drained = self._waiters.end_of_all(bot)
        self._dispatcher.arm()
        await drained

    def _left(self, bot: BotId | None) -> int:
        return self._unsettled[bot] if bot is not None else self._unsettled.total()

    async def dead(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        reason: str | None = None,
        states: frozenset[State] = DEAD_LETTER_STATES,
        limit: int = 100,
    ) -> list[Record]:
        letters = (
            self._messages[ticket] for ticket in self._letters if self._messages[ticket].state in states
        )
        found = _matching(letters, bot, chat_id, reason)
        return [stored.record() for stored in itertools.islice(found, limit)]

    async def records(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        states: frozenset[State] = frozenset(State),
        reason: str | None = None,
        before: float | None = None,
        limit: int = 100,
    ) -> list[Record]:
        self._wake()
        stored = (one for one in self._messages.values() if one.state in states)
        found = (
            one
            for one in _matching(stored, bot, chat_id, reason)
            if before is None or (one.settled_at or one.created_at) < before
        )
        return [one.record() for one in itertools.islice(found, limit)]

    async def record_page(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        states: frozenset[State] = frozenset(State),
        reason: str | None = None,
        cursor: str = "",
        limit: int = 100,
    ) -> RecordPage:
        self._wake()
        after, place = _place_of(cursor), _place_of_letter if states <= DEAD_LETTER_STATES else _place
        stored = (one for one in self._messages.values() if one.state in states and place(one) > after)
        found = heapq.nsmallest(limit + 1, _matching(stored, bot, chat_id, reason), key=place)
        more = "{!r}_{}".format(*place(found[limit - 1])) if len(found) > limit else ""
        return RecordPage([one.record() for one in found[:limit]], more)

    async def letters_by_reason(
        self, bot: BotId | None = None, ended_by: float | None = None
    ) -> list[LetterGroup]:
        letters = (self._messages[ticket] for ticket in self._letters)
        return grouped(
            LetterGroup(
                bot=one.message.bot,
                state=one.state,
                reason=one.reason,
                count=1,
                first_at=one.settled_at or one.created_at,
                last_at=one.settled_at or one.created_at,
                latest=one.message.id,
            )
            for one in _matching(letters, bot, None, None)
            if ended_by is None or (one.settled_at or one.created_at) <= ended_by
        )

    async def tally(self, bot: BotId, dedup_prefix: str) -> dict[tuple[State, str | None], int]:
        self._wake()
        return Counter(
            (stored.state, stored.reason)
            for stored in self._messages.values()
            if stored.message.bot == bot and (stored.message.dedup_key or "").startswith(dedup_prefix)
        )

    async def keyed(
        self, bot: BotId, dedup_prefix: str, states: frozenset[State] = frozenset(State)
    ) -> AsyncIterator[TicketId]:
        self._wake()
        ours = (one for one in list(self._messages.values()) if one.message.bot == bot)
        for stored in ours:
            if stored.state in states and (stored.message.dedup_key or "").startswith(dedup_prefix):
                yield stored.message.id

    async def keyed_records(
        self,
        bot: BotId,
        dedup_prefix: str,
        states: frozenset[State],
        *,
        cursor: str = "",
        limit: int = 100,
    ) -> RecordPage:
        self._wake()
        if not cursor.startswith(dedup_prefix) and cursor:
            raise BadInputError("the cursor is not one of this list")
        ours = (
            (key, stored)
            for stored in self._messages.values()
            if stored.message.bot == bot
            and stored.state in states
            and (key := stored.message.dedup_key or "").startswith(dedup_prefix)
            and key > cursor
        )
        found = heapq.nsmallest(limit + 1, ours, key=operator.itemgetter(0))
        more = found[limit - 1][0] if len(found) > limit else ""
        return RecordPage([stored.record() for _, stored in found[:limit]], more)

    async def replay(self, ids: Iterable[TicketId]) -> int:
        now = self._wake()
        offset = self._clock.now() - now
        replayed = 0
        for stored in self._known(ids):
            if stored.message.id in self._letters:
                del self._letters[stored.message.id]
                stored.entry = self._entry(stored.message, offset)
                stored.since = now + offset
                stored.settled_at = stored.reason = stored.description = None
                self._move(stored, State.QUEUED)
                self._unsettled[stored.message.bot] += 1
                self.schedule.add(stored.entry, now)
                replayed += 1
        self._dispatcher.stir()
        return replayed

    async def drop(self, ids: Iterable[TicketId]) -> int:
        dropped = 0
        for stored in self._known(ids):
            if stored.message.id in self._letters:
                del self._letters[stored.message.id]
                self._count(stored, -1)
                stored.state = State.CANCELLED
                self._drop_record(stored.message.id)
                dropped += 1
        return dropped

    async def forget(self, chat_id: ChatId, bot: BotId | None = None) -> int:
        theirs = [stored.message.id for stored in _matching(self._messages.values(), bot, chat_id, None)]
        await self.cancel(theirs)
        await self.drop(theirs)
        for ticket in theirs:
            self._drop_record(ticket)
        return sum(ticket not in self._messages for ticket in theirs)

    def _known(self, ids: Iterable[TicketId]) -> list[StoredMessage]:
        return [self._messages[ticket] for ticket in dict.fromkeys(ids) if ticket in self._messages]

    async def learned(self) -> dict[tuple[BotId, ChatId | None], Rate]:
        return self.schedule.learned()

    async def limits(self, *, chats: bool = True) -> list[LimitState]:
        return limits_in(self.schedule, self._wake(), chats=chats)

    async def open_limits(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        chat = None if chat_id is None else self._dispatcher.chat(bot, chat_id)
        self.schedule.open(bot, chat, self._clock.monotonic())
        self._dispatcher.stir()

    async def own_limits(self) -> dict[BotId, BotLimits]:
        return self.schedule.own_limits

    async def set_limits(self, bot: BotId, limits: BotLimits) -> None:
        before = self.schedule.bot(bot).own
        self.schedule.set_limits(bot, check_limits(limits), self._wake())
        if limits != before:
            self._dispatcher.events.publish(LimitsSet(bot, limits, before))
        self._dispatcher.stir()

    async def stats(self) -> OutboxStats:
        self._wake()
        uncertain, urgent = self._dispatcher.uncertain, self.schedule.urgent_in_debt
        return stats_of_all(self._all_counts(), self._oldest(), uncertain=uncertain, urgent=urgent)

    async def stats_by_bot(self) -> dict[BotId, OutboxStats]:
        self._wake()
        return stats_of_bots(self._all_counts(), self._oldest())

    def _all_counts(self) -> Counter[tuple[BotId, str]]:
        refused = Counter({(bot, "refused"): count for bot, count in self._dispatcher.refused.items()})
        return self._counts + self._calls.unstored + refused

    def _oldest(self) -> dict[BotId, float]:
        """Since when the oldest message of each bot may go that waits."""
        now = self._clock.now()
        found = {bot: ages.first() for bot, ages in self._ages.items()}
        return {bot: since for bot, since in found.items() if since is not None and since <= now}

    def _wake(self) -> float:
        """Let due timers act; returns the time."""
        now = self._clock.monotonic()
        self._dispatcher.wake(now)
        return now

    def _entry(self, message: Message, offset: float) -> Entry:
        family = family_of(message.method)
        lane = self.schedule.lane(message.bot, self._dispatcher.chat(message.bot, message.chat_id), family)
        level = URGENT if message.urgent else LEVELS[message.priority]
        cost = 0 if family == "free" else cost_of(message.method, message.params)
        entry = Entry(message.id, lane, level, cost)
        entry.paid = bool(message.params.get("allow_paid_broadcast"))
        if message.expires_at is not None:
            entry.expires = message.expires_at - offset
        return entry

    def _end(self, stored: StoredMessage, step: NextState) -> None:
        message = stored.message
        self._move(stored, step.state)
        stored.reason, stored.description = step.reason, step.description
        stored.settled_at = self._clock.now()
        stored.entry.expires = NEVER  # its timer means nothing any more
        self._unsettled[message.bot] -= 1
        if not self._unsettled[message.bot]:
            self._ages.pop(message.bot, None)
        if message.coalesce_key is not None:
            key = (message.bot, message.chat_id, message.coalesce_key)
            if self._coalesce.get(key) == message.id:
                del self._coalesce[key]
        if step.state in DEAD_LETTER_STATES:
            self._letters[message.id] = None
        else:
            self._forget_later(stored)
        self._dispatcher.events.publish(Ended(stored.record()))
        self._waiters.ended(message.id, stored.record)

    def _move(self, stored: StoredMessage, state: State) -> None:
        self._count(stored, -1)
        stored.state = state
        self._count(stored, +1)
        if state in WAITING_STATES:
            self._note_age(stored)

    def _count(self, stored: StoredMessage, change: int) -> None:
        queued, bot = stored.state == State.QUEUED, stored.message.bot
        self._counts[bot, stored.message.priority if queued else stored.state] += change

    def _note_age(self, stored: StoredMessage) -> None:
        bot = stored.message.bot
        if bot not in self._ages:
            self._ages[bot] = WaitingAges(self._messages)
        self._ages[bot].add(stored, self._unsettled[bot])

    def _forget_later(self, stored: StoredMessage) -> None:
        lifetime = (
            stored.created_at + stored.message.dedup_for if stored.message.dedup_key is not None else 0.0
        )
        until = max(self._clock.now() + self._keep, lifetime)
        heapq.heappush(self._forget, (until, stored.message.id))

    def _drop_record(self, ticket: TicketId) -> None:
        stored = self._messages.get(ticket)
        if stored is None or stored.state in UNSETTLED_STATES or stored.state in DEAD_LETTER_STATES:
            return  # replayed since
        del self._messages[ticket]
        key = (stored.message.bot, stored.message.dedup_key or "")
        if self._dedup.get(key, (None,))[0] == ticket:
            del self._dedup[key]


def _matching(
    stored: Iterable[StoredMessage], bot: BotId | None, chat_id: ChatId | None, reason: str | None
) -> Iterator[StoredMessage]:
    for one in stored:
        if (
            (bot is None or one.message.bot == bot)
            and (chat_id is None or one.message.chat_id == chat_id)
            and (reason is None or one.reason == reason)
        ):
            yield one


def _place(stored: StoredMessage) -> tuple[float, str]:
    return stored.created_at, stored.message.id


def _place_of_letter(stored: StoredMessage) -> tuple[float, str]:
    return stored.settled_at or stored.created_at, stored.message.id


def _place_of(cursor: str) -> tuple[float, str]:
    """Raises BadInputError."""
    if not cursor:
        return -math.inf, ""
    created_at, _, ticket = cursor.partition("_")
    with suppress(ValueError):
        if ticket:
            return float(created_at), ticket
    raise BadInputError("the cursor is not one of this list")
