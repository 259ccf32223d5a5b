"""The inboxes under contract, each with the store below it. A new one is one more line in `INBOXES`."""

import tempfile
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from contract.inline_redis import InlineConnection
from contract.stores import FAST, redis_url
from tidegate.clock import Clock
from tidegate.inbound.inbox import Inbox
from tidegate.pacing.rules import Rules
from tidegate.stores.memory.inbox import MemoryInbox
from tidegate.stores.redis.inbox import RedisInbox
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.inbox import SqliteInbox


class Base(Protocol):
    async def open(self) -> None: ...
    async def close(self) -> None: ...


Change = Callable[[bytes], bytes]


class StoredInbox:
    """An inbox and the file or Redis below it. Empty, and not open yet.

    `own_time`: keys expire in real time. `damage` changes the stored bytes of items, by their numbers in the
    order of arrival, from 1 on, below the inbox.
    """

    def __init__(
        self,
        inbox: Inbox,
        base: Base | None = None,
        *,
        own_time: bool = False,
        damage: Callable[[int, Change], Awaitable[None]],
    ) -> None:
        self.inbox = inbox
        self.own_time = own_time
        self.damage = damage
        self._base = base

    async def open(self) -> None:
        if self._base is not None:
            await self._base.open()
        await self.inbox.open()

    async def crash(self, clock: Clock) -> None:
        """The process that has claimed items dies; a while later another takes its place."""
        await self.inbox.close()
        await clock.sleep(30)  # longer than any lease
        await self.inbox.open()
        for _ in range(6 if self.own_time else 0):  # living processes get the time to renew
            await self.inbox.stats()
            await clock.sleep(1)

    async def close(self) -> None:
        await self.inbox.close()
        if self._base is not None:
            await self._base.close()


def memory(clock: Clock) -> StoredInbox:
    inbox = MemoryInbox(clock)

    async def damage(number: int, change: Change) -> None:
        held = inbox._items[number]  # noqa: SLF001  (nothing else changes it)
        item = msgspec.structs.replace(held.item, body=change(held.item.body))
        inbox._items[number] = msgspec.structs.replace(held, item=item)  # noqa: SLF001

    return StoredInbox(inbox, damage=damage)


def sqlite(clock: Clock) -> StoredInbox:
    folder = tempfile.TemporaryDirectory(dir=FAST)
    file = StoreFile(Path(folder.name, "store.db"))
    weakref.finalize(file, folder.cleanup)

    async def damage(number: int, change: Change) -> None:
        def step(tx: Transaction) -> None:
            [body] = tx.execute("SELECT body FROM arrivals WHERE number = ?", (number,)).fetchone()
            tx.execute("UPDATE arrivals SET body = ? WHERE number = ?", (change(body), number))

        await file.write(step)

    return StoredInbox(SqliteInbox(file, clock, poll=3600.0), file, damage=damage)


def redis(clock: Clock) -> StoredInbox:
    outbox = RedisOutbox(InlineConnection(redis_url(), clock), clock, Rules())  # its connection is shared
    link = outbox.connection

    async def damage(number: int, change: Change) -> None:
        bodies = link.key("inbox:bodies")
        field = sorted(await link.command("HKEYS", bodies))[number - 1]
        await link.command("HSET", bodies, field, change(await link.command("HGET", bodies, field)))

    return StoredInbox(RedisInbox(link, clock), outbox, own_time=True, damage=damage)


INBOXES: Final[dict[str, Callable[[Clock], StoredInbox]]] = {
    "memory": memory,
    "sqlite": sqlite,
    "redis": redis,
}
SLOW: Final = {"redis": 2}  # each step is a round trip: half of the examples
