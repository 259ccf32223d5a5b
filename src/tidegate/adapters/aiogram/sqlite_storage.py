"""aiogram's FSM storage in a file: the gate's own, or one by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from aiogram.exceptions import DataNotDictLikeError
from aiogram.fsm.storage.base import DEFAULT_DESTINY, BaseStorage, StateType, StorageKey

from tidegate.adapters.aiogram import conversations as steps
from tidegate.adapters.aiogram.conversation_data import pack, unpack
from tidegate.adapters.aiogram.conversations import Conversation, name_of, place_of
from tidegate.clock import Clock
from tidegate.outbox.sqlite.file import StoreFile

PAGE: Final = 1_000  # conversations
EXPIRE: Final = 500  # conversations in a step, so that others wait for no more

Opened = Callable[[], Awaitable[StoreFile]]


class SqliteStorage(BaseStorage):
    """What was set is on disk when the call returns; each call is one step, whole or not at all.

    Nothing is kept in memory. A conversation with neither state nor data takes no room. `opened` gives the
    open file, which belongs to somebody else.
    """

    def __init__(self, opened: Opened, clock: Clock) -> None:
        self._opened = opened
        self._clock = clock
        self._own: _OwnFile | None = None

    @classmethod
    def at(cls, path: str | Path, clock: Clock | None = None) -> Self:
        """In a file of its own. It is opened when it is first used, and again if it is used after `close`."""
        own = _OwnFile(Path(path))
        storage = cls(own.opened, clock or Clock())
        storage._own = own
        return storage

    async def close(self) -> None:
        """Only a file of its own: the gate's is closed with the gate."""
        if self._own is not None:
            await self._own.close()

    async def set_state(self, key: StorageKey, state: StateType = None) -> None:
        place, name, now = place_of(key), name_of(state), self._clock.now()
        file = await self._opened()
        await file.write(lambda tx: steps.write_state(tx, place, name, now))

    async def get_state(self, key: StorageKey) -> str | None:
        place = place_of(key)
        file = await self._opened()
        state: str | None = await file.read(lambda tx: steps.look_up(tx, place, "state"))
        return state

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        """Raises BadInputError for what JSON cannot hold."""
        if not isinstance(data, dict):  # aiogram's rule, which lets `update_data` take more
            raise DataNotDictLikeError(f"Data must be a dict or dict-like object, got {type(data).__name__}")
        place, body, now = place_of(key), pack(data), self._clock.now()
        file = await self._opened()
        await file.write(lambda tx: steps.write_data(tx, place, body, now))

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        place = place_of(key)
        file = await self._opened()
        return unpack(await file.read(lambda tx: steps.look_up(tx, place, "data")))

    async def update_data(self, key: StorageKey, data: Mapping[str, Any]) -> dict[str, Any]:
        """In one step: two at once lose nothing of each other. Raises BadInputError as `set_data`."""
        place, more, now = place_of(key), pack(data), self._clock.now()
        if more is None:
            return await self.get_data(key)
        file = await self._opened()
        merged: dict[str, Any] = await file.write(lambda tx: steps.add_data(tx, place, more, now))
        return merged

    async def each(
        self,
        destiny: str | None = None,
        state: StateType = None,
        *,
        after: int = 0,
        limit: int = PAGE,
    ) -> list[Conversation]:
        """A page of them, in order of their numbers; None: whatever it is. The next is `after` the last one.

        Who is there from the first page to the last is seen once; who comes, goes or changes meanwhile may
        be missed.
        """
        name = name_of(state)
        file = await self._opened()
        rows = await file.read(lambda tx: steps.page(tx, destiny, name, after, max(limit, 0)))
        return [steps.conversation_in(row) for row in rows]

    async def expire(self, before: float, destiny: str = DEFAULT_DESTINY) -> int:
        """Forget those that were last changed before that time, in epoch seconds; returns how many."""
        expired = 0
        while True:
            file = await self._opened()
            forgotten: int = await file.write(lambda tx: steps.forget_old(tx, before, destiny, EXPIRE))
            expired += forgotten
            if forgotten < EXPIRE:
                return expired


class _OwnFile:
    """Open while it is used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: StoreFile | None = None
        self._turn = asyncio.Lock()

    async def opened(self) -> StoreFile:
        if self._file is not None:
            return self._file
        async with self._turn:
            if self._file is None:
                file = StoreFile(self._path)
                await file.open()
                self._file = file
            return self._file

    async def close(self) -> None:
        async with self._turn:
            file, self._file = self._file, None
            if file is not None:
                await file.close()
