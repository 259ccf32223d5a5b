"""Rows of history that wait on disk for the database. Everything here blocks.

    history-<random>.jsonl    rows of one process, a batch in each line, locked as long as it lives

A row may be written to the database twice: its key is known there. So nothing has to be remembered of how far
a file was read, and a file that a killed process has left is read from its beginning by any other.
"""

import fcntl
import logging
import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidegate.history import AttemptRow, HistoryRow, RecordedRow

log = logging.getLogger("tidegate.history")

SPOOL_BYTES: Final = 256 * 2**20  # some hundred thousand rows
READ_AT_ONCE: Final = 2**18  # bytes


class _Batch(msgspec.Struct):
    """A line with rows of attempts among them; one without is the list of its messages."""

    messages: list[HistoryRow]
    attempts: list[AttemptRow]


_decoder = msgspec.json.Decoder(list[HistoryRow] | _Batch)


class HistorySpool:
    """The files that this process reads: those that were left, and its own. Used by one thread at a time.

    Raises OSError.
    """

    def __init__(self, folder: Path, most_bytes: int = SPOOL_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._files: list[_SpoolFile] = []
        self._own: _SpoolFile | None = None
        self._lock = threading.Lock()
        self.damaged = 0  # lines that could not be read

    @property
    def waiting(self) -> int:
        """How many bytes have not been read."""
        return sum(file.size - file.passed for file in self._files)

    def adopt(self) -> None:
        """Take over what processes that are dead have left."""
        with self._lock:
            known = {file.path for file in self._files}
            for path in sorted(self._folder.glob("history-*.jsonl")):
                try:
                    found = None if path in known else _locked(path)
                except OSError as error:  # of another user, for example
                    log.warning("%s is passed over: %s", path, error.strerror)
                    continue
                if found is not None:
                    self._files.append(found)

    def add(self, rows: Sequence[RecordedRow]) -> bool:
        """Append a batch; return False if the spool is full."""
        attempts = [row for row in rows if isinstance(row, AttemptRow)]
        messages = [row for row in rows if isinstance(row, HistoryRow)]
        line = msgspec.json.encode(_Batch(messages, attempts) if attempts else messages) + b"\n"
        with self._lock:
            if sum(file.size for file in self._files) + len(line) > self._most_bytes:
                return False
            if self._own is None:
                self._own = _new_file(self._folder)
                self._files.append(self._own)
            self._own.append(line)
        return True

    def first(self) -> list[RecordedRow] | None:
        """Return the batch that has waited longest; None if there is none. The same until it has `passed`."""
        with self._lock:
            while self._files:
                file = self._files[0]
                line = file.line()
                if not line:
                    self._remove(file)
                    continue
                try:
                    batch = _decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    self.damaged += 1
                    log.error("a line of %s cannot be read, and is left out: %s", file.path, error)  # noqa: TRY400
                    file.passed += len(line)
                else:
                    return [*batch.messages, *batch.attempts] if isinstance(batch, _Batch) else [*batch]
        return None

    def passed(self) -> None:
        """The first batch is in the database."""
        with self._lock:
            file = self._files[0]
            file.passed += len(file.line())
            if file.passed >= file.size:
                self._remove(file)

    def close(self) -> None:
        """Leave what waits for the next process."""
        with self._lock:
            for file in [*self._files]:
                if file.passed >= file.size:
                    self._remove(file)
                else:
                    file.close()
            self._files, self._own = [], None

    def _remove(self, file: "_SpoolFile") -> None:
        self._files.remove(file)
        if file is self._own:
            self._own = None
        file.path.unlink(missing_ok=True)
        file.close()


class _SpoolFile:
    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self.passed = 0  # bytes that are in the database

    def append(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, self.size)  # half of a line on a full disk
            raise
        self.size += len(line)

    def line(self) -> bytes:
        """Return the first line that was not passed. One without an end was cut off by a kill: it is none."""
        line = b""
        while part := os.pread(self._descriptor, READ_AT_ONCE, self.passed + len(line)):
            end = part.find(b"\n") + 1
            line += part[:end] if end else part
            if end:
                return line
        return b""

    def close(self) -> None:
        os.close(self._descriptor)


def _new_file(folder: Path) -> _SpoolFile:
    folder.mkdir(0o700, parents=True, exist_ok=True)
    while (made := _locked(folder / f"history-{secrets.token_hex(6)}.jsonl", os.O_CREAT | os.O_EXCL)) is None:
        pass  # another process has found it before it was locked
    return made


def _locked(path: Path, flags: int = 0) -> _SpoolFile | None:
    """Open a file; return None if its process lives, or has just removed it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | flags, 0o600)  # texts are private
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if not path.exists():  # removed before it was locked
        os.close(descriptor)
        return None
    return _SpoolFile(path, descriptor)
