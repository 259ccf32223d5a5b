"""The spool: files in which a producer keeps accepted messages while Redis cannot be reached."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError
from tidegate.model import Message, TicketId
from tidegate.stores.group_commit import SerialGroupCommit
from tidegate.stores.message_codec import pack
from tidegate.stores.redis.spool_file import (
    DamagedSpoolError,
    SpoolChunk,
    SpoolFile,
    SpoolLock,
    SpoolRow,
    lock_dead_files,
    lock_new_file,
)

log = logging.getLogger("tidegate.store")

T = TypeVar("T")


class Spool:
    """Messages that Redis has not taken yet, on this machine's disk, in order.

    A folder, for one Redis, with a file for each process that has messages in it. Living processes adopt the
    files of dead ones. Nothing is on disk before the first message and after the last one is drained.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._clock = clock
        self._thread: ThreadPoolExecutor | None = None
        self._files: dict[int, SpoolFile] = {}  # by number; the thread changes it
        self._own = 0  # the number of the file that this process adds to
        self._gone_aside = 0  # messages set aside in files that are moved aside by now
        self._putting: frozenset[TicketId] = frozenset()  # while the spool drains
        self._adds: SerialGroupCommit[SpoolRow, None] = SerialGroupCommit(self._write, sys.maxsize, "spool")
        self._draining = asyncio.Lock()

    async def open(self) -> None:
        """Adopt the files of dead processes. Raises StoreError if the folder cannot be read."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidegate-spool")
        try:
            await self._in_thread(self._adopt)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Write everything that was added. Messages that are not drained stay for the next process."""
        await self._adds.join()
        if self._thread is None:
            return
        closed = self._in_thread(self._close)
        thread, self._thread = self._thread, None
        await closed
        thread.shutdown(wait=False)  # the thread is idle, and waiting would block the loop

    def __len__(self) -> int:
        """Messages not drained yet, including those on their way to the disk."""
        return self._adds.pending + sum(file.waiting for file in list(self._files.values()))

    @property
    def set_aside(self) -> int:
        """Messages that cannot be decoded, as far as this process has met them. Their bytes are kept."""
        return self._gone_aside + sum(file.set_aside for file in list(self._files.values()))

    async def add(self, messages: Sequence[Message]) -> None:
        """Add all or none; they are on disk when this returns. A known id is not added again.

        Raises StoreError if the disk does not take them.
        """
        if self._thread is None:
            raise ClosedError(f"the spool {self.folder} is not open")
        rows: list[SpoolRow] = [(message.id, pack(message)) for message in messages]
        if not rows:
            return
        await self._adds.ask(rows)

    async def find(self, ticket: TicketId) -> Message | None:
        return await self._in_thread(self._find, ticket) if self._files else None

    async def known(self, ids: Iterable[TicketId]) -> set[TicketId]:
        """Return which of these messages, each of them added before, are still in the spool."""
        return await self._in_thread(self._known, set(ids)) if self._files else set()

    async def cancel(self, ids: Iterable[TicketId]) -> set[TicketId]:
        """Take messages out, except those that are being put at this moment; return which.

        One whose put has failed before may be in Redis all the same, if only the answer was lost.
        """
        return await self._in_thread(self._cancel, set(ids)) if self._files else set()

    async def drain(self, put: Callable[[list[Message]], Awaitable[object]]) -> int:
        """Give all messages to `put` in order, including those of dead processes; return how many.

        A chunk is removed once `put` has returned. If `put` raises, so does this, and the chunk is put again
        by the next drain, of this process or another one.
        """
        drained = 0
        async with self._draining:
            await self._in_thread(self._adopt_if_possible)
            while (chunk := await self._next()) is not None:
                await put(chunk.messages)
                # A cancellation at this point must not lead to a second put.
                await asyncio.shield(self._in_thread(self._remove, chunk))
                drained += len(chunk.messages)
        return drained

    async def _next(self) -> SpoolChunk | None:
        while True:
            chunk = await self._in_thread(self._first)
            if chunk is not None or not self._adds.pending:
                return chunk
            await self._adds.join()

    async def _write(self, requests: list[Sequence[SpoolRow]]) -> list[None]:
        rows = [row for request in requests for row in request]
        await self._in_thread(self._add, rows)
        return [None] * len(requests)

    def _in_thread(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        if self._thread is None:
            raise ClosedError(f"the spool {self.folder} is not open")
        return asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    # Runs in the thread:

    def _adopt(self) -> None:
        for lock in lock_dead_files(self.folder, self._files):
            try:
                file = self._take(lock)
            except DamagedSpoolError:
                lock.move_aside()
            except StoreError as error:
                lock.release()
                log.warning("the spool file of another process is passed over: %s", error)
            else:
                if file.waiting:
                    log.info("%s has %s messages of a process that ended", file.path, file.waiting)

    def _adopt_if_possible(self) -> None:
        try:
            self._adopt()
        except StoreError as error:
            log.warning("the spool files of other processes cannot be listed: %s", error)

    def _take(self, lock: SpoolLock) -> SpoolFile:
        file = self._files[lock.number] = SpoolFile(lock)
        return file

    def _add(self, rows: Sequence[SpoolRow]) -> None:
        if len(self._files) > 1:  # a single file ignores known ids by itself
            ids = {ticket for ticket, _ in rows}
            known = self._known(ids)
            rows = [row for row in rows if row[0] not in known]
        try:
            self._mine().add(rows)
        except DamagedSpoolError:
            self._move_aside(self._mine())
            self._mine().add(rows)

    def _mine(self) -> SpoolFile:
        """The file that this process adds to, the same one until it is drained: this keeps the order.

        An adopted file will do: a process that dies again and again must not leave a file each time.
        """
        if self._own not in self._files:
            self._own = max(self._files) if self._files else self._make().number
        return self._files[self._own]

    def _make(self) -> SpoolFile:
        lock = lock_new_file(self.folder, round(self._clock.now() * 1000))
        try:
            return self._take(lock)
        except BaseException:
            lock.remove()
            raise

    def _first(self) -> SpoolChunk | None:
        """The first chunk of the oldest file that has any. A file that cannot be read for now is skipped."""
        trouble: StoreError | None = None
        for file in self._by_age():
            try:
                if (chunk := file.first()) is not None:
                    self._putting = frozenset(message.id for message in chunk.messages)
                    return chunk
                self._finish(file)
            except DamagedSpoolError:
                self._move_aside(file)
            except StoreError as error:
                trouble = error
        if trouble is not None:
            raise trouble
        return None

    def _remove(self, chunk: SpoolChunk) -> None:
        self._putting = frozenset()
        try:
            chunk.file.remove(chunk)
        except DamagedSpoolError:
            self._move_aside(chunk.file)

    def _find(self, ticket: TicketId) -> Message | None:
        found = self._each(lambda file: file.find(ticket))
        return next((message for message in found if message is not None), None)

    def _known(self, ids: set[TicketId]) -> set[TicketId]:
        return set[TicketId]().union(*self._each(lambda file: file.known(ids)))

    def _cancel(self, ids: set[TicketId]) -> set[TicketId]:
        if self._draining.locked():
            ids -= self._putting
        return set[TicketId]().union(*self._each(lambda file: file.cancel(ids)))

    def _each(self, ask: Callable[[SpoolFile], T]) -> Iterator[T]:
        """Yield the answer of each file. A damaged one is moved aside."""
        for file in self._by_age():
            try:
                answer = ask(file)
            except DamagedSpoolError:
                self._move_aside(file)
            else:
                yield answer

    def _by_age(self) -> list[SpoolFile]:
        return [self._files[number] for number in sorted(self._files)]

    def _finish(self, file: SpoolFile) -> None:
        self._gone_aside += file.set_aside
        del self._files[file.number]
        file.finish()

    def _move_aside(self, file: SpoolFile) -> None:
        self._gone_aside += file.set_aside
        del self._files[file.number]
        file.move_aside()

    def _close(self) -> None:
        for file in self._by_age():
            try:
                if file.waiting:
                    file.close()
                else:
                    file.finish()
            except StoreError as error:
                log.warning("an empty file of the spool stays: %s", error)
        self._files.clear()
