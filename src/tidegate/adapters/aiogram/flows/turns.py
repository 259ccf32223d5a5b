"""One event of a session at a time, in all processes that share a Redis. Imported only if that is used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Final

from aiogram.fsm.storage.redis import RedisStorage

from tidegate.adapters.aiogram.storage import OneAtATime
from tidegate.clock import Clock
from tidegate.flows.executor.ports import Turns

PREFIX: Final = "tidegate-fsm:flow"


class SharedTurns(OneAtATime, Turns):
    """As updates of a conversation; here news, timers and work come past the inbox too."""

    def __init__(self, storage: RedisStorage, clock: Clock, flow: str) -> None:
        super().__init__(storage, clock, nullcontext)
        self._flow = flow

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        name = f"{PREFIX}:{self._flow}:{key}:turn"
        line = self.lines.setdefault(name, asyncio.Lock())
        async with line, self._held(name):
            yield
