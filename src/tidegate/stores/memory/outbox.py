"""The outbox in memory, for tests and throw-away bots. It ends with the process."""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.model import (
    BotId,
    ChatId,
    Claim,
    Dead,
    Delivered,
    Message,
    Migrated,
    Outcome,
    Priority,
    Rate,
    Record,
    Settlement,
    State,
    Ticket,
    TicketId,
    Why,
)
from tidegate.outbox.dispatcher import OutboxDispatcher
from tidegate.outbox.lanes import HIGH, LOW, NEVER, NORMAL, TURN, URGENT, Entry, Lane
from tidegate.outbox.port import Outbox, OutboxStats, Turn
from tidegate.outbox.reasons import explain, facts_of
from tidegate.outbox.schedule import Schedule
from tidegate.outbox.transitions import NextState, after_call, after_crash
from tidegate.outbox.waiters import SettledWaiters
from tidegate.pacing.rules import Family, Rules, cost_of, family_of

LEVELS: Final = {Priority.HIGH: HIGH, Priority.NORMAL: NORMAL, Priority.LOW: LOW}
UNSETTLED_STATES: Final = frozenset({State.QUEUED, State.RETRY, State.SENDING})
DEAD_LETTER_STATES: Final = frozenset({State.DEAD, State.PARKED})
FORGOTTEN_PER_STEP: Final = 1_000  # records at most in each step


class _StoredMessage:
    """A message with its place in the schedule."""

    __slots__ = ("created_at", "description", "entry", "message", "reason", "result", "settled_at", "state")

    def __init__(self, message: Message, entry: Entry, created_at: float) -> None:
        self.message = message
        self.entry = entry
        self.created_at = created_at
        self.state = State.QUEUED
        self.settled_at: float | None = None
        self.reason: str | None = None
        self.description: str | None = None
        self.result: object = None

    def waits(self) -> bool:
        """Whether it is neither being sent nor just granted to someone."""
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


