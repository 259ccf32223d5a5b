"""The recorder of history: subscribes to the events of a gate, and writes them beside it, in batches.

A handler of an event appends a small row to a list, and nothing else: sending never waits for the database.
"""

import asyncio
import hashlib
import importlib.util
import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tidegate.clock import Clock
from tidegate.database import data_file
from tidegate.errors import BadInputError, ClosedError, MissingExtraError, StoreError, TidegateError
from tidegate.events import Attempted, CallAttempted, Ended, EventStream, UpdateReceived
from tidegate.failure import FailureLog
from tidegate.history import DAY, KEEP_DAYS, History, HistoryStore, RecordedRow
from tidegate.model import Delivered
from tidegate.ops.history_rows import row_of_attempt, row_of_update, rows_of_call, rows_of_end
from tidegate.ops.history_spool import HistorySpool
from tidegate.settings import Settings
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.history")

WRITE_EVERY: Final = 1.0  # seconds, or BATCH rows
# Rows in a transaction: the more of them share the pages of the indexes, the less each of them costs.
BATCH: Final = 5_000
SPOOLED_AT_ONCE: Final = 1_000  # rows in a line of the spool
SPOOL_ABOVE: Final = 10_000  # rows in memory; more go to disk
MOST_IN_MEMORY: Final = 20_000  # rows; more are dropped
STOP_PATIENCE: Final = 3.0  # seconds in which the last rows are to be written; then they go to disk
FIRST_PURGE, PURGE_EVERY = 60.0, 3_600.0  # seconds


