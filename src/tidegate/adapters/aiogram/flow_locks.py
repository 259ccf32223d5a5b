"""Locks of sessions in Redis, shared by all processes. Imported only if Redis is used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Final

from aiogram.fsm.storage.redis import RedisStorage

from tidegate.adapters.aiogram.fsm_redis import RedisLockIsolation
from tidegate.clock import Clock
from tidegate.flows.port import SessionLocks

LOCK_PREFIX: Final = "tidegate-fsm:flow"


class RedisSessionLocks(RedisLockIsolation, SessionLocks):
    """As updates of a conversation; here news, timers and work come past the inbox too."""

    def __init__(self, storage: RedisStorage, clock: Clock, flow: str) -> None:
        super().__init__(storage, clock, nullcontext)
        self._flow = flow

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        name = f"{LOCK_PREFIX}:{self._flow}:{key}:turn"
        line = self.lines.setdefault(name, asyncio.Lock())
        async with line, self._held(name):
            yield
