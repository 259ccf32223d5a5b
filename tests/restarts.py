"""Stores in files that end as processes end: well, or between two instructions. In virtual time."""

import asyncio
import itertools
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from contract.post import ROOMY, Post
from tidegate.clock import Clock
from tidegate.pacing.rules import Rules
from tidegate.stores.sqlite.outbox import SqliteOutbox

T = TypeVar("T")


class Disk:
    """One store file, and those that have it open: one after the other, or side by side."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.opened: list[SqliteOutbox] = []
        self._ids = itertools.count(1)

    async def sender(self, rules: Rules = ROOMY, **options: Any) -> Post:  # noqa: ANN401  (the store's own)
        post = await self.opener(rules, **options)
        await post.outbox.start_sending()
        return post

    async def opener(self, rules: Rules = ROOMY, *, clock: Clock | None = None, **options: Any) -> Post:  # noqa: ANN401
        outbox = SqliteOutbox(self.path, clock or self.clock, rules, **options)
        await outbox.open()
        self.opened.append(outbox)
        post = Post(outbox, clock or self.clock)
        post._ids = self._ids  # noqa: SLF001  (no two messages of one file have one id)
        return post

    async def close(self, post: Post) -> None:
        outbox = store(post)
        self.opened.remove(outbox)
        await outbox.close()

    async def kill(self, post: Post) -> None:
        """As kill -9: what is not on disk by now is gone, nobody is told, and the lock is free."""
        outbox = store(post)
        self.opened.remove(outbox)
        await kill(outbox)

    async def restart(self, post: Post, rules: Rules = ROOMY, **options: Any) -> Post:  # noqa: ANN401
        await self.kill(post)
        return await self.sender(rules, **options)

    async def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What is in the file, asked by nobody who could mend it."""
        return await in_thread(self._rows, query, values)

    def _rows(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query, values).fetchall()


def store(post: Post) -> SqliteOutbox:
    assert isinstance(post.outbox, SqliteOutbox)
    return post.outbox


async def kill(outbox: SqliteOutbox) -> None:
    file, lock = outbox.file, outbox._lock  # noqa: SLF001  (no process ends politely here)
    if file._flushing is not None:  # noqa: SLF001
        file._flushing.cancel()  # noqa: SLF001
        await asyncio.gather(file._flushing, return_exceptions=True)  # noqa: SLF001
    await outbox._tasks.stop()  # noqa: SLF001
    outbox._dispatcher.close()  # noqa: SLF001  (its timers and waiters are gone with it)
    outbox._waiters.close()  # noqa: SLF001
    connection, file._connection = file._connection, None  # noqa: SLF001
    assert connection is not None
    await in_thread(connection.close)
    if lock._file is not None:  # noqa: SLF001
        descriptor, lock._file = lock._file, None  # noqa: SLF001
        await in_thread(os.close, descriptor)


def in_thread(function: Callable[..., T], *arguments: object) -> Awaitable[T]:
    return asyncio.get_running_loop().run_in_executor(None, function, *arguments)
