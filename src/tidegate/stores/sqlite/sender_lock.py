"""The lock of the one sender of a store file. The operating system frees it at once after kill -9."""

import asyncio
import fcntl
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.errors import NotTheSenderError, StoreError
from tidegate.scrubber import scrub_secrets

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
    def __init__(self, store: Path) -> None:
        self._store = store
        self._file: int | None = None

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

    async def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            await _in_thread(os.close, file)

    async def holder(self) -> SenderProcess | None:
        """The process that sends now, which may be this one; None if there is none."""
        return await _in_thread(self._look)

    def _path(self) -> Path:
        store = self._store.resolve()  # one sender for the file, whatever links name it
        return store.with_name(store.name + ".lock")

    def _look(self) -> SenderProcess | None:
        try:
            file = os.open(self._path(), os.O_RDONLY)
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

    def _try(self) -> bool:
        try:
            file = os.open(self._path(), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            reason = (error.strerror or "unknown error").lower()
            raise StoreError(f"{self._path()} cannot be made: {reason}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        os.truncate(file, 0)
        os.pwrite(file, msgspec.json.encode(SenderProcess(os.getpid(), _command())), 0)
        self._file = file
        return True


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
