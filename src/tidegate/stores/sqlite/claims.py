"""Claims of the outbox in the SQLite file: taken, settled, lost; and messages that end without being sent.

A claim is written before it is given out, a settlement before its lane goes on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError
from tidegate.model import (
    BotId,
    Claim,
    Dead,
    Delivered,
    Message,
    NotSent,
    Outcome,
    Record,
    Refused,
    Settlement,
    State,
)
from tidegate.outbox.dispatcher import OutboxDispatcher
from tidegate.outbox.flood_control import limits_of
from tidegate.outbox.lanes import NEVER, TURN, Entry, Lane
from tidegate.outbox.transitions import NextState, after_call, after_crash, other_name
from tidegate.stores.message_codec import UnreadableBody, read_body
from tidegate.stores.sqlite import settle_sql
from tidegate.stores.sqlite.file import MOST_UNWRITTEN_STEPS, Counts, StoreFile, Transaction
from tidegate.stores.sqlite.message_rows import Buried, bury_unreadable, record_of, report_buried
from tidegate.stores.sqlite.recovery import ScheduledRows
from tidegate.stores.sqlite.settle_sql import PlannedSettlement

UNWRITTEN_RETRY: Final = (
    1.0  # seconds until the next try of what must not be sent unless that is written down
)
_LOST: Final = Dead("lost", "its lease ran out")


class _Held(msgspec.Struct, frozen=True, gc=False):
    """A message that is being sent."""

    entry: Entry
    message: Message  # as it was put
    created_at: float


class Claims:
    """`tell_end` is called for every message that ends here, once that is on disk."""

    def __init__(
        self,
        file: StoreFile,
        dispatcher: OutboxDispatcher,
        rows: ScheduledRows,
        clock: Clock,
        *,
        keep: float,
        tell_end: Callable[[Record], None],
    ) -> None:
        self._file = file
        self._dispatcher = dispatcher
        self._schedule = dispatcher.schedule
        self._rows = rows
        self._clock = clock
        self._keep = keep
        self._tell_end = tell_end
        self._held: dict[int, _Held] = {}  # by the token of the claim

    def __len__(self) -> int:
        return len(self._held)

    def entry(self, claim: Claim) -> Entry | None:
        """The entry of a claim; None if it is no longer held."""
        held = self._held.get(claim.token)
        return None if held is None else held.entry

    async def take(self, entries: list[Entry]) -> list[Claim]:
        """Write that they are being sent, then give out those that have not ended in another process."""
        if self._file.health.place == "replaced":
            self._dispatcher.give_back(entries)
            raise ClosedError(self._file.health.gone)
        if self._file.owes > MOST_UNWRITTEN_STEPS:
            self._dispatcher.give_back(entries)
            raise StoreError(f"{self._file.path} cannot be written: nothing more is sent until it can be")
        seqs = [int(entry.id) for entry in entries]
        written = self._file.write(
            lambda tx: settle_sql.mark_sending(tx, seqs),
            lambda rows: self._claimed(entries, rows),
            delivers=True,
        )
        try:
            claims: list[Claim] = await asyncio.shield(written)
        except asyncio.CancelledError:
            written.add_done_callback(lambda done: self._hand_back(done, entries))
            raise
        except StoreError:
            return await self._take_unwritten(entries, seqs)
        return claims

    async def _take_unwritten(self, entries: list[Entry], seqs: list[int]) -> list[Claim]:
        """Delivery goes on without the disk, except for messages that a crash must not double."""
        try:
            rows: dict[int, Any] = await self._file.read(lambda tx: settle_sql.read_bodies(tx, seqs))
        except BaseException:
            self._dispatcher.give_back(entries)
            raise
        going, pending = [], Counter[tuple[BotId, str]]()
        for claim in self._claimed(entries, rows, written=False):
            entry = self._held[claim.token].entry
            if claim.message.on_unknown == "park":
                self._put_off(claim)
                continue
            pending[entry.lane.bot.id, self._rows.counted_as(entry)] -= 1
            pending[entry.lane.bot.id, State.SENDING] += 1
            going.append(claim)
        if going:
            sent = [int(self._held[claim.token].entry.id) for claim in going]
            self._file.write(lambda tx: settle_sql.mark_sending(tx, sent), sure=True, pending=pending)
        return going

    def _put_off(self, claim: Claim) -> None:
        """Return a claim to the head of its line, to be tried again soon. In the file it has not moved."""
        entry, now = self._held.pop(claim.token).entry, self._clock.monotonic()
        self._schedule.release(entry, now, sent=False)
        if entry.expires > now:
            self._schedule.again(entry, now + UNWRITTEN_RETRY)
        else:  # its deadline passed meanwhile
            self._rows.forget(int(entry.id))
            self._end([entry], State.EXPIRED)
        self._schedule.settle_lane(entry.lane, now)

    def _claimed(self, entries: list[Entry], rows: dict[int, Any], *, written: bool = True) -> list[Claim]:
        """`written`: the file says that these are being sent."""
        claims, lease = [], self._schedule.lease
        for entry in entries:
            row = rows.get(int(entry.id))
            if row is None:
                self._drop(entry)
                continue
            created_at, body, ticket, chat_id = row
            message = read_body(body, ticket, entry.lane.bot.id, chat_id)
            if isinstance(message, UnreadableBody):
                self._bury(entry, message, State.SENDING if written else self._rows.counted_as(entry))
                continue
            self._held[entry.token] = _Held(entry, message, created_at)
            if message.chat_id != entry.lane.chat:  # it migrated, or its number is known by now
                message = msgspec.structs.replace(message, chat_id=entry.lane.chat)
            granted_at = entry.leased_until - lease
            probe = self._schedule.probe_of(entry, granted_at)
            claims.append(Claim(message, entry.token, entry.attempts + 1, granted_at, probe))
        return claims

    def _drop(self, entry: Entry) -> None:
        """Take an entry out of the schedule that was not sent: it ended in another process, or cannot be."""
        now = self._clock.monotonic()
        self._schedule.release(entry, now, sent=False)
        self._rows.forget(int(entry.id))
        self._schedule.settle_lane(entry.lane, now)

    def _bury(self, entry: Entry, body: UnreadableBody, counted_as: str) -> None:
        """It cannot be decoded, so it is not sent, and its line goes on."""
        seq, bot, wall = int(entry.id), entry.lane.bot.id, self._clock.now()
        self._drop(entry)

        def tell(buried: list[Buried] | None) -> None:
            report_buried(buried or ())
            for record, _ in buried or ():
                self._tell_end(record)

        self._file.write(
            lambda tx: bury_unreadable(tx, {seq: body}, wall),
            tell,
            sure=True,
            pending=Counter({(bot, counted_as): -1, (bot, State.DEAD): 1}),
            late=tell,
        )

    def _hand_back(self, written: "asyncio.Future[list[Claim]]", entries: list[Entry]) -> None:
        """The task that claimed these was cancelled."""
        if written.exception() is None:
            self.settle([Settlement(claim, NotSent("given back")) for claim in written.result()])
        else:
            self._dispatcher.give_back(entries)

    def settle(self, settlements: Sequence[Settlement]) -> asyncio.Future[Any]:
        """Settle claims; done when it is on disk. The records, None where the claim is no longer held.

        If one of them cannot be settled, it raises, and all of them are held as before.
        """
        now, wall = self._clock.monotonic(), self._clock.now()
        tokens = [settlement.claim.token for settlement in settlements]
        held = {token: self._held[token] for token in tokens if token in self._held}
        try:
            plans = [self._plan(settlement, now, wall) for settlement in settlements]
        except Exception:
            self._hold_again(held)
            raise
        made = [plan for plan in plans if plan is not None]
        limits = [
            limit
            for plan in made
            if isinstance(plan.outcome, Refused)
            for limit in limits_of(self._schedule, plan.entry, now)
        ]

        def step(tx: Transaction) -> list[Any]:
            settle_sql.write_settlements(tx, made)
            settle_sql.store_limits(tx, limits, wall)
            return settle_sql.write_consequences(tx, made, wall)

        def apply(buried: list[Any] | None) -> list[Record | None]:
            held.clear()  # it is written, whatever happens from here on
            after = self._clock.monotonic()
            for plan in made:
                self._release(plan, after)
            self._tell_ends(buried, wall)
            self._dispatcher.stir()
            return [None if plan is None else plan.record for plan in plans]

        def late(buried: list[Any]) -> None:
            self._tell_ends(buried, wall)

        written = self._file.write(step, apply, sure=True, pending=_pending(made), late=late)
        # Before the caller's own callback, so that it can settle them again at once.
        written.add_done_callback(lambda done: self._hold_again(held) if _has_failed(done) else None)
        return written

    def _hold_again(self, held: dict[int, _Held]) -> None:
        """Nothing was written of their settlements. From now on they have a new lease."""
        now = self._clock.monotonic()
        for token, one in held.items():
            self._held[token] = one
            self._schedule.extend(one.entry, now)

    def _plan(self, settlement: Settlement, now: float, wall: float) -> PlannedSettlement | None:
        """Decide what a settlement changes. From here on its claim is not held any more."""
        held = self._held.pop(settlement.claim.token, None)
        if held is None:
            return None
        entry, outcome = held.entry, settlement.outcome
        entry.leased_until = NEVER  # it cannot be lost any more
        self._dispatcher.heard(entry, outcome, now)
        step = after_call(held.message, entry.attempts, outcome, settlement.max_attempts)
        plan = self._settling(held, outcome, step, now, wall)
        plan.answered, plan.called_at = now - settlement.age, wall - settlement.age
        if isinstance(outcome, Dead) and outcome.whole_chat:
            plan.buried = self._schedule.waiting_in(entry.lane)
        plan.alias = other_name(held.message.chat_id, outcome)
        return plan

    def _settling(
        self, held: _Held, outcome: Outcome, step: NextState, now: float, wall: float
    ) -> PlannedSettlement:
        entry, message = held.entry, held.message
        if _waits(step.state) and entry.expires <= now:
            step = NextState(State.EXPIRED, step.attempts)  # its deadline passed while it was being sent
        ends = not _waits(step.state)
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
        forget_at = self._forget_at(record) if ends else None
        return PlannedSettlement(entry, entry.lane.chat, outcome, record, step.delay, forget_at, now, wall)

    def _forget_at(self, record: Record) -> float | None:
        if record.state is State.DEAD or record.state is State.PARKED:
            return None
        message = record.message
        lifetime = record.created_at + message.dedup_for if message.dedup_key is not None else 0.0
        return max((record.settled_at or 0.0) + self._keep, lifetime)

    def _release(self, plan: PlannedSettlement, now: float) -> None:
        """The call is over and on disk: its slots cool, its lane goes on."""
        entry = plan.entry
        lane = entry.lane
        self._dispatcher.release(entry, plan.outcome, plan.answered)
        self._go_on(plan, now)
        if plan.buried:
            self._rows.leave(int(other.id) for other in plan.buried)
        if plan.alias is not None:
            self._dispatcher.alias(lane, plan.alias, now)
        self._schedule.settle_lane(entry.lane, now)
        if plan.record.settled_at is not None:
            self._tell_end(plan.record)

    def _go_on(self, plan: PlannedSettlement, now: float) -> None:
        entry, state = plan.entry, plan.record.state
        entry.attempts = plan.record.attempts
        if _waits(state):
            entry.retrying = state is State.RETRY
            self._schedule.again(entry, now + plan.delay if plan.delay else 0.0)
        else:
            entry.expires = NEVER  # its timer means nothing any more
            self._rows.forget(int(entry.id))

    def settle_woken(self, expired: list[Entry], lost: list[Entry], now: float) -> None:
        messages = [entry for entry in expired if entry.level < TURN]
        if messages:
            for entry in messages:
                self._rows.forget(int(entry.id))
            self._end(messages, State.EXPIRED)
        for entry in lost:
            held = self._held.pop(entry.token, None)
            if held is None:  # it waits for the disk
                self._schedule.extend(entry, now)
            else:
                self._lose(held, now)

    def _lose(self, held: _Held, now: float) -> None:
        """The lease ran out: its worker has died or hangs."""
        entry, wall = held.entry, self._clock.now()
        entry.crashes += 1
        step = after_crash(held.message, entry.attempts, entry.crashes)
        plan = self._settling(held, _LOST, step, now, wall)
        self._schedule.release(entry, now)
        self._go_on(plan, now)
        self._schedule.settle_lane(entry.lane, now)

        def tell(_: object) -> None:
            if plan.record.settled_at is not None:
                self._tell_end(plan.record)

        self._file.write(
            lambda tx: settle_sql.write_settlements(tx, [plan]), tell, sure=True, pending=_pending([plan])
        )

    def bury(self, lane: Lane, outcome: Dead) -> None:
        """A direct call found that nothing for its chat can succeed: what waits in its lane dies, too."""
        entries = self._schedule.waiting_in(lane)
        self._rows.leave(int(entry.id) for entry in entries)
        self._end(entries, State.DEAD, outcome.reason, outcome.description)

    def _end(
        self, entries: list[Entry], state: State, reason: str | None = None, description: str | None = None
    ) -> None:
        """They left the schedule without being sent."""
        seqs, wall = [int(entry.id) for entry in entries], self._clock.now()
        keep = None if state is State.DEAD else self._keep
        pending: Counts = Counter()
        for entry in entries:
            pending[entry.lane.bot.id, self._rows.counted_as(entry)] -= 1
            pending[entry.lane.bot.id, state] += 1

        def tell(rows: list[Any] | None) -> None:
            self._tell_ends(rows, wall)

        self._file.write(
            lambda tx: settle_sql.end_waiting(tx, seqs, state, wall, keep, reason, description),
            tell,
            sure=True,
            pending=pending,
            late=tell,
        )

    def _tell_ends(self, rows: Iterable[Any] | None, wall: float) -> None:
        for _, _, *record in rows or ():
            self._tell_end(record_of(tuple(record), wall))


def _has_failed(done: asyncio.Future[Any]) -> bool:
    return not done.cancelled() and done.exception() is not None


def _waits(state: State) -> bool:
    return state is State.QUEUED or state is State.RETRY


def _pending(plans: Iterable[PlannedSettlement]) -> Counts:
    """The changes that these make to the counts."""
    pending: Counts = Counter()
    for (bot, name), count in Counter((plan.record.message.bot, plan.counted_as) for plan in plans).items():
        pending[bot, State.SENDING] -= count
        pending[bot, name] += count
    for plan in plans:
        if isinstance(plan.outcome, Refused):
            pending[plan.record.message.bot, "refused"] += 1
    return pending
