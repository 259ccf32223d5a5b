"""One file of the spool: messages in order. Everything here blocks: it is for the spool's thread."""

import logging
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tidegate.errors import StoreError
from tidegate.model import Message, TicketId
from tidegate.outbox.packing import unpack
from tidegate.outbox.redis.spool_lock import Hold
from tidegate.outbox.sqlite.file import BUSY, TROUBLE

log = logging.getLogger("tidegate.store")

CHUNK: Final = 250  # messages
CHUNK_BYTES: Final = 16 * 2**20  # some messages hold a file of many megabytes
# No number is given twice. Below zero are the messages that cannot be read.
TABLE: Final = """
CREATE TABLE IF NOT EXISTS messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL
)"""

Row = tuple[TicketId, bytes]


class DamagedError(StoreError):
    """SQLite cannot read the file."""


class Chunk(NamedTuple):
    """The first messages of a file, to be put together."""

    file: "SpoolFile"
    messages: list[Message]
    last: int


class SpoolFile:
    """Use it no more once it is closed, removed or moved aside."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self.path = hold.path
        self.number = hold.number
        self._passed = 0  # up to here everything is put, whether it could be removed or not
        with _told(self.path):
            self._connection, self.waiting = _connect(self.path)

    def add(self, rows: Sequence[Row]) -> None:
        """All or none; on disk when it returns. What is there already stays as it is."""
        with self._change() as connection:
            before = connection.total_changes
            connection.executemany("INSERT OR IGNORE INTO messages (id, body) VALUES (?, ?)", rows)
            added = connection.total_changes - before
        self.waiting += added

    def known(self, ids: Collection[TicketId]) -> set[TicketId]:
        return {ticket for ticket in ids if self._body(ticket) is not None}

    def find(self, ticket: TicketId) -> Message | None:
        body = self._body(ticket)
        return None if body is None else _read(body)

    def first(self) -> Chunk | None:
        while rows := self._rows():
            read = [(seq, _read(body)) for seq, body in rows]
            if unread := [seq for seq, message in read if message is None]:
                self._set_aside(unread)
            if messages := [message for _, message in read if message is not None]:
                return Chunk(self, messages, rows[-1][0])
        return None

    def remove(self, chunk: Chunk) -> None:
        """It is put. If the disk is too full even for this, what comes behind need not wait for space."""
        self._passed = chunk.last
        self.waiting -= len(chunk.messages)
        try:
            with self._change() as connection:
                connection.execute("DELETE FROM messages WHERE seq BETWEEN 1 AND ?", (chunk.last,))
        except DamagedError:
            raise
        except StoreError as error:
            log.warning("what Redis has taken cannot be removed, and may be given to it again: %s", error)

    def cancel(self, ids: Collection[TicketId]) -> set[TicketId]:
        statement = "DELETE FROM messages WHERE id = ? AND seq > ?"
        with self._change() as connection:
            gone = {each for each in ids if connection.execute(statement, (each, self._passed)).rowcount}
        self.waiting -= len(gone)
        return gone

    def close(self) -> None:
        """What is in it stays for another process."""
        self._disconnect()
        self._hold.release()

    def finish(self) -> None:
        """Everything in it is put. The file goes, unless there are messages in it that cannot be read."""
        if self._has_unread():
            self.move_aside()
        else:
            self._disconnect()
            self._hold.remove()

    def move_aside(self) -> None:
        self._disconnect()
        self._hold.move_aside()

    def _has_unread(self) -> bool:
        try:
            return self._connection.execute("SELECT 1 FROM messages WHERE seq < 0").fetchone() is not None
        except sqlite3.Error:
            return True

    def _body(self, ticket: TicketId) -> bytes | None:
        query = "SELECT body FROM messages WHERE id = ? AND seq > ?"
        with _told(self.path):
            row = self._connection.execute(query, (ticket, self._passed)).fetchone()
        return None if row is None else row[0]

    def _rows(self) -> list[tuple[int, bytes]]:
        query = "SELECT seq, body FROM messages WHERE seq > ? ORDER BY seq LIMIT ?"
        rows: list[tuple[int, bytes]] = []
        size = 0
        with _told(self.path):
            cursor = self._connection.execute(query, (self._passed, CHUNK))
            for seq, body in cursor:
                size += len(body)
                if rows and size > CHUNK_BYTES:
                    break
                rows.append((seq, body))
            cursor.close()
        return rows

    def _set_aside(self, unread: Sequence[int]) -> None:
        """Out of the way, yet kept: a later version of Tidegate may have written them."""
        with self._change() as connection:
            connection.executemany("UPDATE messages SET seq = -seq WHERE seq = ?", [(seq,) for seq in unread])
        self.waiting -= len(unread)
        log.error("%s messages in %s cannot be read: the others go on without them", len(unread), self.path)

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with _told(self.path), self._connection:  # which commits, or rolls back
            yield self._connection

    def _disconnect(self) -> None:
        with suppress(sqlite3.Error):  # nothing is left to be written
            self._connection.close()


def _connect(path: Path) -> tuple[sqlite3.Connection, int]:
    """The file, made ready, and how many messages wait in it."""
    # No more than one thread uses it at a time; on a loop with virtual time it is the loop's own.
    connection = sqlite3.connect(path, timeout=BUSY, isolation_level="IMMEDIATE", check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # accepted means on disk
        connection.execute(TABLE)
        [waiting] = connection.execute("SELECT count(*) FROM messages WHERE seq > 0").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection, waiting


def _read(body: bytes) -> Message | None:
    try:
        return unpack(body)
    except (msgspec.MsgspecError, ValueError):
        return None


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """SQLite's errors in words that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, path) from error


def _translated(error: sqlite3.Error, path: Path) -> StoreError:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DamagedError(f"{path} is damaged")
    for beginning, text in TROUBLE.items():
        if name.startswith(beginning):
            return StoreError(text.format(path=path, busy=BUSY, error=error))
    return StoreError(f"{path}: {error}")
