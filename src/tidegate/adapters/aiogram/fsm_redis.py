"""aiogram's conversations (FSM state and data) in the gate's Redis."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from weakref import WeakValueDictionary

from aiogram import Dispatcher
from aiogram.fsm.storage.base import DefaultKeyBuilder, StorageKey
from aiogram.fsm.storage.memory import DisabledEventIsolation
from aiogram.fsm.storage.redis import RedisEventIsolation, RedisStorage
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.lock import Lock
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import RedisError

from tidegate.adapters.aiogram.fsm_storage import MarkBusy
from tidegate.clock import Clock
from tidegate.outbox.effect_keys import in_handler
from tidegate.stores.redis.connection import ANSWER_TIMEOUT, CONNECT_TIMEOUT

log = logging.getLogger("tidegate")

PREFIX: Final = "tidegate-fsm"  # the store's keys begin with "tidegate:"
MAX_CONNECTIONS: Final = 50  # who needs one more waits: a burst of updates is no error
CONVERSATION_LEASE: Final = 30.0  # seconds until the conversation that a dead process held is free


def use_redis_storage(dispatcher: Dispatcher, url: str, clock: Clock, busy: MarkBusy) -> RedisStorage:
    """Connects when the first update comes. aiogram closes it at shutdown; it opens again if it is used."""
    # For 3 to 4 s: a Redis that restarts delays updates instead of losing them.
    patient = Retry(ExponentialBackoff(cap=1.0, base=0.1), 5)
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=MAX_CONNECTIONS,
        timeout=None,
        socket_timeout=ANSWER_TIMEOUT,
        socket_connect_timeout=CONNECT_TIMEOUT,
        retry=patient,
    )
    keys = DefaultKeyBuilder(
        prefix=PREFIX, with_bot_id=True, with_business_connection_id=True, with_destiny=True
    )
    storage = RedisStorage(Redis(connection_pool=pool), keys)
    fsm = dispatcher.fsm
    fsm.storage = storage
    if type(fsm.events_isolation) is DisabledEventIsolation:
        fsm.events_isolation = RedisLockIsolation(storage, clock, busy)
    log.info("conversations are kept in Redis")
    return storage


class RedisLockIsolation(RedisEventIsolation):
    """Updates of one conversation are handled one at a time, in all processes; those of one process in order.

    For those that come past the inbox, as from a webhook server of aiogram's.
    aiogram's own gives a conversation free after a minute, and fails a handler that took longer; replies
    that wait their turn do. This one holds it as long as the handler runs. `busy` is entered before it waits.
    """

    def __init__(self, storage: RedisStorage, clock: Clock, busy: MarkBusy) -> None:
        super().__init__(storage.redis, storage.key_builder)
        self._clock = clock
        self._busy = busy
        self.lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # gone when nobody waits

    @asynccontextmanager
    async def lock(self, key: StorageKey) -> AsyncGenerator[None, None]:
        if in_handler():  # through the inbox: no other update of its chat is handled meanwhile, anywhere
            yield
            return
        name = self.key_builder.build(key, "lock")
        line = self.lines.setdefault(name, asyncio.Lock())
        with self._busy():
            # Redis is asked again and again, and whoever asks first has the lock: so one of us at a time.
            async with line, self._held(name):
                yield

    @asynccontextmanager
    async def _held(self, name: str) -> AsyncIterator[None]:
        lock = self.redis.lock(name, timeout=CONVERSATION_LEASE)
        await lock.acquire()
        renewing = asyncio.create_task(self._renew(lock), name="tidegate: conversation")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(RedisError, OSError):  # the update was handled all the same, and the lease ends
                await lock.release()

    async def _renew(self, lock: Lock) -> None:
        while True:
            await self._clock.sleep(CONVERSATION_LEASE / 3)
            try:
                await lock.reacquire()
            except (RedisError, OSError) as error:
                why = type(error).__name__
                log.warning("a conversation could not be held, another process may go on with it: %s", why)
