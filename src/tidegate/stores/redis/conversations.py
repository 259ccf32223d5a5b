"""Redis for conversations: a client that outlasts a restart of Redis, and locks that all processes share."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal
from weakref import WeakValueDictionary

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.lock import Lock
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import RedisError, ResponseError

from tidegate.clock import Clock
from tidegate.inbound.conversations import ConversationKey, UnreadableDataError, packed_as_ascii
from tidegate.stores.redis.connection import ANSWER_TIMEOUT, CONNECT_TIMEOUT, RedisConnection
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate")

CONVERSATION_PREFIX: Final = "tidegate-fsm"  # the store's keys begin with "tidegate:"
UNREADABLE_ENDING: Final = ":unreadable"  # of the key of a state or data that could not be decoded
MAX_CONNECTIONS: Final = 50  # a call beyond them waits: a burst of updates is no error
CONVERSATION_LEASE: Final = 30.0  # seconds until a conversation that a dead process held is free

ConversationClient = Redis


def conversation_key(key: ConversationKey, part: Literal["state", "data"]) -> str:
    """Return the key that aiogram's storage gives to a part of a conversation, as this gate sets it up."""
    parts = [CONVERSATION_PREFIX, key.bot, key.business, key.chat, key.thread, key.user, key.destiny, part]
    return ":".join(str(one) for one in parts if one)


async def bring_conversation(
    link: RedisConnection,
    key: ConversationKey,
    state: str | None,
    data: bytes | None,
    *,
    is_unreadable: bool = False,
) -> bool:
    """Write a conversation of another store, unless there is one. An unreadable one is kept beside, whole."""
    text: str | bytes | None = data
    if data is not None and not is_unreadable:
        try:
            text = packed_as_ascii(data)  # which aiogram reads, whatever is in it
        except UnreadableDataError:
            is_unreadable = True
    ending = UNREADABLE_ENDING if is_unreadable else ""
    values = {conversation_key(key, "state"): state, conversation_key(key, "data"): text}
    is_new = False
    for name, value in values.items():
        if value is not None:
            is_new = bool(await link.command("SET", name + ending, value, "NX")) or is_new
    return is_new and not is_unreadable


async def keep_unreadable(redis: Redis, *names: str) -> None:
    """Rename the keys of a conversation that cannot be decoded: it is empty then, and its bytes are kept."""
    for name in names:
        with suppress(ResponseError):  # it is gone already
            await redis.rename(name, name + UNREADABLE_ENDING)


def conversation_client(url: str) -> Redis:
    """Return a client that connects at its first call, and again if it is used after it was closed."""
    # Tries for 3 to 4 s: a Redis that restarts delays updates instead of losing them.
    retry = Retry(ExponentialBackoff(cap=1.0, base=0.1), 5)
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=MAX_CONNECTIONS,
        timeout=None,
        socket_timeout=ANSWER_TIMEOUT,
        socket_connect_timeout=CONNECT_TIMEOUT,
        retry=retry,
    )
    return Redis(connection_pool=pool)


class RedisConversationLocks:
    """Locks by name, each held by one task of one process for as long as it likes.

    Within a process they are granted in order. A lock is renewed while it is held; that of a dead process is
    free after CONVERSATION_LEASE seconds.
    """

    def __init__(self, redis: Redis, clock: Clock) -> None:
        self._redis = redis
        self._clock = clock
        self.in_use: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # gone when nobody waits

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        lock = self._redis.lock(name, timeout=CONVERSATION_LEASE)
        # Redis is asked again and again and grants to the first that asks: so one task of a process asks.
        async with self.in_use.setdefault(name, asyncio.Lock()):
            await lock.acquire()
            renewal = BackgroundTasks()
            renewal.start(self._renew(lock), "conversation")
            try:
                yield
            finally:
                await renewal.stop()
                with suppress(RedisError, OSError):  # the update was handled all the same; the lease runs out
                    await lock.release()

    async def _renew(self, lock: Lock) -> None:
        while True:
            await self._clock.sleep(CONVERSATION_LEASE / 3)
            try:
                await lock.reacquire()
            except (RedisError, OSError) as error:
                reason = type(error).__name__
                log.warning("a conversation could not be held, another process may handle it: %s", reason)
