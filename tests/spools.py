"""Spools of processes that end as processes end, and a Redis that fails when told to. In virtual time."""

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from restarts import in_thread
from tidegate.clock import Clock
from tidegate.model import BotId, Message, TicketId
from tidegate.stores.redis.spool import Spool
from tidegate.stores.redis.spool_file import SpoolFile

numbers = itertools.count(1)


def message(text: str = "x", **fields: Any) -> Message:  # noqa: ANN401  (a message's own)
    given: dict[str, Any] = {"id": TicketId(f"m{next(numbers)}"), "params": {"text": text}}
    return Message(bot=BotId(42), chat_id=1, method="sendMessage", **given | fields)


def some(count: int) -> list[Message]:
    return [message() for _ in range(count)]


class Redis:
    """Takes what it is given, but for the chunks that it is told to fail at."""

    def __init__(self, *failing: int) -> None:
        self.taken: list[Message] = []
        self.chunks: list[int] = []
        self.failing = set(failing)
        self.meanwhile: Callable[[], Any] | None = None

    async def put(self, messages: list[Message]) -> None:
        self.chunks.append(len(messages))
        if self.meanwhile is not None:
            await self.meanwhile()
        if len(self.chunks) in self.failing:
            raise ConnectionError("away")
        self.taken += messages


class Machine:
    """A folder, and the processes that have it open."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self.clock = clock
        self.opened: list[Spool] = []

    async def process(self) -> Spool:
        spool = Spool(self.folder, self.clock)
        await spool.open()
        self.opened.append(spool)
        return spool

    async def kill(self, spool: Spool) -> None:
        """As kill -9: its locks are free, and that is all."""
        self.opened.remove(spool)
        await in_thread(drop, spool)

    async def names(self) -> list[str]:
        return await in_thread(lambda: sorted(path.name for path in self.folder.glob("*")))

    async def endings(self) -> list[str]:
        return [name.partition(".")[2] for name in await self.names()]


def files(spool: Spool) -> list[SpoolFile]:
    return list(spool._files.values())  # noqa: SLF001  (no process dies, and no disk fills, politely)


def drop(spool: Spool) -> None:
    for file in files(spool):
        file.close()
    spool._files.clear()  # noqa: SLF001


def connection(spool: Spool) -> sqlite3.Connection:
    [file] = files(spool)
    return file._connection  # noqa: SLF001