class HistoryRecorder:
    """Records every message that ends or comes in, each attempt that did not deliver one, and every direct
    call that was delivered.

    Rows wait in memory for a second at most. While the database is away they wait on disk, in a spool with a
    bound, and are written when it is back, each once. What does not fit is counted in `dropped`.
    """

    def __init__(
        self,
        events: EventStream,
        history: History,
        spool: HistorySpool,
        clock: Clock,
        *,
        days: float = KEEP_DAYS,
        texts: bool = True,
    ) -> None:
        self._history = history
        self._spool = spool
        self._clock = clock
        self._keep = days * DAY
        self._texts = texts
        self._calls = 0
        self._name = secrets.token_hex(6)  # of this process, in the keys of its calls
        self._rows: list[RecordedRow] = []  # in memory, the oldest first
        self._in_flight: list[RecordedRow] = []  # being written
        self._is_away = False
        self._refusal: str | None = None  # why nothing can ever be recorded here
        self._some = asyncio.Event()  # there are rows in memory
        self._many = asyncio.Event()  # a batch of them
        self._to_disk = asyncio.Event()  # they cannot stay in memory
        self._idle = asyncio.Event()  # there are none in memory
        self._failures = FailureLog("history", log)
        self._tasks = BackgroundTasks()
        self._dropped_before = 0  # before the present spell
        self.written = 0  # rows
        self.dropped = 0  # likewise
        events.subscribe(Ended, self._note_end)
        events.subscribe(Attempted, self._note_attempt)
        events.subscribe(CallAttempted, self._note_call)
        events.subscribe(UpdateReceived, self._note_update)

    def start(self) -> None:
        """Begin to write. Called in the running loop."""
        self._is_away = False
        for run, name in (
            (self._write_on, "what writes the history"),
            (self._spool_on, "what spools the history"),
            (self._purge_on, "what purges the history"),
        ):
            self._tasks.supervise(run, name, self._clock)

    async def stop(self) -> None:
        """Write what waits, for a few seconds at most; the rest is left on disk for the next process."""
        if (self._rows or self._in_flight) and not self._is_away:
            self._idle.clear()
            self._some.set()
            self._many.set()
            with suppress(TimeoutError):
                async with self._clock.timeout(STOP_PATIENCE):
                    await self._idle.wait()
        await self._tasks.stop()
        self._rows, self._in_flight = [*self._in_flight, *self._rows], []
        await self._move_to_disk()
        if self._rows:
            self._drop(len(self._rows))
            self._rows = []
        self._tell_dropped()
        with suppress(OSError):  # a file that is drained stays: to write it again changes nothing
            await asyncio.to_thread(self._spool.close)

    def notes(self) -> list[str]:
        """Return notes for an operator, a line each."""
        notes = self._tasks.problems() + ([] if self._refusal is None else [self._refusal])
        if self.dropped:
            notes.append(f"{self.dropped:,} messages are not in the history")
        if size := self._spool.waiting:
            notes.append(f"{size / 2**20:.1f} MB of history wait on disk for the database")
        return notes

    @property
    def waiting(self) -> int:
        """How many rows wait in memory."""
        return len(self._rows) + len(self._in_flight)

    @property
    def spooled_bytes(self) -> int:
        """How many bytes wait on disk."""
        return self._spool.waiting

    def _note_end(self, event: Ended) -> None:
        self._add(rows_of_end(event.record, texts=self._texts))

    def _note_attempt(self, event: Attempted) -> None:
        if type(event.outcome) is Delivered:  # nearly all of them: their end says everything
            return
        self._calls += 1
        row = row_of_attempt(event, f"{self._name}/a{self._calls:x}", self._clock.now())
        if row is not None:
            self._add([row])

    def _note_call(self, event: CallAttempted) -> None:
        self._calls += 1
        key = f"{self._name}/{self._calls:x}"
        self._add(rows_of_call(event, key, self._clock.now(), texts=self._texts))

    def _note_update(self, event: UpdateReceived) -> None:
        row = row_of_update(event.bot, event.content(), self._clock.now(), texts=self._texts)
        if row is not None:
            self._add([row])

    def _add(self, rows: Sequence[RecordedRow]) -> None:
        count = len(self._rows)
        if not rows or self._refusal is not None:
            return
        if count >= MOST_IN_MEMORY:
            self._drop(len(rows))
            return
        self._rows += rows
        if not count:
            self._some.set()
        if count + len(rows) >= BATCH:
            self._many.set()
        if self._is_away or count >= SPOOL_ABOVE:
            self._to_disk.set()

    def _drop(self, count: int) -> None:
        if self.dropped == self._dropped_before:
            log.error(
                "messages are not recorded in the history: the database is away or too slow, and there is no"
                " room on disk. Nothing else is lost"
            )
        self.dropped += count

    def _tell_dropped(self) -> None:
        """End the spell in which rows are dropped, if there is one."""
        if (count := self.dropped - self._dropped_before) > 0:
            log.error("%d messages were not recorded in the history; it goes on", count)
            self._dropped_before = self.dropped

    async def _write_on(self) -> None:
        self._rows, self._in_flight = self._in_flight + self._rows, []  # of a run that has failed
        await asyncio.to_thread(self._spool.adopt)
        while True:
            if not self._spool.waiting:
                await self._until_due()
            try:
                await self._write_some(await self._history.opened())
            except (StoreError, ClosedError) as error:  # closed: by another user of it, in this moment
                self._be_away()
                await self._clock.sleep(self._failures.note(error, doing="be written"))
            except TidegateError as error:  # such as an address of MySQL: somebody has to mend it
                self._refusal = f"history is not recorded: {error}"
                log.error("%s", self._refusal)  # noqa: TRY400
                self._rows = []
                return
            else:
                self._failures.over("be written")
                self._is_away = False

    async def _until_due(self) -> None:
        """Wait for rows in memory, and a second for more of them."""
        await self._some.wait()
        with suppress(TimeoutError):
            async with self._clock.timeout(WRITE_EVERY):
                await self._many.wait()

    async def _write_some(self, store: HistoryStore) -> None:
        """Write the oldest rows: those on disk first."""
        if rows := await asyncio.to_thread(self._spool.first):
            await self._write(store, rows)
            await asyncio.to_thread(self._spool.passed)
            return
        self._in_flight, self._rows = self._rows[:BATCH], self._rows[BATCH:]
        self._clear_events()
        if self._in_flight:
            await self._write(store, self._in_flight)
            self._in_flight = []
        if not self._rows:
            self._idle.set()
            self._tell_dropped()

    async def _write(self, store: HistoryStore, rows: list[RecordedRow]) -> None:
        """Write rows. One that the database cannot keep is dropped alone."""
        try:
            await store.write(rows)
        except (BadInputError, ValueError, TypeError) as error:
            if len(rows) > 1:
                half = len(rows) // 2
                await self._write(store, rows[:half])
                await self._write(store, rows[half:])
                return
            log.error("a message cannot be recorded in the history: %s", error)  # noqa: TRY400
            self.dropped += 1
            self._dropped_before += 1
        else:
            self.written += len(rows)

    def _be_away(self) -> None:
        self._is_away = True
        self._rows, self._in_flight = self._in_flight + self._rows, []
        if self._rows:
            self._to_disk.set()

    def _clear_events(self) -> None:
        for reached, event in ((1, self._some), (BATCH, self._many)):
            if len(self._rows) < reached:
                event.clear()

    async def _spool_on(self) -> None:
        """While rows cannot stay in memory, move them to disk, each second or so."""
        while True:
            await self._to_disk.wait()
            self._to_disk.clear()
            await self._move_to_disk()
            await self._clock.sleep(WRITE_EVERY)

    async def _move_to_disk(self) -> None:
        """Move the rows in memory to disk. Those that a disk does not take stay; a full spool drops them."""
        while self._rows:
            rows, self._rows = self._rows[:SPOOLED_AT_ONCE], self._rows[SPOOLED_AT_ONCE:]
            try:
                has_room = await asyncio.to_thread(self._spool.add, rows)
            except BaseException as error:
                self._rows = rows + self._rows  # some may be there twice now, which changes nothing
                if not isinstance(error, OSError):
                    raise
                self._failures.note(error, doing="be spooled")
                return
            self._failures.over("be spooled")
            if not has_room:
                self._drop(len(rows))
            self._clear_events()

    async def _purge_on(self) -> None:
        """Delete what is old, now and then. Several processes may do so at once, each a part."""
        await self._clock.sleep(FIRST_PURGE)
        while True:
            try:
                if purged := await self._history.purge(self._clock.now() - self._keep):
                    log.info("%d old messages were removed from the history", purged)
            except TidegateError as error:
                log.debug("%s", error)  # the writer tells of it
            await asyncio.to_thread(self._spool.adopt)
            if self._spool.waiting:
                self._some.set()
            await self._clock.sleep(PURGE_EVERY)


