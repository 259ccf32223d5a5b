"""The operator's verbs on the file: any process may look and change, the sender follows."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, NotTheSenderError, StoreError
from tidegate.events import Ended, LimitsSet
from tidegate.model import BotId, BotLimits, ChatId, Priority, Rate, Record, State, TicketId, Why
from tidegate.outbox.call_counts import CallCounts
from tidegate.outbox.dispatcher import OutboxDispatcher, SettledWaiters
from tidegate.outbox.flood_control import WHOLE_BOT
from tidegate.outbox.letter_groups import grouped
from tidegate.outbox.limit_states import limit_states, limits_in
from tidegate.outbox.port import (
    LetterGroup,
    LimitState,
    OutboxOperator,
    OutboxStats,
    RecordPage,
    StoreHealth,
    stats_of_all,
    stats_of_bots,
)
from tidegate.outbox.transitions import DEAD_LETTER_STATES, UNSETTLED_STATES
from tidegate.pacing.rules import FAMILIES, check_limits
from tidegate.stores.sqlite import journal, message_rows, own_limits, put_sql, recovery, settle_sql
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.message_rows import PRIORITIES, WaitingRow, record_of
from tidegate.stores.sqlite.recovery import LoadedRows, ScheduledRows
from tidegate.stores.sqlite.sender_lock import SenderLock, SenderProcess
from tidegate.stores.sqlite.sender_questions import ANSWER_WITHIN, SenderQuestions, WaitExplainer

LOOK_FOR: Final = 0.15  # seconds, for a page of messages
WAITING_COUNTS: Final = ("high", "normal", "low", "retry")
UNSETTLED_COUNTS: Final = (*WAITING_COUNTS, State.SENDING)
KEYS_PER_STEP: Final = 2_000  # messages looked at in one step, in which nobody else is served: some ms


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
        self._on_bots = on_bots
        self._questions = SenderQuestions(file, clock, poll=poll)
        self._explainer = WaitExplainer(file, rows, lock, clock, self._questions)
        self.health_told: Callable[[], StoreHealth] = StoreHealth  # to processes that ask the sender
        self._waiters = SettledWaiters(self._unsettled)
        self._sending = False
        self._kinds: dict[str, str] = {family: self.schedule.kind(family) for family in FAMILIES}
        self._locking = asyncio.Lock()  # held while this process takes the sender's lock

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
        wanted = message_rows.RecordFilter(bot, chat_id, states, reason, before)
        return (await self._page(wanted, "", limit, math.inf)).records

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
        wanted = message_rows.RecordFilter(bot, chat_id, states, reason)
        return await self._page(wanted, cursor, limit, LOOK_FOR)

    async def _page(
        self, wanted: message_rows.RecordFilter, cursor: str, limit: int, patience: float
    ) -> RecordPage:
        """Look for messages in short steps, between which others are served, until patience is over."""
        self._wake()
        until = self._clock.monotonic() + patience
        found: list[tuple[Record, str]] = []
        while len(found) <= limit:  # one more than is wanted: then there are others
            left = min(limit + 1 - len(found), message_rows.LARGEST_SEQ)
            step = partial(wanted.step, now=self._clock.now(), cursor=cursor, limit=left)
            some, cursor = await self.file.read(step)
            found += some
            if not cursor or self._clock.monotonic() >= until:
                break
        if len(found) > limit:
            found, cursor = found[:limit], found[limit - 1][1]
        return RecordPage([record for record, _ in found], cursor)

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

    async def letters_by_reason(
        self, bot: BotId | None = None, ended_by: float | None = None
    ) -> list[LetterGroup]:
        self._wake()
        return grouped(await self.file.read(lambda tx: message_rows.letters_by_reason(tx, bot, ended_by)))

    async def tally(self, bot: BotId, dedup_prefix: str) -> dict[tuple[State, str | None], int]:
        self._wake()
        counts: Counter[tuple[State, str | None]] = Counter()
        rest: message_rows.KeyRange | None = message_rows.KeyRange.of(bot, dedup_prefix)
        while rest is not None:
            step = partial(message_rows.tally_step, keys=rest, limit=KEYS_PER_STEP)
            part, rest = await self.file.read(step)
            counts.update(part)
        return counts

    async def keyed(
        self, bot: BotId, dedup_prefix: str, states: frozenset[State] = frozenset(State)
    ) -> AsyncIterator[TicketId]:
        self._wake()
        rest: message_rows.KeyRange | None = message_rows.KeyRange.of(bot, dedup_prefix)
        while rest is not None:
            step = partial(message_rows.keyed_step, keys=rest, states=states, limit=KEYS_PER_STEP)
            ids, rest = await self.file.read(step)
            for ticket in ids:
                yield ticket

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
        keys = message_rows.KeyRange.of(bot, dedup_prefix)
        if cursor:
            if not cursor.startswith(dedup_prefix):
                raise BadInputError("the cursor is not one of this list")
            keys = keys.after(cursor)
        step = partial(
            message_rows.keyed_records_step,
            now=self._clock.now(),
            keys=keys,
            states=states,
            looked=KEYS_PER_STEP,
            limit=limit,
        )
        return RecordPage(*await self.file.read(step))

    async def pauses(self) -> list[tuple[BotId, ChatId | None]]:
        """Paused bots (None) and chats."""
        return await self.file.read(message_rows.pauses)

    async def sender(self) -> SenderProcess | None:
        """The process that sends for this file, if one does."""
        return await self._lock.holder()

    async def learned(self) -> dict[tuple[BotId, ChatId | None], Rate]:
        return self.schedule.learned()

    async def limits(self, *, chats: bool = True) -> list[LimitState]:
        self._wake()
        if self._sending:
            return limits_in(self.schedule, self._clock.monotonic(), chats=chats)
        now = self._clock.now()
        closures = await self.file.read(lambda tx: message_rows.closures(tx, now))
        return limit_states([place for place in closures if chats or place[1] is None], {})

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

    async def own_limits(self) -> dict[BotId, BotLimits]:
        found = await self.file.read(own_limits.read)
        return {bot: stored.own for bot, stored in found.items() if stored.own}

    async def set_limits(self, bot: BotId, limits: BotLimits) -> None:
        given, now, rules = check_limits(limits), self._clock.now(), self.schedule.rules

        def step(tx: Transaction) -> BotLimits:
            before = own_limits.write(tx, bot, given, rules, now)
            if not self._sending:
                tx.note("limits", bot)
            return before

        def apply(before: BotLimits) -> None:
            self._follow_limits(bot, given)
            if given != before:
                self._dispatcher.events.publish(LimitsSet(bot, given, before))

        await self.file.write(step, apply)

    def _follow_limits(self, bot: BotId, own: BotLimits) -> None:
        if self._sending:
            self.schedule.set_limits(bot, own, self._clock.monotonic())
            self._dispatcher.stir()

    async def stats(self) -> OutboxStats:
        counts = self._all_counts()  # of now, and not of when the file has answered
        uncertain, urgent = self._dispatcher.uncertain, self.schedule.urgent_in_debt
        return stats_of_all(counts, await self._oldest(), uncertain=uncertain, urgent=urgent)

    async def stats_by_bot(self) -> dict[BotId, OutboxStats]:
        counts = self._all_counts()
        return stats_of_bots(counts, await self._oldest())

    def _all_counts(self) -> Counter[tuple[BotId, str]]:
        counts = self._counts()
        counts.update(self._calls.unstored)
        return counts

    async def _oldest(self) -> dict[BotId, float]:
        """Since when the oldest message of each bot may go that waits, as the file says.

        While the file cannot be written, messages that went back meanwhile are not among them. Once it is
        closed there are none: the counts are known all the same, for a last line.
        """
        self._wake()
        now = self._clock.now()
        waiting = {
            bot for (bot, name), count in self._counts().items() if name in WAITING_COUNTS and count > 0
        }
        try:
            return await self.file.read(lambda tx: message_rows.oldest(tx, waiting, now)) if waiting else {}
        except ClosedError:
            return {}

    def _counts(self) -> Counter[tuple[BotId, str]]:
        """Return the counts of the file, with those about to be written."""
        counts = Counter(self.file.counts)  # a sum of counters would drop what is below 0
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

    async def reprioritize(self, ids: Iterable[TicketId], priority: Priority) -> int:
        self._wake()
        wanted, now = list(ids), self._clock.now()
        await self._settle_orphans(lambda tx: settle_sql.sending_of(tx, wanted))

        def step(tx: Transaction) -> tuple[int, list[int]]:
            count, changed = put_sql.reprioritize(tx, wanted, priority, now)
            if changed and not self._sending:
                tx.note("priority", (changed, PRIORITIES.index(priority)))
            return count, changed

        def apply(done: tuple[int, list[int]]) -> int:
            count, changed = done
            self._rows.change_level(changed, PRIORITIES.index(priority))
            self._dispatcher.stir()
            return count

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
        follow: dict[str, Callable[[Any], object]] = {
            "put": self._rows.enter,
            "left": self._rows.leave,
            "priority": lambda body: self._rows.change_level(*body),
            "pause": lambda body: self._follow_pause(body[0], body[1], paused=body[2]),
            "open": lambda body: self._follow_open(*body),
            "limits": lambda body: self._follow_limits(*body),
            "why": lambda body: self._explainer.answer(*body),
            "health": lambda body: self._tell_health(body[0]),
            "bots": lambda _: None if self._on_bots is None else self._on_bots(),
        }
        for verb, body in entries:
            if verb in follow:
                follow[verb](body)
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

    def _wake(self) -> None:
        """Let due timers act. Those of a process that no longer sends mean nothing."""
        if self._sending:
            self._dispatcher.wake(self._clock.monotonic())

    def _tell_end(self, record: Record) -> None:
        self._dispatcher.events.publish(Ended(record))
        self._end_waiting(record)

    def _end_waiting(self, record: Record) -> None:
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
                self._end_waiting(record)
