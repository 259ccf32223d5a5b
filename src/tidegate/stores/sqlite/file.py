"""The SQLite file: one connection, one thread, and steps that share commits.

Steps that come while a commit is under way go into the next one together (group commit): a commit costs
the same for one step as for a thousand. A step's `apply` carries its changes over to memory, in the order
of the commits, even if the task that asked for it was cancelled.
"""

import asyncio
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar, cast, overload

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, StoreError
from tidegate.model import BotId
from tidegate.stores.sqlite.file_health import FileHealth
from tidegate.stores.sqlite.schema import check, prepare

log = logging.getLogger("tidegate.store")

T = TypeVar("T")
R = TypeVar("R")
Counts = Counter[tuple[BotId, str]]

WAL_ATTEMPTS: Final = 20
BUSY_TIMEOUT: Final = 5.0  # seconds to wait for another process's commit, which takes milliseconds
# Once the file was locked for that long: delivery goes on without it, and a put is told at once.
KNOWN_BUSY_TIMEOUT: Final = 0.05  # seconds
MOST_UNWRITTEN_STEPS: Final = 100_000  # steps that could not be written; then nothing more is claimed
PRAGMAS: Final = (
    "PRAGMA synchronous = FULL",  # accepted means on disk; with shared commits it costs almost nothing
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -16000",
    "PRAGMA secure_delete = OFF",  # some builds have it on, which doubles what a settle writes
)
# Errors that fail every step, by how SQLite's name for them begins.
DISK_ERRORS: Final = {
    "SQLITE_FULL": "the disk that holds {path} is full: free some space",
    "SQLITE_READONLY": "{path} is read-only: let this user write it and its folder",
    "SQLITE_CANTOPEN": "{path} cannot be opened: let this user read and write it and its folder",
    "SQLITE_BUSY": "another process has kept {path} locked for {busy:.0f} s",
    "SQLITE_CORRUPT": "{path} is damaged: restore a backup (tidegate restore)",
    "SQLITE_NOTADB": "{path} is damaged: restore a backup (tidegate restore)",
    "SQLITE_IOERR": "{path} cannot be read or written: look at the disk ({error})",
}


LEFT_BEHIND: Final = "rows were erased, and their bytes can still be found in {path}"
LEFT_IN_LOG: Final = f"{LEFT_BEHIND}-wal: another process was reading: do it again"


