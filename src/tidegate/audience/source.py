"""A file that is read more than once, to check it and to send it: line by line, never as a whole."""

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from tidegate.errors import BadInputError

MAX_LINE: Final = 2 * 1024 * 1024  # bytes; twice what one message may have
IN_MEMORY: Final = 16 * 1024 * 1024  # bytes of a pipe; what is beyond goes to a temporary file
BLOCK: Final = 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_NO_TEXT: Final = {
    b"\xff\xfe": "is written in UTF-16: save it as UTF-8",
    b"\xfe\xff": "is written in UTF-16: save it as UTF-8",
    b"PK\x03\x04": "is a spreadsheet or an archive: save it as CSV in UTF-8",
    b"\x1f\x8b": "is compressed: unpack it first",
}
Stamp = tuple[int, int]  # changes when somebody writes to a file


class Source:
    """The lines of a file, as often as asked for, without a byte order mark."""

    def __init__(self, name: str, stream: IO[bytes], *, size: int, stamp: Stamp | None = None) -> None:
        self.name, self.size = name, size
        self.read = 0  # bytes, of the latest reading
        self._stream, self._stamp = stream, stamp

    def lines(self) -> Iterator[bytes]:
        """From the beginning, each with its end. Raises BadInputError if it was written to meanwhile."""
        self._rewind()
        self.read = 0
        number = 0
        while line := self._stream.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise BadInputError(f"{self.name}, line {number}: has more than {MAX_LINE:,} bytes")
            self.read += len(line)
            yield line if number > 1 else self._text(line)

    def digest(self) -> bytes:
        """Tells this content from any other."""
        self._rewind()
        known = hashlib.blake2b(digest_size=16)
        while block := self._stream.read(BLOCK):
            known.update(block)
        return known.digest()

    def _rewind(self) -> None:
        if self._stamp is not None and self._stamp != _stamp(os.fstat(self._stream.fileno())):
            raise BadInputError(f"{self.name} was written to while it was read: run the command again")
        self._stream.seek(0)

    def _text(self, first: bytes) -> bytes:
        for start, reason in _NO_TEXT.items():
            if first.startswith(start):
                raise BadInputError(f"{self.name} {reason}")
        return first.removeprefix(_BOM)


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns


@contextmanager
def opened(place: str) -> Iterator[Source]:
    """The file at `place`; `-` is stdin, which is kept for the next reading, as other pipes are."""
    name = "stdin" if place == "-" else place
    with _stream(place) as stream:
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode) and place != "-":
            yield Source(name, stream, size=status.st_size, stamp=_stamp(status))
            return
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as kept:
            shutil.copyfileobj(stream, kept)
            yield Source(name, kept, size=kept.tell())


def _stream(place: str) -> IO[bytes]:
    try:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb") if place == "-" else Path(place).open("rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInputError(f"cannot read {place}: {reason.lower()}") from error
