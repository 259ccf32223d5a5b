"""The outbox in a file. The truth is in the file; the schedule, by numbers only, is in the sender's memory.

A change is written first and followed in memory after: what others see is what a crash would leave. Only
deadlines and leases, which pass by themselves, are followed first.
"""

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.model import (
    BotId,
    ChatId,
    Claim,
    Message,
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
from tidegate.outbox.lanes import Entry
from tidegate.outbox.port import Outbox, OutboxStats, Turn
from tidegate.outbox.schedule import Schedule
from tidegate.outbox.schedule_snapshot import WHOLE_BOT
from tidegate.outbox.waiters import SettledWaiters
from tidegate.pacing.rules import Family, Rules
from tidegate.stores.group_commit import GroupCommit
from tidegate.stores.sqlite import journal, message_rows, put_sql, recovery, settle_sql
from tidegate.stores.sqlite.claims import Claims
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.journal import JournalFollower
from tidegate.stores.sqlite.message_rows import WaitingRow, record_of
from tidegate.stores.sqlite.operator import WaitExplainer
from tidegate.stores.sqlite.recovery import ScheduledRows
from tidegate.stores.sqlite.sender_lock import SenderLock, SenderProcess
from tidegate.stores.sqlite.turns import SqliteTurns, quarantine

log = logging.getLogger("tidegate.store")

POLL_EVERY: Final = 0.05  # seconds between two looks at what other processes did
CLEAN_EVERY: Final = 1.0  # seconds
MOST_PUT_TOGETHER: Final = 1_000  # messages
QUARANTINE_AT_MOST: Final = 5.0  # seconds without a call after a crash
UNSETTLED_COUNTS: Final = ("high", "normal", "low", "retry", State.SENDING)
UNWRITTEN: Final = 1.0  # seconds until the next try of what must not be sent unless that is written down


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
        poll: float = POLL_EVERY,
        on_end: Callable[[Record], None] | None = None,
        on_bots: Callable[[], None] | None = None,
    ) -> None:
        self.file = StoreFile(path)
        self._clock = clock
        self._keep = keep
        self._on_end = on_end
        self._on_bots = on_bots
        self._lock = SenderLock(path)
        self.schedule = Schedule(rules or Rules(), lease=lease)
        self._dispatch = OutboxDispatcher(
            self.schedule,
            clock,
            settle_woken=self._settle_woken,
            watched=lambda: bool(self._watch),
        )
        self._places = ScheduledRows(self.schedule, self._dispatch, clock)
        self._claims = Claims(
            self.file, self._dispatch, self._places, clock, keep=keep, tell_end=self._tell_end
        )
        self._turns = SqliteTurns(self.file, self._dispatch, self._claims, clock)
        self._whys = WaitExplainer(self.file, self._places, self._lock, clock, poll=poll)
        self._follower = JournalFollower(
            self.file,
            clock,
            self.schedule.rules,
            poll=poll,
            catch_up=self._catch_up,
            sends=lambda: self._sending,
        )
        self._watch = SettledWaiters(self._left)
        # Puts of many tasks in one step: several times faster.
        self._puts: GroupCommit[Message, list[Ticket]] = GroupCommit(
            self._put, self.file.is_last, MOST_PUT_TOGETHER
        )
        self._sending = False
        self._starting: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    # --- begin and end ---

    async def open(self) -> None:
        await self.file.open()
        self._following = asyncio.create_task(self._follower.run(), name="tidegate: follow")

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
                await self.file.write(self._hand_over)
        await self.file.close()
        await self._lock.release()

    def _hand_over(self, tx: Transaction) -> None:
        self._turns.write_recent(tx)
        recovery.hand_over(tx)

    async def start_sending(self) -> None:
        if self._sending:
            return
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start_sending(), name="tidegate: start")
            self._starting.add_done_callback(_retrieve_exception)
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
        with _no_collection():
            await self._load()
        if not before.clean:
            # Not every direct call in flight at a crash is in the file: their windows must have passed.
            left = quarantine(self.schedule.rules) - (self._clock.monotonic() - started)
            await self._clock.sleep(left)
        await self._load(complete=True)
        await self.file.write(journal.take, self._follow_journal)  # what was done meanwhile

    async def _load(self, *, complete: bool = False) -> None:
        """Read what waits; `complete`: what comes after the last of it is entered as it comes."""
        kinds = {family: self.schedule.kind(family) for family in ("send", "edit", "action", "free")}

        def enter(loaded: recovery.LoadedRows) -> bool:
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

    async def sender(self) -> SenderProcess | None:
        """The process that sends for this file, if one does."""
        return await self._lock.holder()

    # --- in ---

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        self._wake()
        return await self._puts.ask(messages)

    def _put(self, requests: list[Sequence[Message]]) -> asyncio.Future[list[list[Ticket]]]:
        now = self._clock.now()

        def step(tx: Transaction) -> tuple[list[journal.JournalEntry], put_sql.PutResult]:
            before = self._done_before(tx)
            messages = list(chain.from_iterable(requests))
            done = put_sql.put(tx, messages, now, self.schedule.kind, self._keep)
            if not self._sending:
                self._note_put(tx, done)
            return before, done

        def apply(written: tuple[list[journal.JournalEntry], put_sql.PutResult]) -> list[list[Ticket]]:
            tickets = iter(self._entered(written))
            return [list(islice(tickets, len(messages))) for messages in requests]

        return self.file.write(step, apply)

    def _done_before(self, tx: Transaction) -> list[journal.JournalEntry]:
        """What other processes did until now: whatever they put stands before what is put here."""
        return journal.take(tx) if self._sending else []

    @staticmethod
    def _note_put(tx: Transaction, done: put_sql.PutResult) -> None:
        left = [seq for seq, _ in done.replaced if seq not in done.in_place]
        if left:
            tx.note("left", left)
        if done.placed:
            tx.note("put", [place.seq for place in done.placed])

    def _entered(self, step: tuple[list[journal.JournalEntry], put_sql.PutResult]) -> list[Ticket]:
        before, done = step
        if before:
            self._follow_journal(before)
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
            claims = await self._claims.take(await self._dispatch.claim(room))
            if claims:
                return claims

    async def cool(self, held: Iterable[Claim | Turn]) -> None:
        for one in held:
            if isinstance(one, Turn):
                self._dispatch.cool(self._dispatch.held_turn(one))
            else:
                self._dispatch.cool(self._claims.entry(one))
        self._dispatch.stir()

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
        return await self._turns.take(bot, chat_id, family, cost, priority, paid=paid, max_wait=max_wait)

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float = 0.0) -> None:
        self._turns.end(turn, outcome, age)

    async def wait_for(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> float:
        chat = self._dispatch.chat(bot, chat_id)
        return self.schedule.wait_for(bot, chat, family, cost, self._clock.monotonic())

    def _settle_woken(self, expired: list[Entry], lost: list[Entry], now: float) -> None:
        self._claims.settle_woken(expired, lost, now)

    def _wake(self) -> float:
        """Let due timers act; returns the time."""
        now = self._clock.monotonic()
        self._dispatch.wake(now)
        return now

    def _tell_end(self, record: Record) -> None:
        if self._on_end is not None:
            self._on_end(record)
        self._tell_watchers(record)

    def _tell_watchers(self, record: Record) -> None:
        self._watch.ended(record.message.id, lambda: record)

    # --- operators ---

    async def cancel(self, ids: Iterable[TicketId]) -> int:
        self._wake()
        wanted, now = list(ids), self._clock.now()

        def step(tx: Transaction) -> list[Any]:
            seqs = settle_sql.seqs_of(tx, wanted)
            rows = settle_sql.end_waiting(tx, seqs, State.CANCELLED, now, self._keep)
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
            chat = None if chat_id is None else message_rows.chat_now(tx, bot, chat_id)
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
        record: Record | None = await self.file.read(lambda tx: message_rows.find(tx, ticket, now))
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
        states: frozenset[State] = message_rows.DEAD_LETTER_STATES,
        limit: int = 100,
    ) -> list[Record]:
        return await self.records(
            bot=bot,
            chat_id=chat_id,
            reason=reason,
            states=states & message_rows.DEAD_LETTER_STATES,
            limit=limit,
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
            lambda tx: message_rows.records(
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
            lambda tx: message_rows.tally(tx, bot, dedup_prefix)
        )
        return found

    async def pauses(self) -> list[tuple[BotId, ChatId | None]]:
        """Bots (None) and chats that are paused."""
        found: list[tuple[BotId, ChatId | None]] = await self.file.read(message_rows.pauses)
        return found

    async def replay(self, ids: Iterable[TicketId]) -> int:
        self._wake()
        wanted, now = list(ids), self._clock.now()

        def step(tx: Transaction) -> tuple[list[journal.JournalEntry], list[WaitingRow]]:
            before = self._done_before(tx)
            placed = put_sql.replay(tx, wanted, now)
            if placed and not self._sending:
                tx.note("put", [place.seq for place in placed])
            return before, placed

        def apply(done: tuple[list[journal.JournalEntry], list[WaitingRow]]) -> int:
            before, placed = done
            if before:
                self._follow_journal(before)
            if self._sending:
                self._places.enter(placed)
                self._dispatch.stir()
            return len(placed)

        replayed: int = await self.file.write(step, apply)
        return replayed

    async def drop(self, ids: Iterable[TicketId]) -> int:
        wanted = list(ids)
        dropped: int = await self.file.write(lambda tx: settle_sql.drop(tx, wanted))
        return dropped

    async def forget(self, chat_id: ChatId, bot: BotId | None = None) -> int:
        def step(tx: Transaction) -> list[int]:
            gone = settle_sql.erase_chats(tx, message_rows.names_of(tx, chat_id), bot)
            if gone and not self._sending:
                tx.note("left", gone)
            return gone

        def apply(gone: list[int]) -> int:
            self._places.leave(gone)
            self._look_at(set(self._watch.tickets))
            self._watch.changed()
            self._dispatch.stir()
            return len(gone)

        forgotten: int = await self.file.write(step, apply)
        # Else it could be read from the log of writes for a while.
        await self.file.read(lambda tx: tx.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
        return forgotten

    async def why(self, ticket: TicketId) -> Why | None:
        self._wake()
        return await (self._whys.here(ticket) if self._sending else self._whys.elsewhere(ticket))

    # --- other processes ---

    async def _catch_up(self) -> None:
        if self._sending:
            await self.file.write(journal.take, self._follow_journal)
        await self.file.refresh_counts()
        self._watch.changed()
        self._look_at(set(self._watch.tickets))

    def _follow_journal(self, entries: list[journal.JournalEntry]) -> None:
        for verb, body in entries:
            if verb == "put":
                self._places.enter(body)
            elif verb == "left":
                self._places.leave(body)
            elif verb == "pause":
                bot, chat, paused = body
                self._follow_pause(bot, chat, paused=paused)
            elif verb == "why":
                self._whys.answer(*body)
            elif verb == "bots" and self._on_bots is not None:
                self._on_bots()
        self._dispatch.stir()

    def _look_at(self, tickets: set[TicketId]) -> None:
        """Those that somebody waits for may have ended."""
        now = self._clock.now()
        watched = tickets & set(self._watch.tickets)
        if watched:
            self.file.read(
                lambda tx: {ticket: message_rows.find(tx, ticket, now) for ticket in watched}, self._seen
            )

    def _seen(self, records: dict[TicketId, Record | None]) -> None:
        for ticket, record in records.items():
            if record is None:
                self._watch.lost(ticket, LookupError(f"message {ticket} was erased"))
            elif record.settled_at is not None:
                self._tell_watchers(record)

    # --- numbers ---

    async def learned(self) -> dict[tuple[BotId, ChatId | None], Rate]:
        return self.schedule.learned()

    async def stats(self) -> OutboxStats:
        self._wake()
        totals: Counter[str] = Counter()
        for counts in (self.file.counts, self.file.pending):
            for (_, name), count in counts.items():
                totals[name] += count
        known = {name: count for name, count in totals.items() if name in OutboxStats.__struct_fields__}
        return OutboxStats(**known, uncertain=self._dispatch.uncertain, urgent=self.schedule.urgent_in_debt)

    def waiting_by_bot(self) -> Counter[BotId]:
        """How many messages of each bot have not come to an end."""
        totals: Counter[BotId] = Counter()
        for counts in (self.file.counts, self.file.pending):
            for (bot, name), count in counts.items():
                if name in UNSETTLED_COUNTS:
                    totals[bot] += count
        return totals

    def _left(self, bot: BotId | None) -> int:
        waiting = self.waiting_by_bot()
        return waiting[bot] if bot is not None else waiting.total()


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
    """Its failure was told to whoever waited for it, if anybody still did."""
    if not task.cancelled():
        task.exception()
