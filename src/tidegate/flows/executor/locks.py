"""Locks of sessions in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from tidegate.flows.port import SessionLocks


class LocalSessionLocks(SessionLocks):
    """In the order in which they came."""

    def __init__(self) -> None:
        self.lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # gone when nobody waits

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        line = self.lines.setdefault(key, asyncio.Lock())
        async with line:
            yield
