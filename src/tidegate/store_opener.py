"""A store of the SQL database that is made and opened when it is first needed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar


class OpenedStore(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


StoreT = TypeVar("StoreT", bound=OpenedStore)


class StoreOpener(Generic[StoreT]):
    """Holds one store. It is opened once, however many tasks ask for it at the same time."""

    def __init__(self, make: Callable[[], StoreT], are_there_tables: Callable[[], Awaitable[bool]]) -> None:
        self.make = make
        self._are_there_tables = are_there_tables
        self._store: StoreT | None = None
        self._opening = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._store is not None

    async def may_hold_rows(self) -> bool:
        """Return whether its database was made. Creates none."""
        return self.is_open or await self._are_there_tables()

    async def opened(self) -> StoreT:
        """Return the open store. Raises StoreAwayError."""
        async with self._opening:
            if self._store is None:
                store = await asyncio.to_thread(self.make)  # it imports a library
                await store.open()
                self._store = store
        return self._store

    async def close(self) -> None:
        """Disconnect. It is opened again when it is needed."""
        store, self._store = self._store, None
        if store is not None:
            await store.close()