class Transaction:
    """The connection for one step, with the counts that it changes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.counts: Counts = Counter()

    def count(self, bot: BotId, name: str, change: int = 1) -> None:
        self.counts[bot, name] += change

    def note(self, verb: str, body: object) -> None:
        """Write an entry for the sender, which is another process, into the journal."""
        self.execute("INSERT INTO journal (verb, body) VALUES (?, ?)", (verb, msgspec.msgpack.encode(body)))


SqlStep = Callable[[Transaction], T]


class _QueuedStep(msgspec.Struct, gc=False, eq=False):
    """A step on its way to the disk."""

    step: Callable[[Transaction], Any]
    apply: Callable[[Any], Any] | None
    writes: bool
    future: "asyncio.Future[Any]"
    sure: bool = False
    delivers: bool = False
    pending: Counts | None = None
    late: Callable[[Any], Any] | None = None


class _StepResult(msgspec.Struct, gc=False):
    result: Any = None
    counts: Counts | None = None
    error: Exception | None = None
    owed: bool = False


class StoreFile:
    """`counts` are those of the file, `pending` the changes about to be written."""

    def __init__(self, path: Path, clock: Clock | None = None, *, busy_timeout: float = BUSY_TIMEOUT) -> None:
        self.path = path
        self.health = FileHealth(path, clock or Clock())
        self._busy_timeout = self._waits_for = busy_timeout
        self.counts: Counts = Counter()
        self.pending: Counts = Counter()
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._queue: list[_QueuedStep] = []
        self._flushing: asyncio.Task[None] | None = None
        self._owed: list[_QueuedStep] = []
        self._paid: list[tuple[_QueuedStep, _StepResult]] = []  # owed before, written now

    async def open(self) -> None:
        """Open the file, or make it. Raises BadInputError for a file that is not a store."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidegate-store")
        try:
            self._connection = await self._in_thread(self._connect)
            await self.refresh_counts()
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def close(self) -> None:
        """Close the file after everything that was asked for is written."""
        while self._flushing is not None:
            await self._flushing
        if self._owed:
            log.error("%s steps could not be written to %s, and are lost", self.owes, self.path)
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._in_thread(connection.close)
        if self._thread is not None:
            self._thread.shutdown(wait=False)  # it has nothing to do: this would only block the loop
            self._thread = None

    @property
    def owes(self) -> int:
        """The number of `sure` steps that could not be written yet."""
        return len(self._owed)

    def problems(self) -> list[str]:
        """Return the problems of the file, a line each."""
        return self.health.problems(self.owes)

    async def probe(self) -> None:
        """Write something small, to find out whether the file can be written again. Raises StoreError."""
        await self.write(
            lambda tx: tx.execute(
                "INSERT INTO facts VALUES ('probe', 1) ON CONFLICT DO UPDATE SET value = value + 1"
            )
        )

    async def rescue(self) -> Path:
        """Copy the open file, which is no longer at its path, to a new one beside it. Raises StoreError."""
        try:
            return await self._in_thread(self._rescue)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"what waits in the open file of {self.path} cannot be saved: {error}"
            ) from error

    @overload
    def write(
        self, step: SqlStep[T], *, sure: bool = ..., delivers: bool = ..., pending: Counts | None = ...
    ) -> asyncio.Future[T]: ...

    @overload
    def write(
        self,
        step: SqlStep[T],
        apply: Callable[[T], R],
        *,
        sure: bool = ...,
        delivers: bool = ...,
        pending: Counts | None = ...,
        late: Callable[[T], None] | None = ...,
    ) -> asyncio.Future[R]: ...

    def write(
        self,
        step: SqlStep[T],
        apply: Callable[[T], R] | None = None,
        *,
        sure: bool = False,
        delivers: bool = False,
        pending: Counts | None = None,
        late: Callable[[T], None] | None = None,
    ) -> asyncio.Future[Any]:
        """Run a step in the next commit. The future is done once it is on disk, with the result of `apply`.

        `sure`: it has happened already. If it cannot be written now, it is as soon as possible, before any
        later step; `apply` is then called with None at once, and `late` with the result.
        `delivers`: it accepts nothing new, so it is also written to a file that was deleted while it is open.
        `pending`: the counts that it will change, for readers of the counts before it is written.
        """
        if pending:
            self.pending.update(pending)
        item = _QueuedStep(step, apply, True, _new_future(), sure, sure or delivers, pending, late)  # noqa: FBT003
        return self._submit(item)

    @overload
    def read(self, step: SqlStep[T]) -> asyncio.Future[T]: ...

    @overload
    def read(self, step: SqlStep[T], apply: Callable[[T], R]) -> asyncio.Future[R]: ...

    def read(self, step: SqlStep[T], apply: Callable[[T], R] | None = None) -> asyncio.Future[Any]:
        """Run a step that writes nothing. It sees every write that was asked for before it."""
        return self._submit(_QueuedStep(step, apply, False, _new_future()))  # noqa: FBT003

    def is_last(self, written: asyncio.Future[Any]) -> bool:
        """Return whether this step has not begun, and is the last one that was asked for."""
        return bool(self._queue) and self._queue[-1].future is written

    async def changed(self) -> int:
        """A number that changes when another process has committed."""
        version: int = await self.read(lambda tx: tx.execute("PRAGMA data_version").fetchone()[0])
        return version

    async def refresh_counts(self) -> None:
        await self.read(_read_counts, self._take_counts)

    async def rewrite(self) -> None:
        """Write the file anew without its free space, and empty the log of writes: nothing deleted is left.

        Deleted rows leave bytes in pages, even with SQLite's secure_delete: a page that was split has copies.
        Processes that write wait meanwhile, some seconds for each 100 MB; readers do not. The disk
        needs room for two more copies of the file. Raises StoreError if bytes may be left.
        """
        if self._connection is None:
            raise ClosedError(f"the store {self.path} is not open: use the gate inside async with gate:")
        try:
            emptied = await self._in_thread(self._rewrite)
        except sqlite3.Error as error:
            reason = _translate_error(error, self.path, self._busy_timeout)
            raise StoreError(f"{LEFT_BEHIND.format(path=self.path)}: {reason}; then do it again") from error
        if not emptied:
            raise StoreError(LEFT_IN_LOG.format(path=self.path))

    def _rewrite(self) -> bool:
        """Runs alone in the thread, so no transaction is open."""
        return write_anew(cast("sqlite3.Connection", self._connection))

    def _take_counts(self, counts: Counts) -> None:
        self.counts = counts

    def _submit(self, item: _QueuedStep) -> asyncio.Future[Any]:
        if self._connection is None:
            raise ClosedError(f"the store {self.path} is not open: use the gate inside async with gate:")
        self._queue.append(item)
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name="tidegate: store")
        return item.future

    async def _flush(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                self.health.began()
                try:
                    outcomes = await self._in_thread(self._perform_here, batch)
                finally:
                    self.health.ended()
                paid, self._paid = self._paid, []
                for item, done in paid:
                    self._count(item, done)
                    if item.late is not None:
                        item.late(done.result)
                for item, done in zip(batch, outcomes, strict=True):
                    self._finish(item, done)
        finally:
            self._flushing = None

    def _finish(self, item: _QueuedStep, done: _StepResult) -> None:
        self._count(item, done)
        error, result = done.error, done.result
        if error is None and item.apply is not None:
            try:
                result = item.apply(result)
            except Exception as failure:
                log.exception("a step was written, and memory did not follow")
                error = failure
        if item.future.done():  # cancelled
            return
        if error is None:
            item.future.set_result(result)
        else:
            item.future.set_exception(error)

    def _count(self, item: _QueuedStep, done: _StepResult) -> None:
        if done.counts:
            self.counts.update(done.counts)
        if item.pending and not done.owed:
            self.pending.subtract(item.pending)

    # Runs in the thread:

    def _perform_here(self, batch: Sequence[_QueuedStep]) -> list[_StepResult]:
        """Perform the steps that may be performed, as long as the file is at its path; else fewer."""
        place = self.health.look()
        if place == "here":
            return self._perform(batch)
        error = StoreError(self.health.gone)
        return [
            self._failed(item, error)
            if item.writes and (place == "replaced" or not item.delivers)
            else self._perform([item])[0]
            for item in batch
        ]

    def _perform(self, batch: Sequence[_QueuedStep]) -> list[_StepResult]:
        try:
            if self._owed and any(item.writes for item in batch):
                self._pay()
            return self._together(batch)
        except Exception as error:  # noqa: BLE001  (it belongs to the task that awaits the future)
            failure = self._translate(error)
            if len(batch) == 1:
                return [self._failed(batch[0], failure)]
            if _error_name(error).startswith(tuple(DISK_ERRORS)):  # nothing can be written
                return [
                    self._failed(item, failure) if item.writes else self._perform([item])[0] for item in batch
                ]
            # One of them is to blame: the others are done alone.
            return [self._perform([item])[0] for item in batch]

    def _translate(self, error: Exception) -> Exception:
        """Take note of an error that fails every step, and return it in words."""
        if not _error_name(error).startswith(tuple(DISK_ERRORS)):
            return _translate_error(error, self.path, 0.0)
        failure = _translate_error(error, self.path, self.health.failed())
        self.health.trouble = str(failure)
        if _error_name(error).startswith("SQLITE_BUSY"):
            self._wait_for(KNOWN_BUSY_TIMEOUT)
        return failure

    def _wait_for(self, seconds: float) -> None:
        """Let steps wait so long for another process's commit."""
        if self._waits_for != seconds and self._connection is not None:
            self._waits_for = seconds
            self._connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")

    def _failed(self, item: _QueuedStep, error: Exception) -> _StepResult:
        if not (item.sure and isinstance(error, StoreError)):
            return _StepResult(error=error)
        if not self._owed:
            log.error("%s. What is delivered meanwhile is written down as soon as it can be", error)
        self._owed.append(item)
        return _StepResult(owed=True)

    def _pay(self) -> None:
        """Write the steps that could not be written before. Raises the error if they still cannot.

        One step first, then more and more: while nothing can be written, a try costs the same for any number
        of steps.
        """
        paid, several = 0, 1
        while self._owed:
            steps = self._owed[:several]
            try:
                done = self._together(steps)
            except Exception as error:
                if _error_name(error).startswith(tuple(DISK_ERRORS)):
                    raise
                if several > 1:
                    several = 1  # one of them is to blame
                    continue
                log.exception("a step cannot be written, and is given up")
                done = [_StepResult()]
            self._paid += zip(steps, done, strict=True)
            del self._owed[: len(steps)]
            paid += len(steps)
            several *= 4
        log.warning("%s can be written again: %s steps made up for", self.path, paid)

    def _together(self, batch: Sequence[_QueuedStep]) -> list[_StepResult]:
        """Run steps in one transaction: all or none."""
        connection = cast("sqlite3.Connection", self._connection)
        if not any(item.writes for item in batch):
            return [_StepResult(result=item.step(Transaction(connection))) for item in batch]
        connection.execute("BEGIN IMMEDIATE")
        changes = connection.total_changes
        try:
            done: list[_StepResult] = []
            counted = 0
            for item in batch:
                if not item.writes:  # it sees everything before it, counts included
                    _write_counts(connection, done[counted:])
                    counted = len(done)
                done.append(self._one(item, connection))
            _write_counts(connection, done[counted:])
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._wait_for(self._busy_timeout)
        if (
            self.health.trouble is not None and connection.total_changes > changes
        ):  # an empty commit proves nothing
            self.health.wrote()
        return done

    @staticmethod
    def _one(item: _QueuedStep, connection: sqlite3.Connection) -> _StepResult:
        transaction = Transaction(connection)
        return _StepResult(result=item.step(transaction), counts=transaction.counts)

    def _connect(self) -> sqlite3.Connection:
        path = self.path
        create_file(path)
        connection: sqlite3.Connection | None = None
        try:
            # One thread at a time uses it; on a loop with virtual time that is the loop's own.
            connection = sqlite3.connect(
                path, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False
            )
            check(connection, path)  # before anything is changed: it may be another program's
            use_wal(connection)
            for pragma in PRAGMAS:
                connection.execute(pragma)
            prepare(connection, path)
            _check_whole(connection, path)
            self.health.opened()
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise _cannot_open(error, path, self._busy_timeout) from error
            raise
        return connection

    def _rescue(self) -> Path:
        connection = cast("sqlite3.Connection", self._connection)
        target = self.path.with_name(self.path.name + ".rescued")
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(target)) as copy:
            connection.backup(copy)
        return target

    def _in_thread(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:  # noqa: ANN401
        return asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


def _new_future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def create_file(path: Path) -> None:
    """Create the file, readable by its owner alone. Raises BadInputError or StoreError if it cannot be made.

    An existing file is not opened here: closing it again would release the locks that SQLite holds on it
    for this whole process, and another process could replace it meanwhile.
    """
    if path.is_dir():
        raise BadInputError(f"{path} is a folder: give the path of a file in it, such as {path}/tidegate.db")
    if not path.parent.is_dir():
        raise BadInputError(f"there is no folder {path.parent}: make it, or give another path")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK):
            raise StoreError(f"{path} is not for this user: let it read and write the file") from None
    except OSError as error:
        raise StoreError(cannot_be_made(path, error)) from error


