"""The outbox in memory, for tests and throw-away bots. It ends with the process."""

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.events import EventStream
from tidegate.model import (
    BotId,
    ChatId,
    Claim,
    Dead,
    Delivered,
    Message,
    Outcome,
    Priority,
    Record,
    Settlement,
    State,
    Ticket,
    TicketId,
)
from tidegate.outbox.dispatcher import OutboxDispatcher
from tidegate.outbox.lanes import TURN, Entry, Lane
from tidegate.outbox.limit_states import closure_notes_in
from tidegate.outbox.port import Outbox, StoreHealth, Turn
from tidegate.outbox.schedule import Schedule
from tidegate.outbox.transitions import NextState, after_call, after_crash, other_name
from tidegate.pacing.rules import Family, Rules
from tidegate.stores.memory.operator import MemoryOperator, StoredMessage

FORGOTTEN_PER_STEP: Final = 1_000  # records at most in each step


class MemoryOutbox(MemoryOperator, Outbox):
    """Keeps what has ended for `keep` seconds, or for its dedup lifetime if that is longer."""

    is_durable = False

    def __init__(
        self,
        clock: Clock,
        rules: Rules | None = None,
        *,
        lease: float = 30.0,
        keep: float = 600.0,
        events: EventStream | None = None,
    ) -> None:
        schedule = Schedule(rules or Rules(), lease=lease)
        dispatcher = OutboxDispatcher(
            schedule,
            clock,
            events or EventStream(),
            settle_woken=self._settle_woken,
            watched=lambda: bool(self._waiters),
            waiting=self._left,
        )
        super().__init__(schedule, dispatcher, clock, keep=keep)

    def health(self) -> StoreHealth:
        return StoreHealth().with_notes(closure_notes_in(self.schedule, self._clock.monotonic()))

    async def open(self) -> None:
        pass

    async def start_sending(self) -> None:
        pass

    async def close(self) -> None:
        self._dispatcher.close()
        self._waiters.close()

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        now = self._wake()
        offset = self._clock.now() - now
        tickets = [self._put_one(message, now, offset) for message in messages]
        self._dispatcher.stir()
        return tickets

    def _put_one(self, message: Message, now: float, offset: float) -> Ticket:
        if message.id in self._messages:  # put before: its caller did not hear the answer
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
            entry = self._replace(older, entry, now)
        else:
            if older is not None:
                self.schedule.remove(older.entry, now)
                self._end(older, NextState(State.REPLACED, older.entry.attempts))
            self.schedule.add(entry, now, due)
        wall = now + offset
        self._enter(StoredMessage(message, entry, wall, since=max(wall, message.not_before or 0.0)))
        return Ticket(message.id)

    def _enter(self, stored: StoredMessage) -> None:
        message = stored.message
        self._messages[message.id] = stored
        self._count(stored, +1)
        self._unsettled[message.bot] += 1
        self._note_age(stored)
        if message.coalesce_key is not None:
            self._coalesce[message.bot, message.chat_id, message.coalesce_key] = message.id

    def _waiting_with_its_key(self, message: Message) -> StoredMessage | None:
        """The older message that this one replaces, if it is not being sent."""
        if message.coalesce_key is None:
            return None
        ticket = self._coalesce.get((message.bot, message.chat_id, message.coalesce_key))
        older = self._messages.get(ticket) if ticket is not None else None
        return older if older is not None and older.waits() else None

    @staticmethod
    def _takes_place(entry: Entry, older: Entry, *, in_line: bool) -> bool:
        """Return whether a message can take the place of an older one: both due, in the same line."""
        return (
            in_line
            and older.seq > 0
            and (entry.lane, entry.level, entry.paid) == (older.lane, older.level, older.paid)
        )

    def _replace(self, older: StoredMessage, newer: Entry, now: float) -> Entry:
        """The entry keeps its place for the newer message; the older one gets an entry for its history."""
        entry = older.entry
        older.entry = Entry(entry.id, entry.lane, entry.level, entry.cost)
        older.entry.attempts, older.entry.crashes = entry.attempts, entry.crashes
        self.schedule.replace(entry, newer, now)
        self._end(older, NextState(State.REPLACED, older.entry.attempts))
        return entry

    async def claim(self, room: int) -> list[Claim]:
        return [self._claimed(entry) for entry in await self._dispatcher.claim(room)]

    def _claimed(self, entry: Entry) -> Claim:
        stored = self._messages[TicketId(str(entry.id))]
        self._move(stored, State.SENDING)
        message = stored.message
        if message.chat_id != entry.lane.chat:  # it migrated, or its number is known by now
            message = msgspec.structs.replace(message, chat_id=entry.lane.chat)
        granted_at = entry.leased_until - self.schedule.lease
        probe = self.schedule.probe_of(entry, granted_at)
        return Claim(message, entry.token, entry.attempts + 1, granted_at, probe)

    def may_claim(self) -> bool:
        return self._dispatcher.may_claim()

    async def cool(self, held: Iterable[Claim | Turn]) -> None:
        for one in held:
            self._dispatcher.cool(
                self._dispatcher.held_turn(one) if isinstance(one, Turn) else self._held(one)
            )
        self._dispatcher.stir()

    async def extend(self, claims: Iterable[Claim]) -> None:
        now = self._clock.monotonic()
        for claim in claims:
            entry = self._held(claim)
            if entry is not None:
                self.schedule.extend(entry, now)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Record | None]:
        now = self._clock.monotonic()
        records = [self._settle_one(settlement, now) for settlement in settlements]
        self._dispatcher.stir()
        return records

    def _settle_one(self, settlement: Settlement, now: float) -> Record | None:
        entry = self._held(settlement.claim)
        if entry is None:
            return None
        stored, outcome = self._messages[settlement.claim.message.id], settlement.outcome
        step = after_call(stored.message, entry.attempts, outcome, settlement.max_attempts)
        lane = entry.lane
        self._dispatcher.heard(entry, outcome, now)
        self._dispatcher.release(entry, outcome, now - settlement.age)
        if isinstance(outcome, Delivered):
            stored.result = outcome.result
        self._step(stored, step, now)
        name = other_name(stored.message.chat_id, outcome)
        if name is not None:
            self._dispatcher.alias(lane, name, now)
        elif isinstance(outcome, Dead) and outcome.whole_chat:
            self._bury_lane(lane, step, now)
        self.schedule.settle_lane(entry.lane, now)
        return stored.record()

    def _held(self, claim: Claim) -> Entry | None:
        stored = self._messages.get(claim.message.id)
        return stored.entry if stored is not None and stored.entry.token == claim.token else None

    def _settle_woken(self, expired: list[Entry], lost: list[Entry], now: float) -> None:
        for entry in expired:
            if entry.level < TURN:
                self._end(self._messages[TicketId(str(entry.id))], NextState(State.EXPIRED, entry.attempts))
        for entry in lost:
            stored = self._messages[TicketId(str(entry.id))]
            entry.crashes += 1
            self.schedule.release(entry, now)
            self._step(stored, after_crash(stored.message, entry.attempts, entry.crashes), now)
            self.schedule.settle_lane(entry.lane, now)
        wall = self._clock.now()
        for _ in range(FORGOTTEN_PER_STEP):
            if not self._forget or self._forget[0][0] > wall:
                break
            self._drop_record(heapq.heappop(self._forget)[1])

    def _step(self, stored: StoredMessage, step: NextState, now: float) -> None:
        entry = stored.entry
        entry.attempts = step.attempts
        stored.reason, stored.description = step.reason, step.description
        if step.state not in {State.QUEUED, State.RETRY}:
            self._end(stored, step)
        elif entry.expires <= now:  # its deadline passed while it was being sent
            self._end(stored, NextState(State.EXPIRED, step.attempts))
        else:
            self._move(stored, step.state)
            self.schedule.again(entry, now + step.delay if step.delay else 0.0)

    def _bury_lane(self, lane: Lane, step: NextState, now: float) -> None:
        """Nothing for this chat can succeed: what waits in its lane dies, too."""
        for entry in self.schedule.waiting_in(lane):
            self.schedule.remove(entry, now)
            self._end(self._messages[TicketId(str(entry.id))], step)

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
        return await self._dispatcher.turn(bot, chat_id, family, cost, priority, paid=paid, max_wait=max_wait)

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float = 0.0) -> None:
        entry, now = self._dispatcher.end_turn(turn, outcome, age), self._clock.monotonic()
        lane = None if entry is None else entry.lane
        name = other_name(turn.chat_id, outcome)
        if lane is not None and name is not None and isinstance(outcome, Delivered):
            self._dispatcher.alias(lane, name, now)
        elif lane is not None and isinstance(outcome, Dead) and outcome.whole_chat:
            step = NextState(State.DEAD, 0, reason=outcome.reason, description=outcome.description)
            self._bury_lane(lane, step, now)
        self._dispatcher.stir()

    def note_call(self, bot: BotId, call: str, outcome: Outcome | None, *, in_lane: bool) -> None:
        self._calls.note(bot, call, outcome, in_lane=in_lane)

    async def wait_for(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> float:
        chat = self._dispatcher.chat(bot, chat_id)
        return self.schedule.wait_for(bot, chat, family, cost, self._clock.monotonic())
