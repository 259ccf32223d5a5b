"""Subscriptions in Redis: any process adds, the leader polls; each step is one script."""

import secrets
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from tidegate.clock import Clock
from tidegate.errors import NotTheSenderError
from tidegate.polling.subscriptions import (
    AfterNews,
    News,
    StoredSubscription,
    Subscription,
    SubscriptionRef,
    Subscriptions,
    UnreadableSubscriptions,
    check_text,
    key_and_number,
    pack_news,
    pack_subscription,
)
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.leases import RedisLeases
from tidegate.stores.redis.scripts import load_scripts

T = TypeVar("T")

KEYS: Final = ("meta", "numbers", "bodies", "met", "news", "lease")
SCRIPTS: Final = load_scripts("subscriptions", KEYS, shared=("shared/lease",))
NOT_THE_LEADER: Final = 0  # a script's reply
SUBSCRIPTIONS_PER_STEP: Final = 500  # subscriptions in a step: Redis is for others too


class RedisSubscriptions(Subscriptions):
    """The subscriptions of one poller. Of more than 500 at once, each 500 are a step.

    The caller opens and closes the connection.
    """

    is_durable = True

    def __init__(self, connection: RedisConnection, clock: Clock, name: str) -> None:
        self.name = check_text(name, "the name of a poller")
        self._connection = connection
        self._clock = clock
        self.unreadable = UnreadableSubscriptions(self.name)
        self._keys = [connection.key(f"polling:{name}:{part}") for part in KEYS]
        self.leases = RedisLeases(connection, secrets.token_hex(6), "polling:{}:lease".format)

    async def _run(self, step: str, *args: Argument) -> Any:  # noqa: ANN401  (Redis's)
        return await self._connection.script(SCRIPTS[step], self._keys, *args)

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        rows = [RawSubscription(one.key, pack_subscription(one)) for one in subscriptions]
        if not replace:
            await self.remove(self.unreadable.keys & {one.key for one in rows})
        self.unreadable.forget([one.key for one in rows])
        return await self._add(rows, replaces=replace)

    async def bring(self, rows: Sequence["RawSubscription"]) -> int:
        """Add subscriptions in the state of another store; return how many are new. Known ones stay."""
        return sum(await self._add(rows, replaces=False))

    async def _add(self, rows: Sequence["RawSubscription"], *, replaces: bool) -> list[bool]:
        fresh: list[int] = []
        for page in _pages(rows):
            arguments: list[Argument] = [part for one in page for part in one]
            fresh += await self._run("add", int(replaces), *arguments)
        return [one == 1 for one in fresh]

    async def remove(self, who: Collection[SubscriptionRef]) -> int:
        pairs = [_key_and_number(one) for one in who]
        for key, _ in pairs:
            check_text(key, "the key of a subscription")
        self.unreadable.forget([str(key) for key, _ in pairs])
        return sum([await self._run("remove", *chain(*page)) for page in _pages(pairs)])

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        found: list[StoredSubscription] = []
        self.unreadable.begin(number)
        while (size := min(limit - len(found), SUBSCRIPTIONS_PER_STEP)) > 0:
            rows = await self._run("after", number, size)
            found += [one for row in rows if (one := self._read(*row)) is not None]
            if len(rows) < size:
                break
            number = int(float(rows[-1][0]))
        return found

    def _read(
        self, number: bytes, key: bytes, body: bytes | None, met: int, news: bytes | None
    ) -> StoredSubscription | None:
        name = key.decode(errors="replace")
        return self.unreadable.read(int(float(number)), name, body, met=bool(met), news=news)

    async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
        found: list[StoredSubscription] = []
        for page in _pages([(one.key, one.kind, pack_news(one)) for one in news]):
            rows = await self._lead("note_news", *(part for one in page for part in one))
            read = [
                self._read(number, page[place][0].encode(), body, met, page[place][2])
                for place, number, body, met in rows
            ]
            found += [one for one in read if one is not None]
        return found

    async def settle_news(self, who: Collection[SubscriptionRef], then: AfterNews) -> None:
        for page in _pages([_key_and_number(one) for one in who]):
            await self._lead("settle_news", then, *chain(*page))

    async def _lead(self, step: str, *args: Argument) -> Any:  # noqa: ANN401  (Redis's)
        """Make a step that is refused while another process polls, however late this one comes."""
        reply = await self._run(step, self.leases.holder, *args)
        if reply == NOT_THE_LEADER:
            raise NotTheSenderError(f"another process polls for {self.name} now")
        return reply

    async def count(self) -> int:
        return int(await self._connection.command("ZCARD", self._key("numbers")))

    async def watermark(self) -> str | None:
        mark = await self._connection.command("HGET", self._key("meta"), "mark")
        return None if mark is None else mark.decode()

    async def save_watermark(self, mark: str) -> None:
        await self._connection.command("HSET", self._key("meta"), "mark", mark)

    def _key(self, part: str) -> str:
        return self._keys[KEYS.index(part)]


def _pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), SUBSCRIPTIONS_PER_STEP):
        yield items[first : first + SUBSCRIPTIONS_PER_STEP]


def _key_and_number(who: SubscriptionRef) -> tuple[Argument, Argument]:
    key, number = key_and_number(who)
    return key, "" if number is None else number


class RawSubscription(NamedTuple):
    """A subscription as it is stored, whether it can be decoded or not."""

    key: str
    body: bytes
    met: int = 0
    news: bytes = b""