class MemoryOutbox(Outbox):
    """Keeps what has ended for `keep` seconds, or for its dedup lifetime if that is longer."""

    def __init__(
        self,
        clock: Clock,
        rules: Rules | None = None,
        *,
        lease: float = 30.0,
        keep: float = 600.0,
        on_end: Callable[[Record], None] | None = None,
    ) -> None:
        self._clock = clock
        self._on_end = on_end
        self._keep = keep
        self.schedule = Schedule(rules or Rules(), lease=lease)
        self._dispatch = OutboxDispatcher(
            self.schedule, clock, settle_woken=self._settle_woken, watched=lambda: bool(self._watch)
        )
        self._kept: dict[TicketId, _StoredMessage] = {}
        self._letters: dict[TicketId, None] = {}  # dead and parked, in order
        self._dedup: dict[tuple[BotId, str], tuple[TicketId, float]] = {}  # and until when
        self._coalesce: dict[tuple[BotId, ChatId, str], TicketId] = {}
        self._forget: list[tuple[float, TicketId]] = []
        self._counts: Counter[str] = Counter()
        self._watch = SettledWaiters(self._left)
        self._open_by_bot: Counter[BotId] = Counter()

    async def open(self) -> None:
        pass

    async def start_sending(self) -> None:
        pass

    async def close(self) -> None:
        self._dispatch.close()
        self._watch.close()

    # --- in ---

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        now = self._wake()
        offset = self._clock.now() - now
        tickets = [self._put_one(message, now, offset) for message in messages]
        self._dispatch.stir()
        return tickets

    def _put_one(self, message: Message, now: float, offset: float) -> Ticket:
        if message.id in self._kept:  # told once already; whoever asks again did not hear the answer
            return Ticket(message.id, fresh=False)
        if message.dedup_key is not None:
            first, until = self._dedup.get((message.bot, message.dedup_key), (message.id, 0.0))
            if now + offset < until:
                return Ticket(first, fresh=False)
            self._dedup[message.bot, message.dedup_key] = (message.id, now + offset + message.dedup_for)
        entry = self._entry(message, offset)
        due = 0.0 if message.not_before is None else message.not_before - offset
        older = self._waiting_with_its_key(message)
        if older is not None and self._takes_place(entry, older.entry, in_line=due <= now):
            entry = self._replace(older, entry)
        else:
            if older is not None:
                self.schedule.remove(older.entry, now)
                self._end(older, NextState(State.REPLACED, older.entry.attempts))
            self.schedule.add(entry, now, due)
        self._enter(_StoredMessage(message, entry, now + offset))
        return Ticket(message.id)

    def _entry(self, message: Message, offset: float) -> Entry:
        family = family_of(message.method)
        lane = self.schedule.lane(message.bot, self._dispatch.chat(message.bot, message.chat_id), family)
        level = URGENT if message.urgent else LEVELS[message.priority]
        cost = 0 if family == "free" else cost_of(message.method, message.params)
        entry = Entry(message.id, lane, level, cost)
        entry.paid = bool(message.params.get("allow_paid_broadcast"))
        if message.expires_at is not None:
            entry.expires = message.expires_at - offset
        return entry

    def _enter(self, kept: _StoredMessage) -> None:
        message = kept.message
        self._kept[message.id] = kept
        self._count(kept, +1)
        self._open_by_bot[message.bot] += 1
        if message.coalesce_key is not None:
            self._coalesce[message.bot, message.chat_id, message.coalesce_key] = message.id

    def _waiting_with_its_key(self, message: Message) -> _StoredMessage | None:
        """The older message that this one replaces, if it is not being sent."""
        if message.coalesce_key is None:
            return None
        ticket = self._coalesce.get((message.bot, message.chat_id, message.coalesce_key))
        older = self._kept.get(ticket) if ticket is not None else None
        return older if older is not None and older.waits() else None

    @staticmethod
    def _takes_place(entry: Entry, older: Entry, *, in_line: bool) -> bool:
        """There is a place to keep if both stand in the same line, and do not wait for their time to come."""
        return (
            in_line
            and older.seq > 0
            and (entry.lane, entry.level, entry.paid) == (older.lane, older.level, older.paid)
        )

    def _replace(self, older: _StoredMessage, newer: Entry) -> Entry:
        """The place in line stays with its entry; the older message keeps its history in another."""
        entry = older.entry
        older.entry = Entry(entry.id, entry.lane, entry.level, entry.cost)
        older.entry.attempts, older.entry.crashes = entry.attempts, entry.crashes
        self.schedule.replace(entry, newer)
        self._end(older, NextState(State.REPLACED, older.entry.attempts))
        return entry

    # --- out ---

    async def claim(self, room: int) -> list[Claim]:
        return [self._claimed(entry) for entry in await self._dispatch.claim(room)]

    def _claimed(self, entry: Entry) -> Claim:
        kept = self._kept[TicketId(str(entry.id))]
        self._move(kept, State.SENDING)
        message = kept.message
        if message.chat_id != entry.lane.chat:  # it migrated, or its number is known by now
            message = msgspec.structs.replace(message, chat_id=entry.lane.chat)
        return Claim(message, entry.token, entry.attempts + 1, entry.leased_until - self.schedule.lease)

    async def cool(self, held: Iterable[Claim | Turn]) -> None:
        for one in held:
            self._dispatch.cool(self._dispatch.held_turn(one) if isinstance(one, Turn) else self._held(one))
        self._dispatch.stir()

    async def extend(self, claims: Iterable[Claim]) -> None:
        now = self._clock.monotonic()
        for claim in claims:
            entry = self._held(claim)
            if entry is not None:
                self.schedule.extend(entry, now)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Record | None]:
        now = self._clock.monotonic()
        records = [self._settle_one(settlement, now) for settlement in settlements]
        self._dispatch.stir()
        return records

    def _settle_one(self, settlement: Settlement, now: float) -> Record | None:
        entry = self._held(settlement.claim)
        if entry is None:
            return None
        kept, outcome = self._kept[settlement.claim.message.id], settlement.outcome
        step = after_call(kept.message, entry.attempts, outcome)
        lane = entry.lane
        self._dispatch.heard(entry, outcome, now)
        self._dispatch.release(entry, outcome, now - settlement.age)
        if isinstance(outcome, Delivered):
            kept.result = outcome.result
        self._step(kept, step, now)
        if isinstance(outcome, Delivered):
            self._learn_name(lane, kept.message.chat_id, outcome.result, now)
        elif isinstance(outcome, Migrated):
            self._dispatch.alias(lane, outcome.chat_id, now)
        elif isinstance(outcome, Dead) and outcome.whole_chat:
            self._bury_lane(lane, step, now)
        self.schedule.settle_lane(entry.lane, now)
        return kept.record()

    def _held(self, claim: Claim) -> Entry | None:
        kept = self._kept.get(claim.message.id)
        return kept.entry if kept is not None and kept.entry.token == claim.token else None

    def _wake(self) -> float:
        """Let due timers act; returns the time."""
        now = self._clock.monotonic()
        self._dispatch.wake(now)
        return now

    def _settle_woken(self, expired: list[Entry], lost: list[Entry], now: float) -> None:
        for entry in expired:
            if entry.level < TURN:
                self._end(self._kept[TicketId(str(entry.id))], NextState(State.EXPIRED, entry.attempts))
        for entry in lost:
            kept = self._kept[TicketId(str(entry.id))]
            entry.crashes += 1
            self.schedule.release(entry, now)
            self._step(kept, after_crash(kept.message, entry.attempts, entry.crashes), now)
            self.schedule.settle_lane(entry.lane, now)
        wall = self._clock.now()
        for _ in range(FORGOTTEN_PER_STEP):
            if not self._forget or self._forget[0][0] > wall:
                break
            self._drop_record(heapq.heappop(self._forget)[1])

    # --- states ---

    def _step(self, kept: _StoredMessage, step: NextState, now: float) -> None:
        entry = kept.entry
        entry.attempts = step.attempts
        kept.reason, kept.description = step.reason, step.description
        if step.state not in {State.QUEUED, State.RETRY}:
            self._end(kept, step)
        elif entry.expires <= now:  # its deadline passed while it was being sent
            self._end(kept, NextState(State.EXPIRED, step.attempts))
        else:
            self._move(kept, step.state)
            self.schedule.again(entry, now + step.delay if step.delay else 0.0)

    def _end(self, kept: _StoredMessage, step: NextState) -> None:
        message = kept.message
        self._move(kept, step.state)
        kept.reason, kept.description = step.reason, step.description
        kept.settled_at = self._clock.now()
        kept.entry.expires = NEVER  # its timer means nothing any more
        self._open_by_bot[message.bot] -= 1
        if message.coalesce_key is not None:
            key = (message.bot, message.chat_id, message.coalesce_key)
            if self._coalesce.get(key) == message.id:
                del self._coalesce[key]
        if step.state in DEAD_LETTER_STATES:
            self._letters[message.id] = None
        else:
            self._forget_later(kept)
        if self._on_end is not None:
            self._on_end(kept.record())
        self._watch.ended(message.id, kept.record)

    def _move(self, kept: _StoredMessage, state: State) -> None:
        self._count(kept, -1)
        kept.state = state
        self._count(kept, +1)

    def _count(self, kept: _StoredMessage, change: int) -> None:
        queued = kept.state == State.QUEUED
        self._counts[kept.message.priority if queued else kept.state] += change

    def _forget_later(self, kept: _StoredMessage) -> None:
        lifetime = kept.created_at + kept.message.dedup_for if kept.message.dedup_key is not None else 0.0
        until = max(self._clock.now() + self._keep, lifetime)
        heapq.heappush(self._forget, (until, kept.message.id))

    def _drop_record(self, ticket: TicketId) -> None:
        kept = self._kept.get(ticket)
        if kept is None or kept.state in UNSETTLED_STATES or kept.state in DEAD_LETTER_STATES:
            return  # replayed since
        del self._kept[ticket]
        key = (kept.message.bot, kept.message.dedup_key or "")
        if self._dedup.get(key, (None,))[0] == ticket:
            del self._dedup[key]

    def _bury_lane(self, lane: Lane, step: NextState, now: float) -> None:
        """Nothing for this chat can succeed: what waits in its lane follows."""
        for entry in self.schedule.waiting_in(lane):
            self.schedule.remove(entry, now)
            self._end(self._kept[TicketId(str(entry.id))], step)

    def _learn_name(self, lane: Lane, name: ChatId, result: object, now: float) -> None:
        """An @name and its number are one lane once an answer has told that they are."""
        chat = result.get("chat") if isinstance(name, str) and isinstance(result, dict) else None
        if isinstance(chat, dict) and isinstance(chat.get("id"), int):
            self._dispatch.alias(lane, chat["id"], now)

    # --- turns ---

    async def turn(
        self,
        bot: BotId,
        chat_id: ChatId,
        family: Family,
        cost: int,
        priority: Priority = Priority.HIGH,
        *,
        paid: bool = False,
        max_wait: float | None = None,
    ) -> Turn:
        return await self._dispatch.turn(bot, chat_id, family, cost, priority, paid=paid, max_wait=max_wait)

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float = 0.0) -> None:
        entry, now = self._dispatch.end_turn(turn, outcome, age), self._clock.monotonic()
        lane = None if entry is None else entry.lane
        if lane is not None and isinstance(outcome, Delivered):
            self._learn_name(lane, turn.chat_id, outcome.result, now)
        elif lane is not None and isinstance(outcome, Dead) and outcome.whole_chat:
            step = NextState(State.DEAD, 0, reason=outcome.reason, description=outcome.description)
            self._bury_lane(lane, step, now)
        self._dispatch.stir()

    async def wait_for(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> float:
        chat = self._dispatch.chat(bot, chat_id)
        return self.schedule.wait_for(bot, chat, family, cost, self._clock.monotonic())

    # --- operators ---

    async def cancel(self, ids: Iterable[TicketId]) -> int:
        now = self._wake()
        cancelled = 0
        for kept in self._known(ids):
            if kept.waits():
                self.schedule.remove(kept.entry, now)
                self._end(kept, NextState(State.CANCELLED, kept.entry.attempts))
                cancelled += 1
        self._dispatch.stir()
        return cancelled

    async def pause(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        self._pause(bot, chat_id, paused=True)

    async def resume(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        self._pause(bot, chat_id, paused=False)
        self._dispatch.stir()

    def _pause(self, bot: BotId, chat_id: ChatId | None, *, paused: bool) -> None:
        chat = None if chat_id is None else self._dispatch.chat(bot, chat_id)
        self.schedule.pause(bot, chat, paused=paused, now=self._clock.monotonic())

    async def find(self, ticket: TicketId) -> Record | None:
        self._wake()
        kept = self._kept.get(ticket)
        return kept.record() if kept is not None else None

    async def settled(self, ticket: TicketId) -> Record:
        record = await self.find(ticket)
        if record is None:
            raise LookupError(f"no message {ticket} is known: it was never put, or ended too long ago")
        if record.state not in UNSETTLED_STATES:
            return record
        ended = self._watch.end_of(ticket)
        self._dispatch.arm()
        return await ended

    async def why(self, ticket: TicketId) -> Why | None:
        now = self._wake()
        kept = self._kept.get(ticket)
        if kept is None:
            return None
        due = kept.message.not_before
        until_due = max(0.0, due - self._clock.now()) if due is not None else 0.0
        return explain(facts_of(kept.entry, kept.state, until_due, now))

    async def drained(self, bot: BotId | None = None) -> None:
        self._wake()
        drained = self._watch.end_of_all(bot)
        self._dispatch.arm()
        await drained

    def _left(self, bot: BotId | None) -> int:
        return self._open_by_bot[bot] if bot is not None else self._open_by_bot.total()

    async def dead(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        reason: str | None = None,
        states: frozenset[State] = DEAD_LETTER_STATES,
        limit: int = 100,
    ) -> list[Record]:
        letters = (self._kept[ticket] for ticket in self._letters if self._kept[ticket].state in states)
        found = _matching(letters, bot, chat_id, reason)
        return [kept.record() for kept in itertools.islice(found, limit)]

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
        kept = (one for one in self._kept.values() if one.state in states)
        found = (
            one
            for one in _matching(kept, bot, chat_id, reason)
            if before is None or (one.settled_at or one.created_at) < before
        )
        return [one.record() for one in itertools.islice(found, limit)]

    async def tally(self, bot: BotId, dedup_prefix: str) -> dict[tuple[State, str | None], int]:
        self._wake()
        return Counter(
            (kept.state, kept.reason)
            for kept in self._kept.values()
            if kept.message.bot == bot and (kept.message.dedup_key or "").startswith(dedup_prefix)
        )

    async def replay(self, ids: Iterable[TicketId]) -> int:
        now = self._wake()
        offset = self._clock.now() - now
        replayed = 0
        for kept in self._known(ids):
            if kept.message.id in self._letters:
                del self._letters[kept.message.id]
                kept.entry = self._entry(kept.message, offset)
                kept.settled_at = kept.reason = kept.description = None
                self._move(kept, State.QUEUED)
                self._open_by_bot[kept.message.bot] += 1
                self.schedule.add(kept.entry, now)
                replayed += 1
        self._dispatch.stir()
        return replayed

    async def drop(self, ids: Iterable[TicketId]) -> int:
        dropped = 0
        for kept in self._known(ids):
            if kept.message.id in self._letters:
                del self._letters[kept.message.id]
                self._count(kept, -1)
                kept.state = State.CANCELLED
                self._drop_record(kept.message.id)
                dropped += 1
        return dropped

    async def forget(self, chat_id: ChatId, bot: BotId | None = None) -> int:
        theirs = [kept.message.id for kept in _matching(self._kept.values(), bot, chat_id, None)]
        await self.cancel(theirs)
        await self.drop(theirs)
        for ticket in theirs:
            self._drop_record(ticket)
        return sum(ticket not in self._kept for ticket in theirs)

    def _known(self, ids: Iterable[TicketId]) -> list[_StoredMessage]:
        return [self._kept[ticket] for ticket in dict.fromkeys(ids) if ticket in self._kept]

    async def learned(self) -> dict[tuple[BotId, ChatId | None], Rate]:
        return self.schedule.learned()

    async def stats(self) -> OutboxStats:
        self._wake()
        known = {name: count for name, count in self._counts.items() if name in OutboxStats.__struct_fields__}
        heard = {"refused": self._dispatch.refused, "uncertain": self._dispatch.uncertain}
        return OutboxStats(**known | heard, urgent=self.schedule.urgent_in_debt)


def _matching(
    kept: Iterable[_StoredMessage], bot: BotId | None, chat_id: ChatId | None, reason: str | None
) -> Iterator[_StoredMessage]:
    for one in kept:
        if (
            (bot is None or one.message.bot == bot)
            and (chat_id is None or one.message.chat_id == chat_id)
            and (reason is None or one.reason == reason)
        ):
            yield one
