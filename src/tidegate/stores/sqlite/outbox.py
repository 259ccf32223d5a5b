"""The outbox in the SQLite file: messages are in the file, the schedule in the sender's memory."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import ClosedError, NotTheSenderError, StoreError
from tidegate.events import EventStream
from tidegate.model import (
    BotId,
    ChatId,
    Claim,
    Message,
    NotSent,
    Outcome,
    Priority,
    Record,
    Settlement,
    Ticket,
)
from tidegate.outbox.call_counts import STORED_EVERY
from tidegate.outbox.dispatcher import OutboxDispatcher
from tidegate.outbox.lanes import Entry
from tidegate.outbox.limit_states import closure_notes_in
from tidegate.outbox.port import Outbox, StoreHealth, Turn
from tidegate.outbox.schedule import Schedule
from tidegate.pacing.rules import Family, Rules
from tidegate.stores.group_commit import GroupCommit
from tidegate.stores.sqlite import journal, put_sql, recovery
from tidegate.stores.sqlite.claims import Claims
from tidegate.stores.sqlite.file import BUSY_TIMEOUT, StoreFile, Transaction
from tidegate.stores.sqlite.journal import JournalFollower
from tidegate.stores.sqlite.operator import SqliteOperator
from tidegate.stores.sqlite.recovery import ScheduledRows
from tidegate.stores.sqlite.sender_lock import SenderLock
from tidegate.stores.sqlite.turns import QUARANTINE_AT_MOST, SqliteTurns, quarantine
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.store")

LOST_LOCK: Final = (
    "another process has taken over sending for {path}, because the lock file was removed: this one no longer"
    " sends until it is restarted"
)
POLL_EVERY: Final = 0.05  # seconds between two looks at what other processes did
LOCK_CHECKED_EVERY: Final = 0.02  # seconds at least; a new sender waits for a second before it sends
MOST_PUT_TOGETHER: Final = 1_000  # messages


class SqliteOutbox(SqliteOperator, Outbox):
    """Keeps what has ended for `keep` seconds, or for its dedup lifetime if that is longer."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        rules: Rules | None = None,
        *,
        lease: float = 30.0,
        keep: float = 600.0,
        poll: float = POLL_EVERY,
        busy_timeout: float = BUSY_TIMEOUT,
        events: EventStream | None = None,
        on_bots: Callable[[], None] | None = None,
    ) -> None:
        file = StoreFile(path, clock, busy_timeout=busy_timeout)
        schedule = Schedule(rules or Rules(), lease=lease)
        dispatcher = OutboxDispatcher(
            schedule,
            clock,
            events or EventStream(),
            settle_woken=self._settle_woken,
            watched=lambda: bool(self._waiters),
            waiting=self._unsettled,
        )
        rows = ScheduledRows(schedule, dispatcher, clock)
        super().__init__(
            file,
            rows,
            dispatcher,
            SenderLock(path),
            clock,
            keep=keep,
            poll=poll,
            on_bots=on_bots,
        )
        self._claims = Claims(file, dispatcher, rows, clock, keep=keep, tell_end=self._tell_end)
        self._turns = SqliteTurns(file, dispatcher, self._claims, clock)
        self._follower = JournalFollower(
            file,
            clock,
            longest=lambda: schedule.longest,
            poll=poll,
            catch_up=self._catch_up,
            sends=lambda: self._sending,
            check=self._watch_lock,
        )
        # Puts of many tasks in one step: several times faster.
        self._puts: GroupCommit[Message, list[Ticket]] = GroupCommit(
            self._put, file.is_last, MOST_PUT_TOGETHER
        )
        self._tasks = BackgroundTasks()
        self._starting: asyncio.Task[None] | None = None
        self._has_lost_lock = self._was_sender = False
        self._taking_again = asyncio.Lock()
        self._check_lock_at = 0.0
        self._is_open = False
        self._store_counts_at: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        await self._lock.check_not_deleted()
        await self.file.open()
        self._is_open = True
        self._tasks.supervise(self._follower.run, f"what follows {self.file.path}", self._clock)

    async def close(self) -> None:
        await self._tasks.stop()
        self._starting = None
        self._dispatcher.close()
        self._waiters.close()
        if self._store_counts_at is not None:
            self._store_counts_at.cancel()
        if self._is_open:
            self._store_counts()
        self._is_open = False
        self._was_sender = self._sending
        if self._sending and await self._lock.keep():
            self._sending = False
            with suppress(StoreError):
                await self.file.write(self._hand_over, delivers=True)
        if self.file.health.gone is not None:
            await self._rescue()
        await self.file.close()
        await self._lock.release()

    def health(self) -> StoreHealth:
        problems = [*self.file.problems(), *self._tasks.problems()]
        if self._has_lost_lock:
            problems.append(LOST_LOCK.format(path=self.file.path))
        notes = closure_notes_in(self.schedule, self._clock.monotonic())
        return StoreHealth().with_problems(problems).with_notes(notes)

    async def _rescue(self) -> None:
        """The file is no longer at its path, and gone with this process: save what waits in it."""
        waiting = self._unsettled(None)
        if not waiting or (not self._was_sender and await self._lock.holder() is not None):
            return  # another process sends, and does this
        try:
            saved = await self.file.rescue()
        except StoreError as error:
            log.critical("%s: %s messages are lost", error, waiting)
        else:
            log.critical(
                "%s messages still wait, and are saved in %s: move it to %s", waiting, saved, self.file.path
            )

    def _hand_over(self, tx: Transaction) -> None:
        self._turns.write_recent(tx)
        recovery.hand_over(tx)

    async def start_sending(self) -> None:
        await self._check_lock()
        if self._sending:
            return
        if self._starting is None or self._starting.done():
            self._starting = self._tasks.start(self._start_sending(), "start", awaited=True)
            self._starting.add_done_callback(_retrieve_exception)
        # A cancelled caller does not stop it.
        await asyncio.shield(self._starting)

    async def _check_lock(self) -> None:
        """Raise NotTheSenderError if another process may send: from then on this one never does."""
        now = self._clock.monotonic()
        if self._sending and now >= self._check_lock_at:
            if not self._lock.is_held:
                async with self._taking_again:
                    if not await self._lock.keep() and not self._has_lost_lock:
                        self._lose_lock()
            self._check_lock_at = now + LOCK_CHECKED_EVERY
        if self._has_lost_lock:
            raise self._lost_lock()

    def _lose_lock(self) -> None:
        self._sending, self._has_lost_lock = False, True  # what it puts goes into the journal from now on
        log.critical("%s", LOST_LOCK.format(path=self.file.path))
        self._dispatcher.refuse(self._lost_lock)

    async def _watch_lock(self) -> None:
        with suppress(NotTheSenderError):  # logged; `health` says so
            await self._check_lock()

    def _lost_lock(self) -> NotTheSenderError:
        return NotTheSenderError(LOST_LOCK.format(path=self.file.path))

    async def _start_sending(self) -> None:
        async with self._locking:
            await self._lock.take(self._clock)
        try:
            await self._take_over()
        except BaseException:
            await self._lock.release()
            raise

    async def _take_over(self) -> None:
        started, wall = self._clock.monotonic(), self._clock.now()
        history = await self.file.write(lambda tx: recovery.take_over(tx, wall), self._rows.remember)
        with _no_collection():
            await self._load()
        if not history.clean:
            # Not every direct call in flight at a crash is in the file: their windows must have passed.
            left = quarantine(self.schedule.rules) - (self._clock.monotonic() - started)
            await self._clock.sleep(left)
        replies = self.schedule.longest_replies
        if replies and (not history.clean or replies > QUARANTINE_AT_MOST):
            self.schedule.no_bursts_until = started + replies
        await self._load(complete=True)
        await self.file.write(journal.take, self._follow_journal)  # what was done meanwhile

    async def _load(self, *, complete: bool = False) -> None:
        """Read what waits; `complete`: from now on what comes is entered as it comes."""

        def enter(loaded: recovery.LoadedRows) -> bool:
            self._rows.remember_calls(loaded.calls)
            self._rows.load(loaded.places, loaded.last)
            self._tell_crashed(loaded)
            if loaded.places or loaded.crashed or loaded.unreadable:
                return True
            self._rows.load_late()
            self._sending = complete
            return False

        while await self.file.write(
            lambda tx: recovery.load(tx, self._rows.last, self._clock.now(), self._kinds), enter
        ):
            pass

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        self._wake()
        return await self._puts.ask(messages)

    def _put(self, requests: list[Sequence[Message]]) -> asyncio.Future[list[list[Ticket]]]:
        now = self._clock.now()

        def step(tx: Transaction) -> tuple[list[journal.JournalEntry], put_sql.PutResult]:
            before = self._take_journal(tx)
            done = put_sql.put(tx, list(chain.from_iterable(requests)), now, self.schedule.kind, self._keep)
            if not self._sending:
                if done.left:
                    tx.note("left", done.left)
                if done.placed:
                    tx.note("put", [place.seq for place in done.placed])
            return before, done

        def apply(written: tuple[list[journal.JournalEntry], put_sql.PutResult]) -> list[list[Ticket]]:
            before, done = written
            if before:
                self._follow_journal(before)
            if self._sending:
                self._rows.leave(done.left)
                self._rows.enter(done.placed)
                self._dispatcher.stir()
            if done.replaced:
                self._look_at({ticket for _, ticket in done.replaced})
            tickets = iter(done.tickets)
            return [list(islice(tickets, len(messages))) for messages in requests]

        return self.file.write(step, apply)

    async def claim(self, room: int) -> list[Claim]:
        await self.start_sending()
        while True:
            entries = await self._dispatcher.claim(room)
            try:
                await self._check_lock()
            except BaseException:
                self._dispatcher.give_back(entries)
                raise
            claims = await self._claims.take(entries)
            if claims:
                return claims

    def may_claim(self) -> bool:
        return self._dispatcher.may_claim()

    async def cool(self, held: Iterable[Claim | Turn]) -> None:
        for one in held:
            entry = self._dispatcher.held_turn(one) if isinstance(one, Turn) else self._claims.entry(one)
            self._dispatcher.cool(entry)
        self._dispatcher.stir()

    async def extend(self, claims: Iterable[Claim]) -> None:
        now = self._clock.monotonic()
        for claim in claims:
            entry = self._claims.entry(claim)
            if entry is not None:
                self.schedule.extend(entry, now)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Record | None]:
        records: list[Record | None] = await self._claims.settle(settlements)
        return records

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
        await self.start_sending()
        turn = await self._dispatcher.turn(bot, chat_id, family, cost, priority, paid=paid, max_wait=max_wait)
        try:
            await self._check_lock()
        except BaseException:
            self._dispatcher.end_turn(turn, NotSent("not the sender"), 0.0)
            raise
        return await self._turns.hold(turn)

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float = 0.0) -> None:
        self._turns.end(turn, outcome, age)

    def note_call(self, bot: BotId, call: str, outcome: Outcome | None, *, in_lane: bool) -> None:
        self._calls.note(bot, call, outcome, in_lane=in_lane)
        if self._store_counts_at is None and self._is_open:
            self._store_counts_at = self._clock.call_later(STORED_EVERY, self._store_counts)

    def _store_counts(self) -> None:
        self._store_counts_at = None
        counts = self._calls.take()
        if not counts:
            return
        try:
            self.file.write(lambda tx: tx.counts.update(counts), sure=True, pending=counts)
        except ClosedError:
            self._calls.unstored.update(counts)

    async def wait_for(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> float:
        chat = self._dispatcher.chat(bot, chat_id)
        return self.schedule.wait_for(bot, chat, family, cost, self._clock.monotonic())

    def _held(self) -> int:
        return len(self._claims)

    def _settle_woken(self, expired: list[Entry], lost: list[Entry], now: float) -> None:
        self._claims.settle_woken(expired, lost, now)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Many new objects, and none that is garbage: the collector would look at them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _retrieve_exception(task: "asyncio.Task[None]") -> None:
    """Its failure was raised to the callers that waited for it, if there were any."""
    if not task.cancelled():
        task.exception()
