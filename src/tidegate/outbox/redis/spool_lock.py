"""Whose a file of the spool is: names and locks. What is in the file is for `spool_file`.

    spool-<number>.db           the messages; a higher number was made later
    spool-<number>.lock         locked by the operating system as long as the file's process lives
    spool-<number>.db.damaged   moved aside: nobody looks into it again

The lock has a file of its own: whoever opens and closes SQLite's file beside SQLite frees SQLite's locks.
Everything here blocks.
"""

import fcntl
import logging
import os
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tidegate.errors import StoreError

log = logging.getLogger("tidegate.store")

_NAME: Final = re.compile(r"spool-(\d+)\.(?:db|lock)(?:\.damaged)?")


class Hold:
    """A file that no other process touches, until one of these is called."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.number = _number(path)
        self._lock = lock

    def release(self) -> None:
        """It stays as it is, for whoever takes it next."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)  # a fork of this process may have it open still
        os.close(self._lock)

    def remove(self) -> None:
        with _told(self.path.parent):
            try:
                for ending in (".db-wal", ".db-shm", ".db", ".lock"):  # the lock last: it guards the others
                    self.path.with_suffix(ending).unlink(missing_ok=True)
            finally:
                self.release()

    def move_aside(self) -> None:
        """It cannot be read, and may hold what was accepted: it is for people to look at."""
        aside = self.path.with_suffix(".db.damaged")
        log.error(
            "the spool's file %s is damaged, and is moved to %s: it may hold messages that were accepted and"
            " are not sent. Mend it (sqlite3 has .recover) and give it its name again: then they are",
            self.path,
            aside.name,
        )
        try:
            with _told(self.path.parent):
                for ending in ("-wal", ""):
                    with suppress(FileNotFoundError):
                        self.path.with_suffix(f".db{ending}").rename(f"{aside}{ending}")
        except StoreError:
            self.release()
            raise
        self.remove()


def take_new(folder: Path, number: int) -> Hold:
    """A new file, empty, behind all that are there. Its number is at least the one given."""
    with _told(folder):
        _make_folder(folder)
        while True:  # somebody may be faster
            number = max(number, 1 + max(map(_number, _names(folder)), default=0))
            hold = _take(folder / f"spool-{number}.db", os.O_EXCL)
            if hold is not None:
                break
        try:
            # What people are told is nobody else's business. SQLite makes its other files like this one.
            os.close(os.open(hold.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except BaseException:
            hold.remove()
            raise
    return hold


def take_dead(folder: Path, held: Container[int]) -> Iterator[Hold]:
    """The files whose process is dead, the oldest first, but for those held already."""
    with _told(folder):
        paths = {path.with_suffix(".db") for path in _names(folder) if path.suffix != ".damaged"}
    for path in sorted(paths, key=_number):
        if _number(path) in held:
            continue
        try:
            hold = _take(path)
        except OSError as error:  # another user's, say
            log.warning("the spool's file %s is passed over: %s", path, error.strerror)
            continue
        if hold is None:
            continue
        if path.exists():
            yield hold
        else:  # its process died before it made the file, or after it had removed it
            hold.remove()


def _take(path: Path, flags: int = 0) -> Hold | None:
    """None if its process lives, or the lock went away in this instant."""
    name = path.with_suffix(".lock")
    try:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o600)
    except FileExistsError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if name.stat().st_ino == os.fstat(lock).st_ino:  # else it was removed before it was locked
            return Hold(path, lock)
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _names(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return []


def _number(path: Path) -> int:
    return int(path.name.removeprefix("spool-").partition(".")[0])


def _make_folder(folder: Path) -> None:
    """It is there after a power cut as well. SQLite sees to that for what is in it."""
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
def _told(folder: Path) -> Iterator[None]:
    """The system's errors in words that say what to do."""
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
