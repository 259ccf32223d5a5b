"""The file: one connection, one thread, and steps that share commits.

Steps that come while a commit is under way go into the next one together (group commit): a commit costs
the same for one step as for a thousand. What a step changed in the file is told to memory by its `apply`,
in the order of the commits, whether or not whoever asked for it is still there.
"""

import asyncio
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from tidegate.errors import BadInputError, ClosedError, StoreError
from tidegate.model import BotId
from tidegate.outbox.sqlite.schema import prepare

log = logging.getLogger("tidegate.store")

T = TypeVar("T")
Counts = Counter[tuple[BotId, str]]

BUSY: Final = 30.0  # seconds to wait for another process's commit
OWED_AT_MOST: Final = 100_000  # steps that could not be written; then nothing more is claimed
PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # accepted means on disk; with shared commits it costs almost nothing
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -16000",
    "PRAGMA secure_delete = OFF",  # some builds have it on, which doubles what a settle writes
)
_NOT_OURS = {"SQLITE_NOTADB", "SQLITE_CANTOPEN"}


class Transaction:
    """What a step works with: SQL, and the counts that it changes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.counts: Counts = Counter()

    def count(self, bot: BotId, name: str, change: int = 1) -> None:
        self.counts[bot, name] += change

    def note(self, verb: str, body: object) -> None:
        """Tell the sender, which is another process."""
        self.execute("INSERT INTO journal (verb, body) VALUES (?, ?)", (verb, msgspec.msgpack.encode(body)))


Step = Callable[[Transaction], T]
Apply = Callable[[Any], Any]


class _Item(Generic[T]):
    """A step on its way to the disk."""

    __slots__ = ("apply", "future", "pending", "step", "sure", "writes")

    def __init__(
        self,
        step: Step[T],
        future: "asyncio.Future[Any]",
        apply: Apply | None,
        *,
        writes: bool,
        sure: bool,
        pending: Counts,
    ) -> None:
        self.step = step
        self.future = future
        self.apply = apply
        self.writes = writes
        self.sure = sure
        self.pending = pending


class _Done(msgspec.Struct, gc=False):
    result: Any = None
    counts: Counts | None = None
    error: Exception | None = None
    owed: bool = False


class StoreFile:
    """Counts of what is where are kept beside it: those of the file, and those about to be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counts = Counter()
        self.pending: Counts = Counter()
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._queue: list[_Item[Any]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._owed: list[_Item[Any]] = []
        self._paid: list[tuple[_Item[Any], _Done]] = []  # owed before, written now

    async def open(self) -> None:
        """Make the file if it is not there. Raises BadInputError for what cannot be a store."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidegate-store")
        try:
            self._connection = await self._in_thread(self._connect)
            await self.refresh_counts()
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def close(self) -> None:
        """After everything that was asked for is written."""
        while self._flushing is not None:
            await self._flushing
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._in_thread(connection.close)
        if self._thread is not None:
            self._thread.shutdown(wait=False)  # it has nothing to do: this would only block the loop
            self._thread = None

    @property
    def owes(self) -> int:
        """How many steps have happened that could not be written yet."""
        return len(self._owed)

    # --- steps ---

    def write(
        self,
        step: Step[T],
        apply: Apply | None = None,
        *,
        sure: bool = False,
        pending: Counts | None = None,
    ) -> asyncio.Future[Any]:
        """On disk when the future is done, which then has what `apply` made of the result.

        `sure`: it has happened already. If it cannot be written now it is as soon as that is possible, before
        anything that comes later, and `apply` is called with None at once. `pending`: the counts it will
        change, for those who ask before it is written.
        """
        if pending:
            self.pending.update(pending)
        return self._submit(step, apply, writes=True, sure=sure, pending=pending or Counter())

    def read(self, step: Step[T], apply: Apply | None = None) -> asyncio.Future[Any]:
        """Sees everything that was asked to be written before it."""
        return self._submit(step, apply, writes=False, sure=False, pending=Counter())

    async def changed(self) -> int:
        """A number that changes when another process has committed."""
        version: int = await self.read(lambda tx: tx.execute("PRAGMA data_version").fetchone()[0])
        return version

    async def refresh_counts(self) -> None:
        await self.read(_read_counts, self._take_counts)

    def _take_counts(self, counts: Counts) -> None:
        self.counts = counts

    def _submit(
        self, step: Step[T], apply: Apply | None, *, writes: bool, sure: bool, pending: Counts
    ) -> asyncio.Future[Any]:
        if self._connection is None:
            raise ClosedError(f"the store {self.path} is not open")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_Item(step, future, apply, writes=writes, sure=sure, pending=pending))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name="tidegate: store")
        return future

    async def _flush(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                outcomes = await self._in_thread(self._perform, batch)
                paid, self._paid = self._paid, []
                for item, done in paid:
                    self._count(item, done)
                for item, done in zip(batch, outcomes, strict=True):
                    self._finish(item, done)
        finally:
            self._flushing = None

    def _finish(self, item: _Item[Any], done: _Done) -> None:
        self._count(item, done)
        error, result = done.error, done.result
        if error is None and item.apply is not None:
            try:
                result = item.apply(result)
            except Exception as failure:
                log.exception("a step was written, and memory did not follow")
                error = failure
        if item.future.done():  # nobody waits any more
            return
        if error is None:
            item.future.set_result(result)
        else:
            item.future.set_exception(error)

    def _count(self, item: _Item[Any], done: _Done) -> None:
        if done.counts:
            self.counts.update(done.counts)
        if item.pending and not done.owed:
            self.pending.subtract(item.pending)

    # --- in the thread ---

    def _perform(self, batch: Sequence[_Item[Any]]) -> list[_Done]:
        if self._owed and any(item.writes for item in batch):
            self._pay()
        try:
            return self._together(batch)
        except Exception as error:  # noqa: BLE001  (it belongs to whoever awaits its future)
            if len(batch) > 1:  # one of them is to blame: the others must not suffer
                return [done for item in batch for done in self._perform([item])]
            return [self._failed(batch[0], _translated(error, self.path))]

    def _failed(self, item: _Item[Any], error: Exception) -> _Done:
        if not (item.sure and isinstance(error, StoreError)):
            return _Done(error=error)
        if not self._owed:
            log.error("%s. Delivery goes on; what happens is written down as soon as it can be", error)
        self._owed.append(item)
        return _Done(owed=True)

    def _pay(self) -> None:
        """Write what could not be written before."""
        owed = self._owed
        try:
            done = self._together(owed)
        except sqlite3.Error:
            return
        self._owed = []
        self._paid += zip(owed, done, strict=True)
        log.warning("%s can be written again: %s steps made up for", self.path, len(owed))

    def _together(self, batch: Sequence[_Item[Any]]) -> list[_Done]:
        """In one transaction: all or none."""
        connection = cast("sqlite3.Connection", self._connection)
        writes = any(item.writes for item in batch)
        if writes and self._owed and batch is not self._owed:
            raise StoreError(f"{self.path} cannot be written; {len(self._owed)} steps wait for it")
        if not writes:
            return [_Done(result=item.step(Transaction(connection))) for item in batch]
        connection.execute("BEGIN IMMEDIATE")
        try:
            done: list[_Done] = []
            counted = 0
            for item in batch:
                if not item.writes:  # it sees what was asked before it, counts and all
                    _write_counts(connection, done[counted:])
                    counted = len(done)
                done.append(self._one(item, connection))
            _write_counts(connection, done[counted:])
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return done

    @staticmethod
    def _one(item: _Item[Any], connection: sqlite3.Connection) -> _Done:
        transaction = Transaction(connection)
        return _Done(result=item.step(transaction), counts=transaction.counts)

    def _connect(self) -> sqlite3.Connection:
        path = self.path
        if path.is_dir():
            raise BadInputError(
                f"{path} is a folder: give the path of a file in it, such as {path}/tidegate.db"
            )
        if not path.parent.is_dir():
            raise BadInputError(f"there is no folder {path.parent}: make it, or give another path")
        try:
            # For its owner alone: what people are told is nobody else's business.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise BadInputError(f"{path} cannot be opened: {error.strerror}") from error
        try:
            # No more than one thread uses it at a time; on a loop with virtual time it is the loop's own.
            connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise _translated(error, path) from error
        try:
            for pragma in PRAGMAS:
                connection.execute(pragma)
            prepare(connection, path)
        except sqlite3.Error as error:
            connection.close()
            raise _translated(error, path) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _in_thread(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:  # noqa: ANN401
        return asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


def _read_counts(tx: Transaction) -> Counts:
    return Counter({(bot, name): count for bot, name, count in tx.execute("SELECT * FROM counts")})


def _write_counts(connection: sqlite3.Connection, done: Sequence[_Done]) -> None:
    total: Counts = Counter()
    for each in done:
        total.update(each.counts or {})
    connection.executemany(
        "INSERT INTO counts (bot, name, count) VALUES (?, ?, ?) "
        "ON CONFLICT (bot, name) DO UPDATE SET count = count + excluded.count",
        [(*key, change) for key, change in total.items() if change],
    )


def _translated(error: Exception, path: Path) -> Exception:
    """SQLite's errors in words that say what to do."""
    if not isinstance(error, sqlite3.Error):
        return error
    name = str(getattr(error, "sqlite_errorname", "")) or "SQLITE_ERROR"
    if name in _NOT_OURS:
        return BadInputError(
            f"{path} is not a store of Tidegate ({error}): give another file, or restore a backup"
        )
    known = {
        "SQLITE_FULL": f"the disk that holds {path} is full: free some space",
        "SQLITE_READONLY": f"{path} is read-only: let this user write it and its folder",
        "SQLITE_BUSY": f"another process has kept {path} locked for {BUSY:.0f} s",
        "SQLITE_CORRUPT": f"{path} is damaged: restore a backup (tidegate restore)",
        "SQLITE_IOERR": f"{path} cannot be read or written: look at the disk ({error})",
    }
    for prefix, text in known.items():
        if name.startswith(prefix):
            return StoreError(text)
    return StoreError(f"{path}: {error}") if isinstance(error, sqlite3.OperationalError) else error
