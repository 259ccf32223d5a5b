"""The operator's verbs on the file: any process may look and change, the sender follows."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.errors import NotTheSenderError, StoreError
from tidegate.model import BotId, ChatId, Rate, Record, State, TicketId, Why
from tidegate.outbox.call_counts import CallCounts
from tidegate.outbox.dispatcher import OutboxDispatcher, SettledWaiters
from tidegate.outbox.flood_control import WHOLE_BOT
from tidegate.outbox.limit_states import limit_states, limits_in
from tidegate.outbox.port import LimitState, OutboxOperator, OutboxStats, StoreHealth
from tidegate.outbox.reasons import explain, facts_of
from tidegate.outbox.transitions import DEAD_LETTER_STATES, UNSETTLED_STATES
from tidegate.pacing.rules import FAMILIES
from tidegate.stores.sqlite import journal, message_rows, put_sql, recovery, settle_sql
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.message_rows import WaitingRow, record_of
from tidegate.stores.sqlite.recovery import LoadedRows, ScheduledRows
from tidegate.stores.sqlite.sender_lock import SenderLock, SenderProcess

Answer = TypeVar("Answer")

ANSWER_WITHIN: Final = 2.0  # seconds
UNSETTLED_COUNTS: Final = ("high", "normal", "low", "retry", State.SENDING)


class SqliteOperator(OutboxOperator):
    """A change is written first, then the schedule follows: in this process if it sends, else by the journal.

    So what others see is what a crash would leave. Only deadlines and leases, which pass by themselves, are
    followed first.
    """

    def __init__(
        self,
        file: StoreFile,
        rows: ScheduledRows,
        dispatcher: OutboxDispatcher,
        lock: SenderLock,
        clock: Clock,
        *,
        keep: float,
        poll: float,
        on_end: Callable[[Record], None] | None,
        on_bots: Callable[[], None] | None,
    ) -> None:
        self.file = file
        self.schedule = dispatcher.schedule
        self._rows = rows
        self._dispatcher = dispatcher
        self._calls = CallCounts(dispatcher.events)
        self._lock = lock
        self._clock = clock
        self._keep = keep
        self._on_end = on_end
        self._on_bots = on_bots
        self._questions = SenderQuestions(file, clock, poll=poll)
        self._explainer = WaitExplainer(file, rows, lock, clock, self._questions)
        self.health_told: Callable[[], StoreHealth] = StoreHealth  # to processes that ask the sender
        self._waiters = SettledWaiters(self._unsettled)
        self._sending = False
        self._kinds: dict[str, str] = {family: self.schedule.kind(family) for family in FAMILIES}
        self._locking = asyncio.Lock()  # held while this process takes the sender's lock

    # --- look ---

    async def find(self, ticket: TicketId) -> Record | None:
        self._wake()
        now = self._clock.now()
        return await self.file.read(lambda tx: message_rows.find(tx, ticket, now))

    async def ids(self, start: str, end: str = "", *, limit: int = 100) -> list[TicketId]:
        self._wake()
        now = self._clock.now()
        return await self.file.read(lambda tx: message_rows.ids(tx, start, end, now, limit))

    async def find_by_key(self, bot: BotId, dedup_key: str) -> TicketId | None:
        self._wake()
        now = self._clock.now()
        return await self.file.read(lambda tx: message_rows.find_by_key(tx, bot, dedup_key, now))

    async def settled(self, ticket: TicketId) -> Record:
        ended = self._waiters.end_of(ticket)  # before the look: it may end meanwhile
        try:
            record = await self.find(ticket)
            if record is None:
                raise LookupError(f"no message {ticket} is known: it was never put, or ended too long ago")
            if record.state not in UNSETTLED_STATES:
                return record
            self._dispatcher.arm()
            return await ended
        finally:
            ended.cancel()

    async def why(self, ticket: TicketId) -> Why | None:
        self._wake()
        return await (self._explainer.here(ticket) if self._sending else self._explainer.elsewhere(ticket))

    async def drained(self, bot: BotId | None = None) -> None:
        self._wake()
        drained = self._waiters.end_of_all(bot)
        self._dispatcher.arm()
        await drained

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
        return await self.file.read(
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

    async def dead(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        reason: str | None = None,
        states: frozenset[State] = DEAD_LETTER_STATES,
        limit: int = 100,
    ) -> list[Record]:
        letters = states & DEAD_LETTER_STATES
        return await self.records(bot=bot, chat_id=chat_id, reason=reason, states=letters, limit=limit)

    async def tally(self, bot: BotId, dedup_prefix: str) -> dict[tuple[State, str | None], int]:
        self._wake()
        return await self.file.read(lambda tx: message_rows.tally(tx, bot, dedup_prefix))

    async def pauses(self) -> list[tuple[BotId, ChatId | None]]:
        """Paused bots (None) and chats."""
        return await self.file.read(message_rows.pauses)

    async def sender(self) -> SenderProcess | None:
        """The process that sends for this file, if one does."""
        return await self._lock.holder()

    async def learned(self) -> dict[tuple[BotId, ChatId | None], Rate]:
        return self.schedule.learned()

    async def limits(self) -> list[LimitState]:
        self._wake()
        if self._sending:
            return limits_in(self.schedule, self._clock.monotonic())
        now = self._clock.now()
        return limit_states(await self.file.read(lambda tx: message_rows.closures(tx, now)), {})

    async def open_limits(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        def step(tx: Transaction) -> ChatId | None:
            chat = None if chat_id is None else message_rows.chat_now(tx, bot, chat_id)
            tx.execute(
                "UPDATE limits SET closed_for = 0 WHERE bot = ? AND (? IS NULL OR chat_id = ?)",
                (bot, chat, chat),
            )
            if not self._sending:
                tx.note("open", (bot, chat))
            return chat

        await self.file.write(step, lambda chat: self._follow_open(bot, chat))

    def _follow_open(self, bot: BotId, chat: ChatId | None) -> None:
        if self._sending:
            self.schedule.open(bot, chat, self._clock.monotonic())
            self._dispatcher.stir()

    async def stats(self) -> OutboxStats:
        self._wake()
        totals: Counter[str] = Counter()
        for (_, name), count in self._counts().items():
            totals[name] += count
        totals.update(self._calls.totals())
        known = {name: count for name, count in totals.items() if name in OutboxStats.__struct_fields__}
        uncertain, urgent = self._dispatcher.uncertain, self.schedule.urgent_in_debt
        return OutboxStats(**known, uncertain=uncertain, urgent=urgent)

    def _counts(self) -> Counter[tuple[BotId, str]]:
        """Those of the file, and those about to be written. A sum of counters would drop what is below 0."""
        counts = Counter(self.file.counts)
        counts.update(self.file.pending)
        return counts

    def _unsettled(self, bot: BotId | None) -> int:
        """Messages of a bot, or of all, that have not ended."""
        return sum(
            count
            for (owner, name), count in self._counts().items()
            if name in UNSETTLED_COUNTS and bot in {None, owner}
        )

    def _being_sent(self) -> int:
        """Messages that are being sent, as the file says."""
        return sum(count for (_, name), count in self._counts().items() if name == State.SENDING)

    def _held(self) -> int:
        """Messages that this process sends."""
        return 0

    # --- change ---

    async def settle_crashed(self) -> int:
        if self._sending or not self._being_sent():
            return 0
        async with self._locking:
            if await self._lock.holder() is not None:
                return 0
            try:
                await self._lock.take(self._clock)
            except NotTheSenderError:  # it has just begun, and settles them
                return 0
            try:
                now = self._clock.now()
                return await self.file.write(
                    lambda tx: recovery.settle_crashed(tx, now, self._kinds), self._crashed_settled
                )
            finally:
                await self._lock.release()

    async def _settle_orphans(self, find: Callable[[Transaction], list[int]]) -> None:
        """Settle messages that nobody sends though the file says so, as after a crash.

        In the sender those are the ones that its schedule does not hold.
        """
        if not self._sending:
            await self.settle_crashed()
            return
        if self._being_sent() <= self._held():
            return
        orphans = [seq for seq in await self.file.read(find) if seq not in self._rows]
        if orphans:
            now = self._clock.now()
            await self.file.write(
                lambda tx: recovery.settle_crashed(tx, now, self._kinds, orphans), self._crashed_settled
            )

    def _crashed_settled(self, loaded: LoadedRows) -> int:
        if self._sending:
            self._rows.remember_calls(loaded.calls)
            self._rows.enter(loaded.places)
        self._tell_crashed(loaded)
        return len(loaded.places) + len(loaded.crashed) + len(loaded.unreadable)

    def _tell_crashed(self, loaded: LoadedRows) -> None:
        """Tell which messages have ended with their sender."""
        message_rows.report_buried(loaded.unreadable)
        for record in (*loaded.crashed, *(record for record, _ in loaded.unreadable)):
            self._tell_end(record)

    async def cancel(self, ids: Iterable[TicketId]) -> int:
        self._wake()
        wanted, now = list(ids), self._clock.now()
        await self._settle_orphans(lambda tx: settle_sql.sending_of(tx, wanted))

        def step(tx: Transaction) -> list[Any]:
            seqs = settle_sql.seqs_of(tx, wanted)
            rows = settle_sql.end_waiting(tx, seqs, State.CANCELLED, now, self._keep)
            if rows and not self._sending:
                tx.note("left", [seq for seq, *_ in rows])
            return rows

        def apply(rows: list[Any]) -> int:
            self._rows.leave(seq for seq, *_ in rows)
            for _, _, *record in rows:
                self._tell_end(record_of(tuple(record), now))
            self._dispatcher.stir()
            return len(rows)

        return await self.file.write(step, apply)

    async def replay(self, ids: Iterable[TicketId]) -> int:
        self._wake()
        wanted, now = list(ids), self._clock.now()
        await self._settle_orphans(lambda tx: settle_sql.sending_of(tx, wanted))

        def step(tx: Transaction) -> tuple[list[journal.JournalEntry], list[WaitingRow]]:
            before = self._take_journal(tx)
            placed = put_sql.replay(tx, wanted, now)
            if placed and not self._sending:
                tx.note("put", [place.seq for place in placed])
            return before, placed

        def apply(done: tuple[list[journal.JournalEntry], list[WaitingRow]]) -> int:
            before, placed = done
            if before:
                self._follow_journal(before)
            if self._sending:
                self._rows.enter(placed)
                self._dispatcher.stir()
            return len(placed)

        return await self.file.write(step, apply)

    async def drop(self, ids: Iterable[TicketId]) -> int:
        wanted = list(ids)
        await self._settle_orphans(lambda tx: settle_sql.sending_of(tx, wanted))
        return await self.file.write(lambda tx: settle_sql.drop(tx, wanted))

    async def forget(self, chat_id: ChatId, bot: BotId | None = None) -> int:
        await self._settle_orphans(
            lambda tx: settle_sql.sending_to(tx, message_rows.names_of(tx, chat_id), bot)
        )

        def step(tx: Transaction) -> list[int]:
            gone = settle_sql.erase_chats(tx, message_rows.names_of(tx, chat_id), bot)
            if gone and not self._sending:
                tx.note("left", gone)
            return gone

        def apply(gone: list[int]) -> int:
            self._rows.leave(gone)
            self._look_at(set(self._waiters.tickets))
            self._waiters.changed()
            self._dispatcher.stir()
            return len(gone)

        forgotten: int = await self.file.write(step, apply)
        # Else it could be read from the log of writes for a while.
        await self.file.read(lambda tx: tx.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
        return forgotten

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
            self._dispatcher.stir()

    # --- other processes ---

    async def _catch_up(self) -> None:
        """Another process has changed the file."""
        if self._sending:
            await self.file.write(journal.take, self._follow_journal, delivers=True)
        await self.file.refresh_counts()
        self._waiters.changed()
        self._look_at(set(self._waiters.tickets))

    def _take_journal(self, tx: Transaction) -> list[journal.JournalEntry]:
        """The changes of other processes until now: their messages stand before those that this step adds."""
        return journal.take(tx) if self._sending else []

    def _follow_journal(self, entries: list[journal.JournalEntry]) -> None:
        for verb, body in entries:
            if verb == "put":
                self._rows.enter(body)
            elif verb == "left":
                self._rows.leave(body)
            elif verb == "pause":
                bot, chat, paused = body
                self._follow_pause(bot, chat, paused=paused)
            elif verb == "open":
                self._follow_open(*body)
            elif verb == "why":
                self._explainer.answer(*body)
            elif verb == "health":
                self._tell_health(body[0])
            elif verb == "bots" and self._on_bots is not None:
                self._on_bots()
        self._dispatcher.stir()

    async def sender_health(self) -> StoreHealth | None:
        """The health of the process that sends, as it says itself; None if none does."""
        if self._sending:
            return self.health_told()
        holder = await self._lock.holder()
        if holder is None:
            return None
        try:
            answer = await self._questions.ask("health", None, StoreHealth)
        except StoreError as error:
            return StoreHealth().with_problems([str(error)])
        silent = f"{holder} sends, and has not answered for {ANSWER_WITHIN:.0f} s"
        return answer or StoreHealth().with_problems([silent])

    def _tell_health(self, question: int) -> None:
        health = self.health_told()
        self.file.write(lambda tx: journal.answer(tx, question, health), delivers=True)

    # --- ends ---

    def _wake(self) -> None:
        """Let due timers act. Those of a process that no longer sends mean nothing."""
        if self._sending:
            self._dispatcher.wake(self._clock.monotonic())

    def _tell_end(self, record: Record) -> None:
        self._dispatcher.events.ended(record)
        if self._on_end is not None:
            self._on_end(record)
        self._waiters.ended(record.message.id, lambda: record)

    def _look_at(self, tickets: set[TicketId]) -> None:
        """Look whether messages that callers wait for have ended."""
        now = self._clock.now()
        watched = tickets & set(self._waiters.tickets)
        if watched:
            self.file.read(
                lambda tx: {ticket: message_rows.find(tx, ticket, now) for ticket in watched}, self._seen
            )

    def _seen(self, records: dict[TicketId, Record | None]) -> None:
        for ticket, record in records.items():
            if record is None:
                self._waiters.lost(ticket, LookupError(f"message {ticket} was erased"))
            elif record.settled_at is not None:
                self._waiters.ended(ticket, lambda record=record: record)  # type: ignore[misc]


class SenderQuestions:
    """Asks the sender, which is another process, through the journal."""

    def __init__(self, file: StoreFile, clock: Clock, *, poll: float) -> None:
        self._file = file
        self._clock = clock
        self._poll = poll

    async def ask(self, verb: str, body: object, kind: type[Answer]) -> Answer | None:
        """Return None if the sender does not answer in time. Raises StoreError."""
        question = await self._file.write(lambda tx: journal.ask(tx, verb, body))
        with suppress(TimeoutError):
            async with self._clock.timeout(ANSWER_WITHIN):
                while True:
                    await self._clock.sleep(self._poll)
                    answer = await self._file.write(lambda tx: journal.take_answer(tx, question, kind))
                    if answer is not None:
                        return answer
        return None


class WaitExplainer:
    """Explains what a message waits for: the sender from its schedule, other processes by asking it."""

    def __init__(
        self,
        file: StoreFile,
        rows: ScheduledRows,
        lock: SenderLock,
        clock: Clock,
        questions: SenderQuestions,
    ) -> None:
        self._file = file
        self._rows = rows
        self._lock = lock
        self._clock = clock
        self._questions = questions

    async def here(self, ticket: TicketId) -> Why | None:
        """Explain it in the sender's own process."""
        seq, record = await self._file.read(lambda tx: self._known(tx, ticket))
        return self._explain(seq, record)

    def answer(self, question: int, ticket: TicketId) -> None:
        """Answer another process that asked the sender, which is this one."""

        def tell(found: tuple[int, Record | None]) -> None:
            why = self._explain(*found)
            self._file.write(lambda tx: journal.answer(tx, question, why))

        self._file.read(lambda tx: self._known(tx, ticket), tell)

    async def elsewhere(self, ticket: TicketId) -> Why | None:
        """Explain it in a process that does not send."""
        _, record = await self._file.read(lambda tx: self._known(tx, ticket))
        if record is None:
            return None
        if record.state not in UNSETTLED_STATES:
            return Why(record.state, (), None)
        holder = await self._lock.holder()
        if holder is None:
            return await self._as_stored(record, "nobody sends: start a worker (tidegate worker)")
        answer = await self._questions.ask("why", ticket, Why)
        return answer or await self._as_stored(record, f"{holder} sends, and has not said why it waits")

    async def _as_stored(self, record: Record, first: str) -> Why:
        """The part that the file alone tells."""
        message, now = record.message, self._clock.now()
        waits = [first]
        if await self._file.read(lambda tx: message_rows.is_paused(tx, message.bot, message.chat_id)):
            waits.append("its bot or chat is paused")
        if message.not_before is not None and message.not_before > now:
            waits.append(f"its time comes in {message.not_before - now:.1f} s")
        return Why(record.state, tuple(waits), None)

    def _known(self, tx: Transaction, ticket: TicketId) -> tuple[int, Record | None]:
        record = message_rows.find(tx, ticket, self._clock.now())
        return (settle_sql.seqs_of(tx, [ticket])[0], record) if record is not None else (0, None)

    def _explain(self, seq: int, record: Record | None) -> Why | None:
        if record is None:
            return None
        entry = self._rows.get(seq)
        if entry is None:
            return Why(record.state, (), None)
        due = record.message.not_before
        until_due = max(0.0, due - self._clock.now()) if due is not None and entry.seq == 0 else 0.0
        return explain(facts_of(entry, record.state, until_due, self._clock.monotonic()))
