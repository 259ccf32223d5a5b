"""aiogram's conversations (FSM state and data) in the gate's Redis, by aiogram's own storage."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiogram import Dispatcher
from aiogram.fsm.storage.base import DefaultKeyBuilder, KeyBuilder, StorageKey
from aiogram.fsm.storage.memory import DisabledEventIsolation
from aiogram.fsm.storage.redis import RedisEventIsolation, RedisStorage

from tidegate.adapters.aiogram.fsm_storage import IsOrdered, MarkBusy, inbox_orders
from tidegate.clock import Clock
from tidegate.inbound.conversations import data_from_json, data_to_json
from tidegate.inbound.updates import Order
from tidegate.stores.redis.conversations import (
    CONVERSATION_PREFIX,
    ConversationClient,
    RedisConversationLocks,
    conversation_client,
    keep_unreadable,
)

log = logging.getLogger("tidegate")


def use_redis_storage(
    dispatcher: Dispatcher, url: str, clock: Clock, mark_busy: MarkBusy, order: Order
) -> RedisStorage:
    """Move the dispatcher's conversations to Redis. Return the storage that it has then.

    It connects when the first update comes. aiogram closes it at shutdown; it opens again if it is used.
    """
    keys = DefaultKeyBuilder(
        prefix=CONVERSATION_PREFIX, with_bot_id=True, with_business_connection_id=True, with_destiny=True
    )
    storage = WholeRedisStorage(conversation_client(url), keys)
    fsm = dispatcher.fsm
    fsm.storage = storage
    if type(fsm.events_isolation) is DisabledEventIsolation:
        fsm.events_isolation = RedisLockIsolation(
            storage, clock, mark_busy, is_ordered=inbox_orders(dispatcher, order)
        )
    log.info("conversations are kept in Redis")
    return storage


class WholeRedisStorage(RedisStorage):
    """Keeps the same types as the file does; what aiogram's own storage wrote is read, and vice versa.

    Data that cannot be stored raise BadInputError: other processes would not see what one has in memory. A
    conversation of which state or data cannot be decoded has neither. Its bytes are kept beside, with
    `:unreadable`.
    """

    def __init__(self, redis: ConversationClient, key_builder: KeyBuilder) -> None:
        super().__init__(
            redis, key_builder, json_loads=data_from_json, json_dumps=partial(data_to_json, ascii_only=True)
        )

    async def get_state(self, key: StorageKey) -> str | None:
        state, data = await self.redis.mget(self._names(key))
        if state is None:
            return None
        try:
            self._decode(data)
            return state.decode() if isinstance(state, bytes) else str(state)
        except ValueError as error:
            await self._set_aside(key, error)
            return None

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        data = await self.redis.get(self.key_builder.build(key, "data"))
        try:
            return self._decode(data)
        except ValueError as error:
            await self._set_aside(key, error)
            return {}

    @staticmethod
    def _decode(data: bytes | str | None) -> dict[str, Any]:
        """Raises ValueError."""
        return {} if data is None else data_from_json(data.decode() if isinstance(data, bytes) else data)

    def _names(self, key: StorageKey) -> list[str]:
        return [self.key_builder.build(key, "state"), self.key_builder.build(key, "data")]

    async def _set_aside(self, key: StorageKey, error: ValueError) -> None:
        text = "the conversation of user %s in chat %s cannot be read and is set aside: %s"
        log.error(text, key.user_id, key.chat_id, error)
        await keep_unreadable(self.redis, *self._names(key))


class RedisLockIsolation(RedisEventIsolation):
    """Updates of one conversation are handled one at a time, in all processes; those of one process in order.

    It is for updates that do not come through the inbox, as from aiogram's own webhook server. aiogram's
    isolation frees a conversation after a minute, and fails a handler that took longer, as replies that wait
    for their turn may. This one holds it as long as the handler runs. `mark_busy` is entered before it waits.
    """

    def __init__(
        self, storage: RedisStorage, clock: Clock, mark_busy: MarkBusy, *, is_ordered: IsOrdered
    ) -> None:
        super().__init__(storage.redis, storage.key_builder)
        self._mark_busy = mark_busy
        self._is_ordered = is_ordered
        self.locks = RedisConversationLocks(storage.redis, clock)

    @asynccontextmanager
    async def lock(self, key: StorageKey) -> AsyncGenerator[None, None]:
        if self._is_ordered():  # by the inbox, in all processes
            yield
            return
        with self._mark_busy():
            async with self.locks.hold(self.key_builder.build(key, "lock")):
                yield