def cannot_be_made(path: Path, error: OSError) -> str:
    """Say why there can be no such file, and what to do."""
    reason = (error.strerror or "unknown error").lower()
    return f"{path} cannot be made: {reason}: give a path in a folder that can be written to"


def write_anew(connection: sqlite3.Connection) -> bool:
    """Write a file anew without its free space, and empty its log of writes; return whether that is empty."""
    connection.execute("VACUUM")
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the WAL. SQLite does not wait for processes that do the same to a new file: try again."""
    for _ in range(WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not _error_name(error).startswith("SQLITE_BUSY"):
                raise
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL")


def _check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError for a file that is cut off, which SQLite reads as if it ended in zeros."""
    [page] = connection.execute("PRAGMA page_size").fetchone()
    if path.stat().st_size % page == 0:
        return
    _, logged, written = connection.execute("PRAGMA wal_checkpoint").fetchone()
    if logged == written and path.stat().st_size % page:  # else that page is in the log
        raise StoreError(DISK_ERRORS["SQLITE_CORRUPT"].format(path=path))


def _cannot_open(error: sqlite3.DatabaseError, path: Path, waited: float) -> Exception:
    if _error_name(error) == "SQLITE_NOTADB":
        return BadInputError(f"{path} is not a store of Tidegate: give another file, or restore a backup")
    return _translate_error(error, path, waited)


def _read_counts(tx: Transaction) -> Counts:
    return Counter({(bot, name): count for bot, name, count in tx.execute("SELECT * FROM counts")})


def _write_counts(connection: sqlite3.Connection, done: Sequence[_StepResult]) -> None:
    total: Counts = Counter()
    for each in done:
        total.update(each.counts or {})
    connection.executemany(
        "INSERT INTO counts (bot, name, count) VALUES (?, ?, ?) "
        "ON CONFLICT (bot, name) DO UPDATE SET count = count + excluded.count",
        [(*key, change) for key, change in total.items() if change],
    )


def _translate_error(error: Exception, path: Path, waited: float) -> Exception:
    """An error of SQLite as one that says what to do."""
    for beginning, text in DISK_ERRORS.items():
        if _error_name(error).startswith(beginning):
            return StoreError(text.format(path=path, busy=waited, error=error))
    return StoreError(f"{path}: {error}") if isinstance(error, sqlite3.OperationalError) else error


def _error_name(error: Exception) -> str:
    return str(getattr(error, "sqlite_errorname", ""))
