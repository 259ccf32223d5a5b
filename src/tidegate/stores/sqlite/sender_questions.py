"""Questions to the sender of a SQLite file, which may be another process: why a message waits, how it is."""

from contextlib import suppress
from typing import Final, TypeVar

from tidegate.clock import Clock
from tidegate.model import Record, TicketId, Why
from tidegate.outbox.reasons import explain, facts_of
from tidegate.outbox.transitions import UNSETTLED_STATES
from tidegate.stores.sqlite import journal, message_rows, settle_sql
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.recovery import ScheduledRows
from tidegate.stores.sqlite.sender_lock import SenderLock

Answer = TypeVar("Answer")

ANSWER_WITHIN: Final = 2.0  # seconds


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
        paused = await self._file.read(lambda tx: message_rows.pauses_of(tx, message.bot, message.chat_id))
        waits.extend(f"its {name} is paused" for name in paused)
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
