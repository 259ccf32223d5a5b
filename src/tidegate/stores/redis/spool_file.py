"""One file of the spool, and the lock that says which process owns it. Everything here blocks.

    spool-<number>.db           the messages; a higher number was made later
    spool-<number>.lock         locked by the operating system as long as the owning process lives
    spool-<number>.db.damaged   moved aside: no process opens it again

The lock has a file of its own: opening and closing SQLite's file beside SQLite would free SQLite's locks.
"""

import fcntl
import logging
import os
import re
import sqlite3
from collections.abc import Collection, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tidegate.errors import StoreError
from tidegate.model import Message, TicketId
from tidegate.stores.message_codec import UnreadableBody, read_body
from tidegate.stores.sqlite.file import BUSY_TIMEOUT, DISK_ERRORS

log = logging.getLogger("tidegate.store")

_FILE_NAME: Final = re.compile(r"spool-(\d+)\.(?:db|lock)(?:\.damaged)?")


class SpoolLock:
    """A file that no other process touches, until one of these methods is called."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.number = _file_number(path)
        self._descriptor = descriptor

    def release(self) -> None:
        """Leave the file as it is, for the next process."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a fork of this process may have it open still
        os.close(self._descriptor)

    def remove(self) -> None:
        with _translate_os_errors(self.path.parent):
            try:
                for ending in (".db-wal", ".db-shm", ".db", ".lock"):  # the lock last: it guards the others
                    self.path.with_suffix(ending).unlink(missing_ok=True)
            finally:
                self.release()

    def move_aside(self) -> None:
        """Keep a file that cannot be read for an operator: it may hold accepted messages."""
        aside = self.path.with_suffix(".db.damaged")
        log.error(
            "the spool's file %s is damaged, and is moved to %s: it may hold messages that were accepted and"
            " are not sent. Repair it (sqlite3 has .recover) and rename it back: then they are sent",
            self.path,
            aside.name,
        )
        try:
            with _translate_os_errors(self.path.parent):
                for ending in ("-wal", ""):
                    with suppress(FileNotFoundError):
                        self.path.with_suffix(f".db{ending}").rename(f"{aside}{ending}")
        except StoreError:
            self.release()
            raise
        self.remove()