def recorder_of(
    events: EventStream, history: History, clock: Clock, settings: Settings, store: str
) -> HistoryRecorder:
    """Return the recorder of a gate on this store. Raises MissingExtraError without a library for SQL."""
    if importlib.util.find_spec("sqlalchemy") is None:  # it is imported when the first row is written
        raise MissingExtraError('sqlalchemy is not installed: pip install "tidegate[sql]"', name="sqlalchemy")
    return HistoryRecorder(
        events,
        history,
        HistorySpool(spool_folder(settings, store)),
        clock,
        days=settings.tidegate_history or KEEP_DAYS,
        texts=settings.tidegate_history_texts,
    )


def spool_folder(settings: Settings, store: str) -> Path:
    """Return the folder of the database beside this store: rows of one must never reach another."""
    if settings.database_url is None:
        file = data_file(store)
        place = "memory" if file is None else str(file.absolute())
    else:
        parts = urlsplit(settings.database_url.get_secret_value())
        is_file = parts.scheme.startswith("sqlite")
        name = str(Path(parts.path.removeprefix("/")).absolute()) if is_file else parts.path
        place = f"{parts.hostname or ''}:{parts.port or ''}{name}"
    digest = hashlib.blake2s(place.encode(), digest_size=6).hexdigest()
    return Path(settings.tidegate_spool, f"history-{digest}")
