"""Locks of sessions in Redis, shared by all processes. Imported only if Redis is used."""

from contextlib import AbstractAsyncContextManager
from typing import Final

from aiogram.fsm.storage.redis import RedisStorage

from tidegate.clock import Clock
from tidegate.flows.port import SessionLocks
from tidegate.stores.redis.conversations import RedisConversationLocks

LOCK_PREFIX: Final = "tidegate-fsm:flow"


class RedisSessionLocks(SessionLocks):
    """As updates of a conversation; here news, timers and work come past the inbox too."""

    def __init__(self, storage: RedisStorage, clock: Clock, flow: str) -> None:
        self.locks = RedisConversationLocks(storage.redis, clock)
        self._flow = flow

    def hold(self, key: str) -> AbstractAsyncContextManager[None]:
        return self.locks.hold(f"{LOCK_PREFIX}:{self._flow}:{key}:turn")