def lock_new_file(folder: Path, number: int) -> SpoolLock:
    """Make a new, empty file behind all that are there. Its number is at least the one given."""
    with _translate_os_errors(folder):
        _make_folder(folder)
        while True:  # another process may be faster
            number = max(number, 1 + max(map(_file_number, _spool_files(folder)), default=0))
            lock = _try_lock(folder / f"spool-{number}.db", os.O_EXCL)
            if lock is not None:
                break
        try:
            # Messages are private. SQLite gives its other files the same mode.
            os.close(os.open(lock.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except BaseException:
            lock.remove()
            raise
    return lock


def lock_dead_files(folder: Path, held: Container[int]) -> Iterator[SpoolLock]:
    """Yield the files whose process is dead, the oldest first, except those in `held`."""
    with _translate_os_errors(folder):
        paths = {path.with_suffix(".db") for path in _spool_files(folder) if path.suffix != ".damaged"}
    for path in sorted(paths, key=_file_number):
        if _file_number(path) in held:
            continue
        try:
            lock = _try_lock(path)
        except OSError as error:  # of another user, for example
            log.warning("the spool's file %s is passed over: %s", path, error.strerror)
            continue
        if lock is None:
            continue
        if path.exists():
            yield lock
        else:  # its process died before it made the file, or after it had removed it
            lock.remove()


def _try_lock(path: Path, flags: int = 0) -> SpoolLock | None:
    """Return None if its process lives, or the lock file was removed in this moment."""
    name = path.with_suffix(".lock")
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o600)
    except FileExistsError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if name.stat().st_ino == os.fstat(descriptor).st_ino:  # else it was removed before it was locked
            return SpoolLock(path, descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _spool_files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if _FILE_NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return []


def _file_number(path: Path) -> int:
    return int(path.name.removeprefix("spool-").partition(".")[0])


def _make_folder(folder: Path) -> None:
    """Make a folder that survives a power cut. SQLite does the same for the files in it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(0o700, parents=True, exist_ok=True)
    parent = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


@contextmanager
def _translate_os_errors(folder: Path) -> Iterator[None]:
    """Raise StoreError, which says what to do, for errors of the operating system."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise StoreError(
            f"the spool {folder}, which keeps messages while Redis is away, cannot be used: {reason}."
            " Give it a folder that this user may write, with space on its disk"
        ) from error


CHUNK_MESSAGES: Final = 250
CHUNK_BYTES: Final = 16 * 2**20  # some messages lock a file of many megabytes
# No number is given twice. Messages that cannot be read have negative numbers.
SPOOL_TABLE: Final = """
CREATE TABLE IF NOT EXISTS messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL
)"""

SpoolRow = tuple[TicketId, bytes]


class DamagedSpoolError(StoreError):
    """SQLite cannot read the file."""


class SpoolChunk(NamedTuple):
    """The first messages of a file, to be put together."""

    file: "SpoolFile"
    messages: list[Message]
    last: int


class SpoolFile:
    """Must not be used after it was closed, finished or moved aside."""

    def __init__(self, lock: SpoolLock) -> None:
        self._lock = lock
        self.path = lock.path
        self.number = lock.number
        self._passed = 0  # messages up to this number are in Redis, removed from the file or not
        with _translate_sqlite_errors(self.path):
            self._connection, self.waiting, self.set_aside = _connect(self.path)

    def add(self, rows: Sequence[SpoolRow]) -> None:
        """Add all or none; they are on disk when this returns. Known ids stay as they are."""
        with self._change() as connection:
            before = connection.total_changes
            connection.executemany("INSERT OR IGNORE INTO messages (id, body) VALUES (?, ?)", rows)
            added = connection.total_changes - before
        self.waiting += added

    def known(self, ids: Collection[TicketId]) -> set[TicketId]:
        return {ticket for ticket in ids if self._body(ticket) is not None}

    def find(self, ticket: TicketId) -> Message | None:
        body = self._body(ticket)
        message = None if body is None else read_body(body, ticket)
        return None if isinstance(message, UnreadableBody) else message

    def first(self) -> SpoolChunk | None:
        while rows := self._rows():
            messages: list[Message] = []
            unreadable: list[tuple[int, bytes, UnreadableBody]] = []
            for seq, ticket, body in rows:
                message = _read_row(ticket, body)
                if isinstance(message, UnreadableBody):
                    unreadable.append((seq, ticket, message))
                else:
                    messages.append(message)
            if unreadable:
                self._set_aside(unreadable)
            if messages:
                return SpoolChunk(self, messages, rows[-1][0])
        return None

    def remove(self, chunk: SpoolChunk) -> None:
        """Remove messages that Redis has taken. On a disk that is full even for this, the next ones go on."""
        self._passed = chunk.last
        self.waiting -= len(chunk.messages)
        try:
            with self._change() as connection:
                connection.execute("DELETE FROM messages WHERE seq BETWEEN 1 AND ?", (chunk.last,))
        except DamagedSpoolError:
            raise
        except StoreError as error:
            log.warning("messages that Redis has taken stay in the spool, and may be put again: %s", error)

    def cancel(self, ids: Collection[TicketId]) -> set[TicketId]:
        statement = "DELETE FROM messages WHERE id = ? AND seq > ?"
        with self._change() as connection:
            gone = {each for each in ids if connection.execute(statement, (each, self._passed)).rowcount}
        self.waiting -= len(gone)
        return gone

    def close(self) -> None:
        """Leave the messages for another process."""
        self._disconnect()
        self._lock.release()

    def finish(self) -> None:
        """Remove a drained file, unless there are messages in it that cannot be read."""
        if self._has_unread():
            self.move_aside()
        else:
            self._disconnect()
            self._lock.remove()

    def move_aside(self) -> None:
        self._disconnect()
        self._lock.move_aside()

    def _has_unread(self) -> bool:
        try:
            return self._connection.execute("SELECT 1 FROM messages WHERE seq < 0").fetchone() is not None
        except sqlite3.Error:
            return True

    def _body(self, ticket: TicketId) -> bytes | None:
        query = "SELECT body FROM messages WHERE id = ? AND seq > ?"
        with _translate_sqlite_errors(self.path):
            row = self._connection.execute(query, (ticket, self._passed)).fetchone()
        return None if row is None else row[0]

    def _rows(self) -> list[tuple[int, bytes, bytes]]:
        """The next rows: number, id and body. SQLite does not hold a damaged one to its types."""
        query = """SELECT seq, CAST(id AS BLOB), CAST(body AS BLOB) FROM messages
            WHERE seq > ? ORDER BY seq LIMIT ?"""
        rows: list[tuple[int, bytes, bytes]] = []
        size = 0
        with _translate_sqlite_errors(self.path):
            cursor = self._connection.execute(query, (self._passed, CHUNK_MESSAGES))
            for seq, ticket, body in cursor:
                size += len(body)
                if rows and size > CHUNK_BYTES:
                    break
                rows.append((seq, ticket, body))
            cursor.close()
        return rows

    def _set_aside(self, unreadable: Sequence[tuple[int, bytes, UnreadableBody]]) -> None:
        """Skip messages, but keep them: a later version of Tidegate may have written them."""
        numbers = [(seq,) for seq, _, _ in unreadable]
        with self._change() as connection:
            connection.executemany("UPDATE messages SET seq = -seq WHERE seq = ?", numbers)
        self.waiting -= len(unreadable)
        self.set_aside += len(unreadable)
        for _, ticket, body in unreadable:
            log.error(
                "message %s in the spool file %s is set aside: %s. The others go on without it; its bytes are"
                " kept there",
                ticket.decode(errors="replace"),
                self.path,
                body.description,
            )

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with _translate_sqlite_errors(self.path), self._connection:  # commits, or rolls back
            yield self._connection

    def _disconnect(self) -> None:
        with suppress(sqlite3.Error):  # everything is written
            self._connection.close()


def _connect(path: Path) -> tuple[sqlite3.Connection, int, int]:
    """Return the opened file, how many messages wait in it, and how many are set aside."""
    # One thread at a time uses it; with virtual time that is the thread of the event loop.
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT, isolation_level="IMMEDIATE", check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # accepted means on disk
        connection.execute(SPOOL_TABLE)
        [waiting] = connection.execute("SELECT count(*) FROM messages WHERE seq > 0").fetchone()
        [set_aside] = connection.execute("SELECT count(*) FROM messages WHERE seq < 0").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection, waiting, set_aside


def _read_row(ticket: bytes, body: bytes) -> Message | UnreadableBody:
    try:
        return read_body(body, TicketId(ticket.decode()))
    except UnicodeDecodeError:
        return UnreadableBody(len(body), "its id is no text")


@contextmanager
def _translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Raise StoreError, which says what to do, for errors of SQLite."""
    try:
        yield
    except sqlite3.Error as error:
        raise _spool_error(error, path) from error


def _spool_error(error: sqlite3.Error, path: Path) -> StoreError:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DamagedSpoolError(f"{path} is damaged")
    for beginning, text in DISK_ERRORS.items():
        if name.startswith(beginning):
            return StoreError(text.format(path=path, busy=BUSY_TIMEOUT, error=error))
    return StoreError(f"{path}: {error}")
