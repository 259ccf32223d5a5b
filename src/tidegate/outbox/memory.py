"""The store in memory: for tests and throw-away bots. What is in it ends with the process."""

import asyncio
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
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
    NotSent,
    Outcome,
    Priority,
    Record,
    Refused,
    Settlement,
    State,
    Ticket,
    TicketId,
    Why,
)
from tidegate.outbox.base import Outbox, Stats, Turn
from tidegate.outbox.lanes import HIGH, LOW, NORMAL, TURN, URGENT, Entry, Lane
from tidegate.outbox.reasons import explain
from tidegate.outbox.schedule import Schedule
from tidegate.outbox.transitions import Step, after_call, after_crash
from tidegate.pacing.rules import Family, Rules, cost_of, family_of

LEVELS: Final = {Priority.HIGH: HIGH, Priority.NORMAL: NORMAL, Priority.LOW: LOW}
OPEN: Final = frozenset({State.QUEUED, State.RETRY, State.SENDING})
LETTERS: Final = frozenset({State.DEAD, State.PARKED})
ALIASES_KEPT: Final = 10_000
SHORTEST_SLEEP: Final = 0.0005  # seconds; uvloop spins on less


class _Kept:
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
        self._kept: dict[TicketId, _Kept] = {}
        self._letters: dict[TicketId, None] = {}  # dead and parked, in order
        self._dedup: dict[tuple[BotId, str], tuple[TicketId, float]] = {}  # and until when
        self._coalesce: dict[tuple[BotId, ChatId, str], TicketId] = {}
        self._forget: list[tuple[float, TicketId]] = []
        self._aliases: dict[tuple[BotId, ChatId], ChatId] = {}
        self._counts: Counter[str] = Counter()
        self._claimers: deque[tuple[int, asyncio.Future[list[Claim]]]] = deque()
        self._turns: dict[str, asyncio.Future[int]] = {}
        self._held_turns: dict[int, Entry] = {}
        self._watchers: dict[TicketId, list[asyncio.Future[Record]]] = {}
        self._drainers: list[tuple[BotId | None, asyncio.Future[None]]] = []
        self._open_by_bot: Counter[BotId] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._turn_ids = itertools.count(1)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for _, claimer in self._claimers:
            claimer.cancel()
        for turn in self._turns.values():
            turn.cancel()

    # --- in ---

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        now = self._clock.monotonic()
        self._wake(now)
        offset = self._clock.now() - now
        tickets = [self._put_one(message, now, offset) for message in messages]
        self._stir()
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
                self._end(older, Step(State.REPLACED, older.entry.attempts))
            self.schedule.add(entry, now, due)
        self._enter(_Kept(message, entry, now + offset))
        return Ticket(message.id)

    def _entry(self, message: Message, offset: float) -> Entry:
        family = family_of(message.method)
        lane = self.schedule.lane(message.bot, self._chat(message.bot, message.chat_id), family)
        level = URGENT if message.urgent else LEVELS[message.priority]
        cost = 0 if family == "free" else cost_of(message.method, message.params)
        entry = Entry(message.id, lane, level, cost)
        entry.paid = bool(message.params.get("allow_paid_broadcast"))
        if message.expires_at is not None:
            entry.expires = message.expires_at - offset
        return entry

    def _enter(self, kept: _Kept) -> None:
        message = kept.message
        self._kept[message.id] = kept
        self._count(kept, +1)
        self._open_by_bot[message.bot] += 1
        if message.coalesce_key is not None:
            self._coalesce[message.bot, message.chat_id, message.coalesce_key] = message.id

    def _waiting_with_its_key(self, message: Message) -> _Kept | None:
        """The older message that this one replaces, if it is not being sent."""
        if message.coalesce_key is None:
            return None
        ticket = self._coalesce.get((message.bot, message.chat_id, message.coalesce_key))
        older = self._kept.get(ticket) if ticket is not None else None
        return older if older is not None and older.state in {State.QUEUED, State.RETRY} else None

    @staticmethod
    def _takes_place(entry: Entry, older: Entry, *, in_line: bool) -> bool:
        """There is a place to keep if both stand in the same line, and do not wait for their time to come."""
        return (
            in_line
            and older.seq > 0
            and (entry.lane, entry.level, entry.paid) == (older.lane, older.level, older.paid)
        )

    def _replace(self, older: _Kept, newer: Entry) -> Entry:
        """The place in line stays with its entry; the older message keeps its history in another."""
        entry = older.entry
        older.entry = Entry(entry.id, entry.lane, entry.level, entry.cost)
        older.entry.attempts, older.entry.crashes = entry.attempts, entry.crashes
        self.schedule.replace(entry, newer)
        self._end(older, Step(State.REPLACED, older.entry.attempts))
        return entry

    # --- out ---

    async def claim(self, room: int) -> list[Claim]:
        if not self._claimers:
            claims = self._grant(room)
            if claims:
                if self._turns or self._watchers or self._drainers:
                    self._arm()  # they wait for these leases too
                return claims
        future: asyncio.Future[list[Claim]] = asyncio.get_running_loop().create_future()
        waiting = (room, future)
        self._claimers.append(waiting)
        self._arm()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it was granted in the same instant
                await self.settle([Settlement(claim, NotSent("cancelled")) for claim in future.result()])
            raise
        finally:
            if waiting in self._claimers:
                self._claimers.remove(waiting)

    def _stir(self) -> None:
        """Something changed: take a step if it may concern anybody."""
        if self._claimers or self._turns or self._watchers or self._drainers:
            self._drive()

    def _drive(self) -> None:
        """Give out what may go to whoever waits for it, then sleep until there may be more."""
        while self._claimers and self._claimers[0][1].done():
            self._claimers.popleft()
        if self._claimers:
            room, future = self._claimers[0]
            claims = self._grant(room)
            if claims:
                self._claimers.popleft()
                future.set_result(claims)
        else:
            self._grant(0)
        self._arm()

    def _grant(self, room: int) -> list[Claim]:
        now = self._clock.monotonic()
        self._wake(now)
        claims = []
        for entry in self.schedule.claim(now, room):
            if entry.level == TURN:
                self._give_turn(entry, now)
                continue
            kept = self._kept[TicketId(entry.id)]
            self._move(kept, State.SENDING)
            message = kept.message
            if message.chat_id != entry.lane.chat:  # it migrated, or its number is known by now
                message = msgspec.structs.replace(message, chat_id=entry.lane.chat)
            claims.append(Claim(message, entry.token, entry.attempts + 1))
        return claims

    def _arm(self) -> None:
        """A timer for the next step, if anybody waits for one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not (self._claimers or self._turns or self._watchers or self._drainers):
            return
        at = self.schedule.next_at(room=bool(self._claimers))
        if at < float("inf"):
            delay = max(at - self._clock.monotonic(), SHORTEST_SLEEP)
            self._timer = self._clock.call_later(delay, self._drive)

    async def cool(self, held: Iterable[Claim | Turn]) -> None:
        now = self._clock.monotonic()
        for one in held:
            entry = self._held_turns.get(one.token) if isinstance(one, Turn) else self._held(one)
            if entry is not None and self.schedule.cool(entry, now):
                self._counts["uncertain"] += 1
        self._stir()

    async def extend(self, claims: Iterable[Claim]) -> None:
        now = self._clock.monotonic()
        for claim in claims:
            entry = self._held(claim)
            if entry is not None:
                self.schedule.extend(entry, now)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Record | None]:
        now = self._clock.monotonic()
        records = [self._settle_one(settlement, now) for settlement in settlements]
        self._stir()
        return records

    def _settle_one(self, settlement: Settlement, now: float) -> Record | None:
        entry = self._held(settlement.claim)
        if entry is None:
            return None
        kept, outcome = self._kept[settlement.claim.message.id], settlement.outcome
        step = after_call(kept.message, entry.attempts, outcome)
        lane = entry.lane
        if isinstance(outcome, Refused):
            self._counts["refused"] += 1
            self.schedule.refused(entry, now, outcome.retry_after)
        self.schedule.release(entry, now - settlement.age, sent=not isinstance(outcome, NotSent))
        if isinstance(outcome, Delivered):
            kept.result = outcome.result
        self._step(kept, step, now)
        if isinstance(outcome, Delivered):
            self._learn_name(kept)
        elif isinstance(outcome, Migrated):
            self._alias(lane, outcome.chat_id, now)
        elif isinstance(outcome, Dead) and outcome.whole_chat:
            self._bury_lane(lane, step, now)
        self.schedule.settle_lane(lane, now)
        return kept.record()

    def _held(self, claim: Claim) -> Entry | None:
        kept = self._kept.get(claim.message.id)
        return kept.entry if kept is not None and kept.entry.token == claim.token else None

    def _wake(self, now: float) -> None:
        expired, lost = self.schedule.wake(now)
        for entry in expired:
            if entry.level != TURN:
                self._end(self._kept[TicketId(entry.id)], Step(State.EXPIRED, entry.attempts))
        for entry in lost:
            kept = self._kept[TicketId(entry.id)]
            entry.crashes += 1
            self.schedule.release(entry, now)
            self._step(kept, after_crash(kept.message, entry.attempts, entry.crashes), now)
            self.schedule.settle_lane(entry.lane, now)
        wall = self._clock.now()
        while self._forget and self._forget[0][0] <= wall:
            self._drop_record(heapq.heappop(self._forget)[1])

    # --- states ---

    def _step(self, kept: _Kept, step: Step, now: float) -> None:
        entry = kept.entry
        entry.attempts = step.attempts
        kept.reason, kept.description = step.reason, step.description
        if step.state not in {State.QUEUED, State.RETRY}:
            self._end(kept, step)
        elif entry.expires <= now:  # its deadline passed while it was being sent
            self._end(kept, Step(State.EXPIRED, step.attempts))
        else:
            self._move(kept, step.state)
            self.schedule.again(entry, now + step.delay if step.delay else 0.0)

    def _end(self, kept: _Kept, step: Step) -> None:
        message = kept.message
        self._move(kept, step.state)
        kept.reason, kept.description = step.reason, step.description
        kept.settled_at = self._clock.now()
        self._open_by_bot[message.bot] -= 1
        if message.coalesce_key is not None:
            key = (message.bot, message.chat_id, message.coalesce_key)
            if self._coalesce.get(key) == message.id:
                del self._coalesce[key]
        if step.state in LETTERS:
            self._letters[message.id] = None
        else:
            self._forget_later(kept)
        if self._on_end is not None:
            self._on_end(kept.record())
        for watcher in self._watchers.pop(message.id, ()):
            if not watcher.done():
                watcher.set_result(kept.record())
        self._tell_drainers()

    def _move(self, kept: _Kept, state: State) -> None:
        self._count(kept, -1)
        kept.state = state
        self._count(kept, +1)

    def _count(self, kept: _Kept, change: int) -> None:
        queued = kept.state == State.QUEUED
        self._counts[kept.message.priority if queued else kept.state] += change

    def _forget_later(self, kept: _Kept) -> None:
        lifetime = kept.created_at + kept.message.dedup_for if kept.message.dedup_key is not None else 0.0
        until = max(self._clock.now() + self._keep, lifetime)
        heapq.heappush(self._forget, (until, kept.message.id))

    def _drop_record(self, ticket: TicketId) -> None:
        kept = self._kept.get(ticket)
        if kept is None or kept.state in OPEN or kept.state in LETTERS:
            return  # replayed since
        del self._kept[ticket]
        key = (kept.message.bot, kept.message.dedup_key or "")
        if self._dedup.get(key, (None,))[0] == ticket:
            del self._dedup[key]

    def _bury_lane(self, lane: Lane, step: Step, now: float) -> None:
        """Nothing for this chat can succeed: what waits in its lane follows."""
        for entry in self.schedule.waiting_in(lane):
            self.schedule.remove(entry, now)
            self._end(self._kept[TicketId(entry.id)], step)

    def _learn_name(self, kept: _Kept) -> None:
        """An @name and its number are one lane once an answer has told that they are."""
        name, result = kept.message.chat_id, kept.result
        if isinstance(name, str) and isinstance(result, dict) and isinstance(result.get("chat"), dict):
            number = result["chat"].get("id")
            if isinstance(number, int):
                self._alias(kept.entry.lane, number, self._clock.monotonic())

    def _chat(self, bot: BotId, chat: ChatId) -> ChatId:
        """The id by which a chat goes now: it may have been told under a name, and have migrated since."""
        while (bot, chat) in self._aliases:
            chat = self._aliases[bot, chat]
        return chat

    def _alias(self, lane: Lane, chat: ChatId, now: float) -> None:
        chat = self._chat(lane.bot.id, chat)
        if chat == lane.chat:
            return  # it is there already
        self._aliases[lane.bot.id, lane.chat] = chat
        if len(self._aliases) > ALIASES_KEPT:
            del self._aliases[next(iter(self._aliases))]
        self.schedule.move(lane, chat, now)

    # --- turns ---

    async def turn(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> Turn:
        lane = self.schedule.lane(bot, self._chat(bot, chat_id), family)
        entry = Entry(f"turn {next(self._turn_ids)}", lane, TURN, cost)
        granted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._turns[entry.id] = granted
        self.schedule.add(entry, self._clock.monotonic())
        self._drive()
        try:
            return Turn(bot, chat_id, await granted)
        except asyncio.CancelledError:
            if not granted.cancelled():
                await self.end_turn(Turn(bot, chat_id, granted.result()), NotSent("cancelled"))
            elif self._turns.pop(entry.id, None) is not None:  # else it is given back already
                self.schedule.remove(entry, self._clock.monotonic())
            self._stir()
            raise
        finally:
            self._turns.pop(entry.id, None)

    def _give_turn(self, entry: Entry, now: float) -> None:
        granted = self._turns.pop(entry.id)
        if granted.done():  # cancelled in this instant
            self.schedule.release(entry, now, sent=False)
            self.schedule.settle_lane(entry.lane, now)
            return
        self._held_turns[entry.token] = entry
        granted.set_result(entry.token)

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float = 0.0) -> None:
        entry = self._held_turns.pop(turn.token, None)
        if entry is None:
            return
        now = self._clock.monotonic()
        if isinstance(outcome, Refused):
            self._counts["refused"] += 1
            self.schedule.refused(entry, now, outcome.retry_after)
        lane = entry.lane
        self.schedule.release(entry, now - age, sent=not isinstance(outcome, NotSent))
        if isinstance(outcome, Migrated):
            self._alias(lane, outcome.chat_id, now)
        self.schedule.settle_lane(lane, now)
        self._drive()

    def wait_for(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> float:
        chat = self._chat(bot, chat_id)
        return self.schedule.wait_for(bot, chat, family, cost, self._clock.monotonic())

    # --- operators ---

    async def cancel(self, ids: Iterable[TicketId]) -> int:
        now = self._clock.monotonic()
        self._wake(now)
        cancelled = 0
        for kept in self._known(ids):
            if kept.state in {State.QUEUED, State.RETRY}:
                self.schedule.remove(kept.entry, now)
                self._end(kept, Step(State.CANCELLED, kept.entry.attempts))
                cancelled += 1
        self._stir()
        return cancelled

    async def pause(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        self._pause(bot, chat_id, paused=True)

    async def resume(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        self._pause(bot, chat_id, paused=False)
        self._drive()

    def _pause(self, bot: BotId, chat_id: ChatId | None, *, paused: bool) -> None:
        chat = None if chat_id is None else self._chat(bot, chat_id)
        self.schedule.pause(bot, chat, paused=paused, now=self._clock.monotonic())

    async def find(self, ticket: TicketId) -> Record | None:
        self._wake(self._clock.monotonic())
        kept = self._kept.get(ticket)
        return kept.record() if kept is not None else None

    async def settled(self, ticket: TicketId) -> Record:
        record = await self.find(ticket)
        if record is None:
            raise LookupError(f"no message {ticket} is known: it was never put, or ended too long ago")
        if record.state not in OPEN:
            return record
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        watchers = self._watchers.setdefault(ticket, [])
        watchers.append(future)
        self._arm()
        try:
            return await future
        finally:
            if future in watchers:
                watchers.remove(future)
            if not watchers:
                self._watchers.pop(ticket, None)

    async def why(self, ticket: TicketId) -> Why | None:
        now = self._clock.monotonic()
        self._wake(now)
        kept = self._kept.get(ticket)
        if kept is None:
            return None
        due = kept.message.not_before
        until_due = max(0.0, due - self._clock.now()) if due is not None else 0.0
        return explain(kept.entry, kept.state, until_due, now)

    async def drained(self, bot: BotId | None = None) -> None:
        self._wake(self._clock.monotonic())
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drainers.append((bot, future))
        self._tell_drainers()
        self._arm()
        await future

    def _tell_drainers(self) -> None:
        if not self._drainers:
            return
        still = []
        for bot, future in self._drainers:
            left = self._open_by_bot[bot] if bot is not None else self._open_by_bot.total()
            if left:
                still.append((bot, future))
            elif not future.done():
                future.set_result(None)
        self._drainers = [(bot, future) for bot, future in still if not future.done()]

    async def dead(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        reason: str | None = None,
        states: frozenset[State] = LETTERS,
        limit: int = 100,
    ) -> list[Record]:
        letters = (self._kept[ticket] for ticket in self._letters)
        found = (
            kept.record()
            for kept in letters
            if kept.state in states
            and (bot is None or kept.message.bot == bot)
            and (chat_id is None or kept.message.chat_id == chat_id)
            and (reason is None or kept.reason == reason)
        )
        return list(itertools.islice(found, limit))

    async def replay(self, ids: Iterable[TicketId]) -> int:
        now = self._clock.monotonic()
        self._wake(now)
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
        self._stir()
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

    def _known(self, ids: Iterable[TicketId]) -> list[_Kept]:
        return [self._kept[ticket] for ticket in dict.fromkeys(ids) if ticket in self._kept]

    def stats(self) -> Stats:
        self._wake(self._clock.monotonic())
        known = {name: count for name, count in self._counts.items() if name in Stats.__struct_fields__}
        return Stats(**known | {"urgent": self.schedule.urgent_in_debt})
