"""The stores of subscriptions under contract, each with its setup. A new one is a line in `KINDS`."""

import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from contract.inline_redis import InlineConnection
from contract.stores import FAST, redis_url
from tidegate.clock import Clock
from tidegate.polling.subscriptions import (
    MemorySubscriptions,
    News,
    NewsKind,
    StoredSubscription,
    Subscription,
    Subscriptions,
)
from tidegate.stores.redis.subscriptions import RedisSubscriptions
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.subscriptions import SqliteSubscriptions


class Ground:
    """A file, a Redis or nothing, empty, in which subscriptions are kept. Not open yet."""

    def __init__(self, make: Callable[[str], Subscriptions], open_close: Any = None) -> None:  # noqa: ANN401
        self.of = make  # those of the poller with this name
        self._ground = open_close

    @property
    def redis(self) -> InlineConnection:
        assert isinstance(self._ground, InlineConnection)
        return self._ground

    async def damage(self, kept: Subscriptions, key: str, body: bytes) -> None:
        """Replace the stored bytes of a subscription, below its store."""
        if isinstance(self._ground, StoreFile):
            spoil = "UPDATE subscriptions SET body = ? WHERE key = ?"
            await self._ground.write(lambda tx: tx.execute(spoil, (body, key)))
        elif self._ground is not None:
            await self._ground.command("HSET", self._ground.key(f"polling:{kept.name}:bodies"), key, body)
        else:
            assert isinstance(kept, MemorySubscriptions)
            kept._rows[key].body = body  # noqa: SLF001  (nothing else changes it)

    async def open(self) -> None:
        if isinstance(self._ground, StoreFile):
            await self._ground.open()

    async def close(self) -> None:
        if self._ground is not None:
            await self._ground.close()


def memory(clock: Clock) -> Ground:
    return Ground(lambda _: MemorySubscriptions(clock))


def sqlite(clock: Clock) -> Ground:
    folder = tempfile.TemporaryDirectory(dir=FAST)
    file = StoreFile(Path(folder.name, "store.db"))
    weakref.finalize(file, folder.cleanup)
    return Ground(lambda name: SqliteSubscriptions(file, clock, name), file)


def redis(clock: Clock) -> Ground:
    link = InlineConnection(redis_url(), clock)
    return Ground(lambda name: RedisSubscriptions(link, clock, name), link)


KINDS: Final[dict[str, Callable[[Clock], Ground]]] = {"memory": memory, "sqlite": sqlite, "redis": redis}
SHARED: Final = ("sqlite", "redis")  # with other processes


def order(key: str, **data: Any) -> Subscription:  # noqa: ANN401  (as JSON)
    return Subscription(key, data, since=5.0)


def news(*keys: str, kind: NewsKind = "met", value: Any = True) -> list[News]:  # noqa: ANN401  (as JSON)
    return [News(key, value, kind) for key in keys]


def keys(kept: list[StoredSubscription]) -> list[str]:
    return [one.subscription.key for one in kept]


async def everyone(kept: Subscriptions) -> list[tuple[str, bool, News | None]]:
    return [(one.subscription.key, one.met, one.news) for one in await kept.after(0)]
