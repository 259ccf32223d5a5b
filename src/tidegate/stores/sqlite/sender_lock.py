"""The lock of the one sender of a store file. The operating system frees it at once after kill -9."""

import asyncio
import errno
import fcntl
import logging
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.errors import NotTheSenderError, StoreError
from tidegate.scrubber import scrub_secrets
from tidegate.stores.sqlite.file import cannot_be_made

log = logging.getLogger("tidegate.store")

T = TypeVar("T")

LOCK_ATTEMPTS: Final = 5  # another process may hold it for an instant to look
LOCK_PAUSE: Final = 0.02


class SenderProcess(msgspec.Struct, frozen=True):
    """The process that sends."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


class SenderLock:
    """A lock on the file beside the store. It counts only as long as its path names the locked file.

    The store itself cannot carry it: closing any descriptor of that file would release SQLite's own locks.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._file: int | None = None
        self._locked: tuple[Path, int, int] | None = None  # the path, and what it names

    async def take(self, clock: Clock) -> None:
        """Take the lock. Raises NotTheSenderError that names the process that has it."""
        for attempt in range(LOCK_ATTEMPTS):
            if await _in_thread(self._try):
                return
            if attempt + 1 < LOCK_ATTEMPTS:
                await clock.sleep(LOCK_PAUSE)
        holder = await self.holder() or "another process"
        raise NotTheSenderError(
            f"{holder} sends for {self._store}: one process at a time does. Is the bot running already?"
            " Stop it. A process that only puts needs no worker; for several that send, keep the store in"
            " Redis (redis://…)"
        )

    @property
    def is_held(self) -> bool:
        """Return True if the path still names the locked file. Costs microseconds: ask before each claim."""
        return self._locked is not None and _identity(self._locked[0]) == self._locked[1:]

    async def keep(self) -> bool:
        """Return whether this process has the lock after all.

        A lock file that was removed is made again, unless another process was faster.
        """
        return self.is_held or (
            self._locked is not None and await _in_thread(self._take_again, self._locked[0])
        )

    async def release(self) -> None:
        file, self._file, self._locked = self._file, None, None
        if file is not None:
            await _in_thread(os.close, file)

    async def holder(self) -> SenderProcess | None:
        """The process that sends now, which may be this one; None if there is none."""
        return await _in_thread(self._look)

    async def check_not_deleted(self) -> None:
        """Raise StoreError for a store that is gone under its sender. Call it before a file is made."""
        await _in_thread(check_not_deleted, self._store)

    def _path(self) -> Path:
        store = self._store.resolve()  # one sender for the file, whatever links name it
        return store.with_name(store.name + ".lock")

    def _look(self) -> SenderProcess | None:
        try:
            file = _open(self._path(), os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(file)
        else:
            return None
        finally:
            os.close(file)

    def _take_again(self, path: Path) -> bool:
        before, self._file, self._locked = self._file, None, None
        try:
            taken = self._try()
        except StoreError as error:
            log.critical("%s", error)
            taken = False
        if before is not None:
            os.close(before)
        if taken:
            log.error("%s was removed while this process sends. It is made again", path)
        return taken

    def _try(self) -> bool:
        path = self._path()
        file = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        found = os.fstat(file)
        if _identity(path) != (found.st_dev, found.st_ino):  # removed between the two: the lock means nothing
            os.close(file)
            return False
        os.truncate(file, 0)
        os.pwrite(file, msgspec.json.encode(SenderProcess(os.getpid(), _command())), 0)
        self._file, self._locked = file, (path, found.st_dev, found.st_ino)
        return True


def check_not_deleted(store: Path) -> None:
    """A new file in the place of one that was deleted under its sender would stop that sender. Blocks."""
    if store.exists():
        return
    sender = SenderLock(store)._look()  # noqa: SLF001
    if sender is not None:
        raise StoreError(
            f"{store} was deleted or moved while {sender} sends from it: that process goes on delivering what"
            f" it holds. Stop it: what still waits is saved as {store}.rescued, which you can move back"
        )


def _open(path: Path, flags: int) -> int:
    """Open the lock file itself: never what a link names, and nothing that blocks or is no file."""
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
        raise StoreError(f"{path} cannot be made: its folder is gone") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StoreError(f"{path} is a symbolic link: remove it") from error
        raise StoreError(cannot_be_made(path, error)) from error
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(file)
        raise StoreError(f"{path} is not a file of its own, but a device or a link: remove it")
    return file


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file that a path names now; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _in_thread(function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def _read(file: int) -> SenderProcess:
    try:
        known = msgspec.json.decode(os.pread(file, 4096, 0), type=SenderProcess)
        return SenderProcess(known.pid, scrub_secrets(known.command))  # others may write that file, too
    except msgspec.MsgspecError:  # it has just been taken
        return SenderProcess(0, "starting")


def _command() -> str:
    """The program of this process. Its arguments may hold a secret; only Tidegate's commands are known."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    command = sys.argv[1:2] if name == "tidegate" and sys.argv[1:2] and sys.argv[1].isalpha() else []
    return scrub_secrets(" ".join([name.lstrip("-") or "python", *command]))[:80]
