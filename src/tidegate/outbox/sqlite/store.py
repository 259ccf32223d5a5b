"""The outbox in a file. The truth is in the file; the schedule, by numbers only, is in the sender's memory.

A change is written first and followed in memory after: what others see is what a crash would leave. Only
deadlines and leases, which pass by themselves, are followed first.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import StoreError
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
    Rate,
    Record,
    Refused,
    Settlement,
    State,
    Ticket,
    TicketId,
    Why,
)
from tidegate.outbox.base import Outbox, Stats, Turn
from tidegate.outbox.carryover import WHOLE_BOT, Limit, limits_of
from tidegate.outbox.dispatch import Dispatcher
from tidegate.outbox.lanes import NEVER, TURN, Entry, Lane
from tidegate.outbox.reasons import explain
from tidegate.outbox.schedule import Schedule
from tidegate.outbox.sqlite import journal, looking, putting, recovery, settling
from tidegate.outbox.sqlite.file import OWED_AT_MOST, Counts, StoreFile, Transaction
from tidegate.outbox.sqlite.lock import Holder, SenderLock
from tidegate.outbox.sqlite.places import Places
from tidegate.outbox.sqlite.rows import Place, record_of, unpack
from tidegate.outbox.sqlite.settling import Burial, Call, Ended
from tidegate.outbox.transitions import Step, after_call, after_crash
from tidegate.outbox.watch import Watch
from tidegate.pacing.rules import Family, Rules

log = logging.getLogger("tidegate.store")

POLL: Final = 0.05  # seconds between two looks at what other processes did
CLEAN_EVERY: Final = 1.0  # seconds
ANSWER_WITHIN: Final = 2.0  # seconds in which a sender says why a message waits
QUARANTINE_AT_MOST: Final = 5.0  # seconds without a call after a crash
OPEN: Final = ("high", "normal", "low", "retry", State.SENDING)
UNWRITTEN: Final = 1.0  # seconds until the next try of what must not be sent unless that is written down


class _Held(msgspec.Struct, frozen=True, gc=False):
    """A message that is being sent."""

    entry: Entry
    message: Message  # as it was put
    created_at: float


class _Settling(msgspec.Struct, gc=False):
    """A settlement on its way to the disk."""

    held: _Held
    outcome: Outcome
    at: float  # monotonic: when the answer came
    step: Step
    record: Record
    buried: list[Entry]
    alias: ChatId | None


class SqliteOutbox(Outbox):
    """Keeps what has ended for `keep` seconds, or for its dedup lifetime if that is longer."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        rules: Rules | None = None,
        *,
        lease: float = 30.0,
        keep: float = 600.0,
        poll: float = POLL,
        on_end: Callable[[Record], None] | None = None,
        on_bots: Callable[[], None] | None = None,
    ) -> None:
        self.file = StoreFile(path)
        self._clock = clock
        self._keep = keep
        self._poll = poll
        self._on_end = on_end
        self._on_bots = on_bots
        self._lock = SenderLock(path)
        self.schedule = Schedule(rules or Rules(), lease=lease)
        self._dispatch = Dispatcher(
            self.schedule, clock, settle_woken=self._settle_woken, watched=lambda: bool(self._watch)
        )
        self._places = Places(self.schedule, self._dispatch, clock)
        self._held: dict[int, _Held] = {}  # by the token of the claim
        self._watch = Watch(self._left)
        self._cleaned = 0  # the number up to which the file was looked at for what is over
        self._sending = False
        self._starting: asyncio.Task[None] | None = None
        self._noted: dict[int, int] = {}  # turns that are in the file while they are held, by their tokens
        self._following: asyncio.Task[None] | None = None

    # --- begin and end ---

    async def open(self) -> None:
        await self.file.open()
        self._following = asyncio.create_task(self._follow(), name="tidegate: follow")

    async def close(self) -> None:
        tasks = [task for task in (self._following, self._starting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._following = self._starting = None
        self._dispatch.close()
        self._watch.close()
        if self._sending:
            self._sending = False
            with suppress(StoreError):
                await self.file.write(recovery.hand_over)
        await self.file.close()
        await self._lock.release()

    async def start_sending(self) -> None:
        if self._sending:
            return
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start_sending(), name="tidegate: start")
            self._starting.add_done_callback(_take_note)
        # Whoever waits may give up; what has begun goes on.
        await asyncio.shield(self._starting)

    async def _start_sending(self) -> None:
        await self._lock.take(self._clock)
        try:
            await self._take_over()
        except BaseException:
            await self._lock.release()
            raise

    async def _take_over(self) -> None:
        started, wall = self._clock.monotonic(), self._clock.now()
        before = await self.file.write(lambda tx: recovery.take_over(tx, wall), self._places.remember)
        await self._load()
        if not before.clean:
            # Not every direct call in flight at a crash is in the file: their windows must have passed.
            await self._clock.sleep(self._quarantine - (self._clock.monotonic() - started))
        await self._load(complete=True)
        await self.file.write(journal.take, self._follow_journal)  # what was done meanwhile

    @property
    def _quarantine(self) -> float:
        """Seconds without a call after a crash. Direct calls that count for longer are written down first."""
        rules = self.schedule.rules
        return min(QUARANTINE_AT_MOST, max(rules.bot.seconds, rules.private.seconds))

    async def _load(self, *, complete: bool = False) -> None:
        """Read what waits; `complete`: what comes after the last of it is entered as it comes."""
        kinds = {family: self.schedule.kind(family) for family in ("send", "edit", "action", "free")}

        def enter(loaded: recovery.Loaded) -> bool:
            self._places.remember_calls(loaded.calls)
            self._places.load(loaded.places, loaded.last)
            for record in loaded.crashed:
                self._tell_end(record)
            if loaded.places or loaded.crashed:
                return True
            self._places.load_late()
            self._sending = complete
            return False

        while await self.file.write(
            lambda tx: recovery.load(tx, self._places.last, self._clock.now(), kinds), enter
        ):
            pass

    async def sender(self) -> Holder | None:
        """The process that sends for this file, if one does."""
        return await self._lock.holder()

    # --- in ---

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        self._wake()
        now = self._clock.now()

        def step(tx: Transaction) -> putting.Put:
            done = putting.put(tx, messages, now, self.schedule.kind, self._keep)
            if not self._sending:
                self._note_put(tx, done)
            return done

        tickets: list[Ticket] = await self.file.write(step, self._entered)
        return tickets

    @staticmethod
    def _note_put(tx: Transaction, done: putting.Put) -> None:
        left = [seq for seq, _ in done.replaced if seq not in done.in_place]
        if left:
            tx.note("left", left)
        if done.placed:
            tx.note("put", [place.seq for place in done.placed])

    def _entered(self, done: putting.Put) -> list[Ticket]:
        if self._sending:
            self._places.leave(seq for seq, _ in done.replaced if seq not in done.in_place)
            self._places.enter(done.placed)
            self._dispatch.stir()
        if done.replaced:
            self._look_at({ticket for _, ticket in done.replaced})
        return done.tickets

    # --- out ---

    async def claim(self, room: int) -> list[Claim]:
        await self.start_sending()
        while True:
            if self.file.owes > OWED_AT_MOST:
                raise StoreError(f"{self.file.path} cannot be written: nothing more is sent until it can be")
            claims = await self._take(await self._dispatch.claim(room))
            if claims:
                return claims

    async def _take(self, entries: list[Entry]) -> list[Claim]:
        """Write down that they are being sent, then give them out."""
        seqs = [int(entry.id) for entry in entries]
        written = self.file.write(
            lambda tx: settling.claim(tx, seqs), lambda rows: self._claimed(entries, rows)
        )
        try:
            claims: list[Claim] = await asyncio.shield(written)
        except asyncio.CancelledError:
            written.add_done_callback(self._hand_back)
            raise
        except StoreError:
            return await self._take_unwritten(entries, seqs)
        return claims

    async def _take_unwritten(self, entries: list[Entry], seqs: list[int]) -> list[Claim]:
        """Delivery goes on without the disk, but not of what must not be doubled by a crash."""
        rows: dict[int, Any] = await self.file.read(lambda tx: settling.bodies(tx, seqs))
        claims = self._claimed(entries, rows)
        self.file.write(lambda tx: settling.claim(tx, seqs), sure=True)
        parked = [claim for claim in claims if claim.message.on_unknown == "park"]
        if parked:
            self._settle([Settlement(claim, NotSent("not written")) for claim in parked], delay=UNWRITTEN)
        return [claim for claim in claims if claim not in parked]

    def _claimed(self, entries: list[Entry], rows: dict[int, Any]) -> list[Claim]:
        claims, now = [], self._clock.monotonic()
        for entry in entries:
            row = rows.get(int(entry.id))
            if row is None:  # it ended before its turn came, in another process
                self.schedule.release(entry, now, sent=False)
                self._places.forget(int(entry.id))
                self.schedule.settle_lane(entry.lane, now)
                continue
            created_at, body = row
            message = unpack(body)
            self._held[entry.token] = _Held(entry, message, created_at)
            claims.append(self._claim(entry, message))
        return claims

    def _claim(self, entry: Entry, message: Message) -> Claim:
        if message.chat_id != entry.lane.chat:  # it migrated, or its number is known by now
            message = msgspec.structs.replace(message, chat_id=entry.lane.chat)
        return Claim(message, entry.token, entry.attempts + 1, entry.leased_until - self.schedule.lease)

    def _hand_back(self, written: "asyncio.Future[list[Claim]]") -> None:
        """Whoever claimed these is not there any more."""
        if not written.cancelled() and written.exception() is None:
            self._settle([Settlement(claim, NotSent("given back")) for claim in written.result()])

    async def cool(self, held: Iterable[Claim | Turn]) -> None:
        for one in held:
            if isinstance(one, Turn):
                self._dispatch.cool(self._dispatch.held_turn(one))
            elif one.token in self._held:
                self._dispatch.cool(self._held[one.token].entry)
        self._dispatch.stir()

    async def extend(self, claims: Iterable[Claim]) -> None:
        now = self._clock.monotonic()
        for claim in claims:
            if claim.token in self._held:
                self.schedule.extend(self._held[claim.token].entry, now)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Record | None]:
        records: list[Record | None] = await self._settle(settlements)
        return records

    def _settle(self, settlements: Sequence[Settlement], *, delay: float = 0.0) -> asyncio.Future[Any]:
        now, wall = self._clock.monotonic(), self._clock.now()
        plans = [self._plan(settlement, now, wall) for settlement in settlements]
        made = [plan for plan in plans if plan is not None]
        limits = [limit for plan in made for limit in self._limits(plan.held.entry, plan.outcome, now)]
        ended = [self._ended(plan, now, wall) for plan in made]
        burials = [
            Burial([int(entry.id) for entry in plan.buried], plan.step.reason, plan.step.description)
            for plan in made
            if plan.buried
        ]
        aliases = [
            (plan.held.message.bot, plan.held.entry.lane.chat, plan.alias) for plan in made if plan.alias
        ]
        refused = Counter(plan.held.message.bot for plan in made if isinstance(plan.outcome, Refused))

        def step(tx: Transaction) -> list[Any]:
            settling.settle(tx, ended)
            settling.keep(tx, limits, aliases, wall)
            for bot, count in refused.items():
                tx.count(bot, "refused", count)
            return [
                row
                for burial in burials
                for row in settling.end_waiting(
                    tx, burial.seqs, State.DEAD, wall, None, burial.reason, burial.description
                )
            ]

        def apply(buried: list[Any] | None) -> list[Record | None]:
            for plan in made:
                self._release(plan, delay)
            for _, _, *record in buried or ():
                self._tell_end(record_of(tuple(record), wall))
            self._dispatch.stir()
            return [None if plan is None else plan.record for plan in plans]

        pending: Counts = Counter()
        for each in ended:
            pending[each.bot, State.SENDING] -= 1
            pending[each.bot, each.name] += 1
        for bot, count in refused.items():
            pending[bot, "refused"] += count
        return self.file.write(step, apply, sure=True, pending=pending)

    def _plan(self, settlement: Settlement, now: float, wall: float) -> _Settling | None:
        """What a settlement comes to. From here on its claim is not held any more."""
        held = self._held.pop(settlement.claim.token, None)
        if held is None:
            return None
        entry, message, outcome = held.entry, held.message, settlement.outcome
        entry.leased_until = NEVER  # it cannot be lost any more
        step = after_call(message, entry.attempts, outcome)
        if step.state in {State.QUEUED, State.RETRY} and entry.expires <= now:
            step = Step(State.EXPIRED, step.attempts)  # its deadline passed while it was being sent
        ends = step.state not in {State.QUEUED, State.RETRY}
        self._dispatch.heard(entry, outcome, now)
        record = Record(
            message=message,
            state=step.state,
            created_at=held.created_at,
            attempts=step.attempts,
            crashes=entry.crashes,
            settled_at=wall if ends else None,
            reason=step.reason,
            description=step.description,
            result=outcome.result if isinstance(outcome, Delivered) else None,
        )
        whole_chat = isinstance(outcome, Dead) and outcome.whole_chat
        buried = self.schedule.waiting_in(entry.lane) if whole_chat else []
        alias = _other_name(message.chat_id, outcome)
        return _Settling(held, outcome, now - settlement.age, step, record, buried, alias)

    def _ended(self, plan: _Settling, now: float, wall: float) -> Ended:
        entry, message, record = plan.held.entry, plan.held.message, plan.record
        step, lane = plan.step, plan.held.entry.lane
        retry_at = wall + step.delay if step.state == State.RETRY else None
        call = Call(wall - (now - plan.at), message.bot, lane.chat, lane.kind, entry.paid, entry.cost)
        return Ended(
            seq=int(entry.id),
            bot=message.bot,
            name=message.priority if step.state == State.QUEUED else step.state,
            columns=(
                step.state,
                step.attempts,
                entry.crashes,
                retry_at,
                record.settled_at,
                self._forget_at(record),
                step.reason,
                step.description,
                record.result,
            ),
            call=None if isinstance(plan.outcome, NotSent) else call,
        )

    def _forget_at(self, record: Record) -> float | None:
        if record.settled_at is None or record.state in looking.LETTERS:
            return None
        message = record.message
        lifetime = record.created_at + message.dedup_for if message.dedup_key is not None else 0.0
        return max(record.settled_at + self._keep, lifetime)

    def _limits(self, entry: Entry, outcome: Outcome, now: float) -> list[Limit]:
        return limits_of(self.schedule, entry, now) if isinstance(outcome, Refused) else []

    def _release(self, plan: _Settling, delay: float) -> None:
        """The call is over and written down: its slots cool, its lane goes on."""
        entry, step, now = plan.held.entry, plan.step, self._clock.monotonic()
        lane = entry.lane
        self._dispatch.release(entry, plan.outcome, plan.at)
        self._go_on(entry, step, now, delay)
        for other in plan.buried:
            if not other.token and int(other.id) in self._places:
                self._places.leave([int(other.id)])
        if plan.alias is not None:
            self._dispatch.alias(lane, plan.alias, now)
        self.schedule.settle_lane(entry.lane, now)
        if plan.record.settled_at is not None:
            self._tell_end(plan.record)

    def _go_on(self, entry: Entry, step: Step, now: float, delay: float = 0.0) -> None:
        entry.attempts = step.attempts
        if step.state in {State.QUEUED, State.RETRY}:
            delay = max(delay, step.delay)
            entry.retrying = step.state == State.RETRY
            self.schedule.again(entry, now + delay if delay else 0.0)
        else:
            entry.expires = NEVER  # its timer means nothing any more
            self._places.forget(int(entry.id))

    def _tell_end(self, record: Record) -> None:
        if self._on_end is not None:
            self._on_end(record)
        self._tell_watchers(record)

    def _tell_watchers(self, record: Record) -> None:
        self._watch.ended(record.message.id, lambda: record)

    # --- what passes by itself ---

    def _wake(self) -> float:
        now = self._clock.monotonic()
        self._dispatch.wake(now)
        return now

    def _settle_woken(self, expired: list[Entry], lost: list[Entry], now: float) -> None:
        messages = [entry for entry in expired if entry.level != TURN]
        if messages:
            self._expire(messages)
        for entry in lost:
            held = self._held.pop(entry.token, None)
            if held is None:  # it waits for the disk
                self.schedule.extend(entry, now)
            else:
                self._lose(held, now)

    def _expire(self, entries: list[Entry]) -> None:
        seqs, wall, pending = [int(entry.id) for entry in entries], self._clock.now(), self._pending()
        for entry in entries:
            self._places.forget(int(entry.id))
            pending[entry.lane.bot.id, self._places.counted_as(entry)] -= 1
            pending[entry.lane.bot.id, State.EXPIRED] += 1

        def tell(rows: list[Any] | None) -> None:
            for _, _, *record in rows or ():
                self._tell_end(record_of(tuple(record), wall))

        self.file.write(
            lambda tx: settling.end_waiting(tx, seqs, State.EXPIRED, wall, self._keep),
            tell,
            sure=True,
            pending=pending,
        )

    @staticmethod
    def _pending() -> Counts:
        return Counter()

    def _lose(self, held: _Held, now: float) -> None:
        """The lease ran out: whoever sent it has died or hangs."""
        entry, message, wall = held.entry, held.message, self._clock.now()
        entry.crashes += 1
        step = after_crash(message, entry.attempts, entry.crashes)
        if step.state == State.QUEUED and entry.expires <= now:
            step = Step(State.EXPIRED, step.attempts)
        ends = step.state != State.QUEUED
        record = Record(
            message=message,
            state=step.state,
            created_at=held.created_at,
            attempts=step.attempts,
            crashes=entry.crashes,
            settled_at=wall if ends else None,
            reason=step.reason,
            description=step.description,
        )
        plan = _Settling(held, _LOST, now, step, record, [], None)
        ended = self._ended(plan, now, wall)
        pending = self._pending()
        pending[message.bot, State.SENDING] -= 1
        pending[message.bot, ended.name] += 1
        self.schedule.release(entry, now)
        self._go_on(entry, step, now)
        self.schedule.settle_lane(entry.lane, now)

        def tell(_: object) -> None:
            if ends:
                self._tell_end(record)

        self.file.write(lambda tx: settling.settle(tx, [ended]), tell, sure=True, pending=pending)

    # --- turns ---

    async def turn(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> Turn:
        await self.start_sending()
        turn = await self._dispatch.turn(bot, chat_id, family, cost)
        entry = self._dispatch.held_turn(turn)
        if entry is not None and self._counts_for_long(entry):
            await self._note_turn(turn, entry)
        return turn

    def _counts_for_long(self, entry: Entry) -> bool:
        shared = self.schedule.pool_of(entry.lane.bot, entry.lane.kind).window
        windows = (*entry.lane.windows, shared) if shared is not None else entry.lane.windows
        return max(window.seconds for window in windows) > self._quarantine

    async def _note_turn(self, turn: Turn, entry: Entry) -> None:
        """Before the call is made: it counts for longer than a sender that knows nothing of it would wait."""
        lane = entry.lane
        call = Call(math.inf, turn.bot, lane.chat, lane.kind, entry.paid, entry.cost)
        noted = self.file.write(
            lambda tx: settling.called(tx, [call]), lambda row: self._noted.update({turn.token: row})
        )
        try:
            await asyncio.shield(noted)
        except StoreError:
            pass  # delivery goes on without the disk
        except asyncio.CancelledError:
            noted.add_done_callback(lambda _: self._end_turn(turn, NotSent("cancelled"), 0.0))
            raise

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float = 0.0) -> None:
        self._end_turn(turn, outcome, age)

    def _end_turn(self, turn: Turn, outcome: Outcome, age: float) -> None:
        now, wall = self._clock.monotonic(), self._clock.now()
        entry = self._dispatch.held_turn(turn)
        lane = self._dispatch.end_turn(turn, outcome, age)
        if entry is None or lane is None:
            return
        alias = _other_name(turn.chat_id, outcome)
        limits = self._limits(entry, outcome, now)
        call = Call(wall - age, turn.bot, lane.chat, lane.kind, entry.paid, entry.cost)
        aliases = [(turn.bot, lane.chat, alias)] if alias is not None else []
        self._keep_turn(call, limits, aliases, outcome, self._noted.pop(turn.token, None))
        if isinstance(outcome, Dead) and outcome.whole_chat:
            self._bury(lane, outcome)
        elif alias is not None and isinstance(outcome, Delivered):
            self._dispatch.alias(lane, alias, now)
        self._dispatch.stir()

    def _keep_turn(
        self, call: Call, limits: list[Limit], aliases: list[Any], outcome: Outcome, noted: int | None
    ) -> None:
        """Not waited for: a restart that does not know of the last few calls waits anyway."""
        pending, refused, wall = self._pending(), isinstance(outcome, Refused), self._clock.now()
        if refused:
            pending[call.bot, "refused"] += 1

        def step(tx: Transaction) -> None:
            if noted is not None:
                tx.execute("DELETE FROM calls WHERE n = ?", (noted,))
            if not isinstance(outcome, NotSent):
                settling.called(tx, [call])
            settling.keep(tx, limits, aliases, wall)
            if refused:
                tx.count(call.bot, "refused")

        self.file.write(step, sure=True, pending=pending)

    def _bury(self, lane: Lane, outcome: Dead) -> None:
        entries, wall = self.schedule.waiting_in(lane), self._clock.now()
        seqs, pending = [int(entry.id) for entry in entries], self._pending()
        self._places.leave(seqs)
        for entry in entries:
            pending[lane.bot.id, self._places.counted_as(entry)] -= 1
            pending[lane.bot.id, State.DEAD] += 1

        def tell(rows: list[Any] | None) -> None:
            for _, _, *record in rows or ():
                self._tell_end(record_of(tuple(record), wall))

        self.file.write(
            lambda tx: settling.end_waiting(
                tx, seqs, State.DEAD, wall, None, outcome.reason, outcome.description
            ),
            tell,
            sure=True,
            pending=pending,
        )

    def wait_for(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> float:
        chat = self._dispatch.chat(bot, chat_id)
        return self.schedule.wait_for(bot, chat, family, cost, self._clock.monotonic())

    # --- operators ---

    async def cancel(self, ids: Iterable[TicketId]) -> int:
        self._wake()
        wanted, now = list(ids), self._clock.now()

        def step(tx: Transaction) -> list[Any]:
            seqs = settling.seqs_of(tx, wanted)
            rows = settling.end_waiting(tx, seqs, State.CANCELLED, now, self._keep)
            if rows and not self._sending:
                tx.note("left", [seq for seq, *_ in rows])
            return rows

        def apply(rows: list[Any]) -> int:
            self._places.leave(seq for seq, *_ in rows)
            for _, _, *record in rows:
                self._tell_end(record_of(tuple(record), now))
            self._dispatch.stir()
            return len(rows)

        cancelled: int = await self.file.write(step, apply)
        return cancelled

    async def pause(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        await self._pause(bot, chat_id, paused=True)

    async def resume(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        await self._pause(bot, chat_id, paused=False)

    async def _pause(self, bot: BotId, chat_id: ChatId | None, *, paused: bool) -> None:
        def step(tx: Transaction) -> ChatId | None:
            chat = None if chat_id is None else looking.chat_now(tx, bot, chat_id)
            place = (bot, WHOLE_BOT if chat is None else chat)
            tx.execute("DELETE FROM pauses WHERE bot = ? AND chat_id = ?", place)
            if paused:
                tx.execute("INSERT INTO pauses VALUES (?, ?)", place)
            if not self._sending:
                tx.note("pause", (bot, chat, paused))
            return chat

        await self.file.write(step, lambda chat: self._follow_pause(bot, chat, paused=paused))

    def _follow_pause(self, bot: BotId, chat: ChatId | None, *, paused: bool) -> None:
        if self._sending:
            self.schedule.pause(bot, chat, paused=paused, now=self._clock.monotonic())
            self._dispatch.stir()

    async def find(self, ticket: TicketId) -> Record | None:
        self._wake()
        now = self._clock.now()
        record: Record | None = await self.file.read(lambda tx: looking.find(tx, ticket, now))
        return record

    async def settled(self, ticket: TicketId) -> Record:
        ended = self._watch.end_of(ticket)  # before the look: it may end meanwhile
        try:
            record = await self.find(ticket)
            if record is None:
                raise LookupError(f"no message {ticket} is known: it was never put, or ended too long ago")
            if record.state not in {State.QUEUED, State.RETRY, State.SENDING}:
                return record
            self._dispatch.arm()
            return await ended
        finally:
            ended.cancel()

    async def drained(self, bot: BotId | None = None) -> None:
        self._wake()
        drained = self._watch.end_of_all(bot)
        self._dispatch.arm()
        await drained

    async def dead(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        reason: str | None = None,
        states: frozenset[State] = looking.LETTERS,
        limit: int = 100,
    ) -> list[Record]:
        return await self.records(
            bot=bot, chat_id=chat_id, reason=reason, states=states & looking.LETTERS, limit=limit
        )

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
        now = self._clock.now()
        found: list[Record] = await self.file.read(
            lambda tx: looking.records(
                tx,
                now,
                bot=bot,
                chat_id=chat_id,
                states=states,
                reason=reason,
                before=before,
                limit=limit,
            )
        )
        return found

    async def tally(self, bot: BotId, dedup_prefix: str) -> dict[tuple[State, str | None], int]:
        self._wake()
        found: dict[tuple[State, str | None], int] = await self.file.read(
            lambda tx: looking.tally(tx, bot, dedup_prefix)
        )
        return found

    async def pauses(self) -> list[tuple[BotId, ChatId | None]]:
        """Bots (None) and chats that are paused."""
        found: list[tuple[BotId, ChatId | None]] = await self.file.read(looking.pauses)
        return found

    async def replay(self, ids: Iterable[TicketId]) -> int:
        self._wake()
        wanted = list(ids)

        def step(tx: Transaction) -> list[Place]:
            placed = putting.replay(tx, wanted)
            if placed and not self._sending:
                tx.note("put", [place.seq for place in placed])
            return placed

        def apply(placed: list[Place]) -> int:
            if self._sending:
                self._places.enter(placed)
                self._dispatch.stir()
            return len(placed)

        replayed: int = await self.file.write(step, apply)
        return replayed

    async def drop(self, ids: Iterable[TicketId]) -> int:
        wanted = list(ids)
        dropped: int = await self.file.write(lambda tx: settling.drop(tx, wanted))
        return dropped

    async def forget(self, chat_id: ChatId, bot: BotId | None = None) -> int:
        def step(tx: Transaction) -> list[int]:
            gone = settling.erase(tx, looking.names_of(tx, chat_id), bot)
            if gone and not self._sending:
                tx.note("left", gone)
            return gone

        def apply(gone: list[int]) -> int:
            self._places.leave(gone)
            self._watch.changed()
            self._dispatch.stir()
            return len(gone)

        forgotten: int = await self.file.write(step, apply)
        # Else it could be read from the log of writes for a while.
        await self.file.read(lambda tx: tx.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
        return forgotten

    # --- why ---

    async def why(self, ticket: TicketId) -> Why | None:
        now = self._wake()
        if self._sending:
            seq, record = await self.file.read(lambda tx: self._seq_and_record(tx, ticket))
            return self._explain(seq, record, now)
        if await self.sender() is not None:
            answer = await self._ask(ticket)
            if answer is not None:
                return answer
        return await self._why_nobody_sends(ticket)

    def _seq_and_record(self, tx: Transaction, ticket: TicketId) -> tuple[int, Record | None]:
        record = looking.find(tx, ticket, self._clock.now())
        return (settling.seqs_of(tx, [ticket])[0], record) if record is not None else (0, None)

    def _explain(self, seq: int, record: Record | None, now: float) -> Why | None:
        if record is None:
            return None
        entry = self._places.get(seq)
        if entry is None:
            return Why(record.state, (), None)
        due = record.message.not_before
        until_due = max(0.0, due - self._clock.now()) if due is not None and entry.seq == 0 else 0.0
        return explain(entry, record.state, until_due, now)

    async def _ask(self, ticket: TicketId) -> Why | None:
        """The sender knows. None if it does not answer."""
        question = await self.file.write(lambda tx: journal.ask_why(tx, ticket))
        with suppress(TimeoutError):
            async with self._clock.timeout(ANSWER_WITHIN):
                while True:
                    await self._clock.sleep(self._poll)
                    answer: Why | None = await self.file.write(lambda tx: journal.take_answer(tx, question))
                    if answer is not None:
                        return answer
        return None

    async def _why_nobody_sends(self, ticket: TicketId) -> Why | None:
        record = await self.find(ticket)
        if record is None or record.state not in {State.QUEUED, State.RETRY, State.SENDING}:
            return None if record is None else Why(record.state, (), None)
        message = record.message
        waits = ["nobody sends: start a worker (tidegate worker)"]
        if await self.file.read(lambda tx: looking.is_paused(tx, message.bot, message.chat_id)):
            waits.append("its bot or chat is paused")
        if message.not_before is not None and message.not_before > self._clock.now():
            waits.append(f"its time comes in {message.not_before - self._clock.now():.1f} s")
        return Why(record.state, tuple(waits), None)

    # --- other processes ---

    async def _follow(self) -> None:
        """Look at what other processes did, and remove what nobody needs any more."""
        seen, clean_at = await self.file.changed(), 0.0
        while True:
            await self._clock.sleep(self._poll)
            try:
                version = await self.file.changed()
                if version != seen:
                    await self._catch_up()
                    seen = version
                if self.file.owes:
                    await self.file.write(lambda _: None)
                if self._sending and self._clock.monotonic() >= clean_at:
                    await self._clean()
                    clean_at = self._clock.monotonic() + CLEAN_EVERY
            except StoreError as error:
                log.debug("%s", error)  # told where it matters; here it is tried again

    async def _catch_up(self) -> None:
        if self._sending:
            await self.file.write(journal.take, self._follow_journal)
        await self.file.refresh_counts()
        self._watch.changed()
        self._look_at(set(self._watch.tickets))

    def _follow_journal(self, entries: list[journal.Entry]) -> None:
        for verb, body in entries:
            if verb == "put":
                self._places.enter(body)
            elif verb == "left":
                self._places.leave(body)
            elif verb == "pause":
                bot, chat, paused = body
                self._follow_pause(bot, chat, paused=paused)
            elif verb == "why":
                self._answer(*body)
            elif verb == "bots" and self._on_bots is not None:
                self._on_bots()
        self._dispatch.stir()

    def _answer(self, question: int, ticket: TicketId) -> None:
        def step(tx: Transaction) -> tuple[int, Record | None]:
            return self._seq_and_record(tx, ticket)

        def answer(found: tuple[int, Record | None]) -> None:
            why = self._explain(*found, self._clock.monotonic())
            self.file.write(lambda tx: journal.answer_why(tx, question, why))

        self.file.read(step, answer)

    def _look_at(self, tickets: set[TicketId]) -> None:
        """Those that somebody waits for may have ended."""
        now = self._clock.now()
        watched = tickets & set(self._watch.tickets)
        if watched:
            self.file.read(lambda tx: [looking.find(tx, ticket, now) for ticket in watched], self._seen)

    def _seen(self, records: list[Record | None]) -> None:
        for record in records:
            if record is not None and record.settled_at is not None:
                self._tell_watchers(record)

    async def _clean(self) -> None:
        rules, now = self.schedule.rules, self._clock.now()
        longest = max(rate.seconds for rate in (rules.bot, rules.private, rules.group, *rules.actions))
        after = self._cleaned
        self._cleaned = await self.file.write(lambda tx: settling.clean(tx, now, longest, after))

    # --- numbers ---

    def learned(self) -> dict[tuple[BotId, ChatId | None], Rate]:
        return self.schedule.learned()

    def stats(self) -> Stats:
        self._wake()
        totals: Counter[str] = Counter()
        for counts in (self.file.counts, self.file.pending):
            for (_, name), count in counts.items():
                totals[name] += count
        known = {name: count for name, count in totals.items() if name in Stats.__struct_fields__}
        return Stats(**known, uncertain=self._dispatch.uncertain, urgent=self.schedule.urgent_in_debt)

    def waiting_by_bot(self) -> Counter[BotId]:
        """How many messages of each bot have not come to an end."""
        totals: Counter[BotId] = Counter()
        for counts in (self.file.counts, self.file.pending):
            for (bot, name), count in counts.items():
                if name in OPEN:
                    totals[bot] += count
        return totals

    def _left(self, bot: BotId | None) -> int:
        waiting = self.waiting_by_bot()
        return waiting[bot] if bot is not None else waiting.total()


_LOST: Final = Dead("lost", "its lease ran out")


def _take_note(task: "asyncio.Task[None]") -> None:
    """Its failure was told to whoever waited for it, if anybody still did."""
    if not task.cancelled():
        task.exception()


def _other_name(chat: ChatId, outcome: Outcome) -> ChatId | None:
    """What an answer tells of a chat's number: it has moved, or it is known by an @name so far."""
    if isinstance(outcome, Migrated):
        return outcome.chat_id
    result = outcome.result if isinstance(outcome, Delivered) and isinstance(chat, str) else None
    known = result.get("chat") if isinstance(result, dict) else None
    number = known.get("id") if isinstance(known, dict) else None
    return number if isinstance(number, int) else None
