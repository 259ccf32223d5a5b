"""Where the report goes: nowhere that something else is, and as a whole or not at all."""

import csv
import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidegate.errors import BadInputError

HEADER: Final = ("chat_id", "state", "reason")
BESIDE: Final = ("", ".key", ".lock", "-wal", "-shm", "-journal")  # a store, and what belongs to it


def check_place(path: Path, *, read: Iterable[str], store: str) -> None:
    """Raises BadInputError unless a report may be written there: found out now, not after hours of sending.

    `read` are the files that the broadcast is made from.
    """
    target = _real(path)
    if any(_same(target, Path(place)) for place in read if place != "-") or _is_stdin(target):
        raise BadInputError(f"--report: {path} is what this broadcast is made from: name another file")
    if any(_same(target, place) for place in _of_store(store)):
        raise BadInputError(f"--report: {path} belongs to the store: name another file")
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise BadInputError(
            f"--report: {path} cannot be written: name a file in a folder that you may write to"
        )
    if target.exists() and not _is_report(target):
        raise BadInputError(f"--report: {path} exists, and is no earlier report: name another file")


def write_rows(path: Path, rows: Iterable[tuple[str, str, str]]) -> int:
    """Replaces what is there once all is on disk; returns how many rows."""
    target = _real(path)  # a link stays a link
    draft = target.with_name(f".report-{secrets.token_hex(8)}.tmp")
    written = 0
    try:
        with draft.open("x", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(HEADER)
            for row in rows:
                writer.writerow(row)
                written += 1
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return written


def _of_store(store: str) -> Iterator[Path]:
    file = store.removeprefix("sqlite:///")
    if "://" in file:
        return  # no file
    real = _real(Path(file))
    yield from (real.with_name(real.name + end) for end in BESIDE)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike resolve, it takes a link to itself


def _same(target: Path, other: Path) -> bool:
    """By whatever name, also where there is no such file yet."""
    if target == _real(other):
        return True
    with suppress(OSError):
        return target.samefile(other)
    return False


def _is_stdin(target: Path) -> bool:
    with suppress(OSError, ValueError, AttributeError):  # stdin may be closed, or no file
        return os.path.samestat(os.fstat(sys.stdin.fileno()), target.stat())
    return False


def _is_report(target: Path) -> bool:
    if not target.is_file():
        return False
    header = ",".join(HEADER).encode()
    try:
        with target.open("rb") as file:
            return file.readline(len(header) + 2).rstrip(b"\r\n") == header
    except OSError:
        return False
