"""The inboxes under contract, each with what it stands on. A new one is one more line in `INBOXES`."""

import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from contract.inline_redis import InlineLink
from contract.stores import FAST, redis_url
from tidegate.clock import Clock
from tidegate.inbound.inbox import Inbox
from tidegate.pacing.rules import Rules
from tidegate.stores.memory.inbox import MemoryInbox
from tidegate.stores.redis.inbox import RedisInbox
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.inbox import SqliteInbox


class Ground(Protocol):
    async def open(self) -> None: ...
    async def close(self) -> None: ...


class House:
    """An inbox and the file or the Redis in which it is. Empty, and not open yet.

    `own_time`: what it forgets by itself it forgets in real time.
    """

    def __init__(self, inbox: Inbox, ground: Ground | None = None, *, own_time: bool = False) -> None:
        self.inbox = inbox
        self.own_time = own_time
        self._ground = ground

    async def open(self) -> None:
        if self._ground is not None:
            await self._ground.open()
        await self.inbox.open()

    async def crash(self, clock: Clock) -> None:
        """Whoever held something ends without a word of it; a while later another takes its place."""
        await self.inbox.close()
        await clock.sleep(30)  # longer than any lease
        await self.inbox.open()
        for _ in range(6 if self.own_time else 0):  # those who live get the time to say so
            await self.inbox.stats()
            await clock.sleep(1)

    async def close(self) -> None:
        await self.inbox.close()
        if self._ground is not None:
            await self._ground.close()


def memory(clock: Clock) -> House:
    return House(MemoryInbox(clock))


def sqlite(clock: Clock) -> House:
    folder = tempfile.TemporaryDirectory(dir=FAST)
    file = StoreFile(Path(folder.name, "store.db"))
    weakref.finalize(file, folder.cleanup)
    return House(SqliteInbox(file, clock, poll=3600.0), file)


def redis(clock: Clock) -> House:
    outbox = RedisOutbox(InlineLink(redis_url(), clock), clock, Rules())  # its link is shared
    return House(RedisInbox(outbox.link, clock), outbox, own_time=True)


INBOXES: Final[dict[str, Callable[[Clock], House]]] = {"memory": memory, "sqlite": sqlite, "redis": redis}
SLOW: Final = {"redis": 2}  # each step is a round trip: half of the examples
