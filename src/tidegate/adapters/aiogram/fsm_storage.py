"""aiogram's conversations (FSM state and data) in a SQLite file: the gate's, or one of its own."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self
from weakref import WeakValueDictionary

from aiogram import Dispatcher
from aiogram.exceptions import DataNotDictLikeError
from aiogram.fsm.storage.base import DEFAULT_DESTINY, BaseEventIsolation, BaseStorage, StateType, StorageKey
from aiogram.fsm.storage.memory import DisabledEventIsolation, MemoryStorage

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.inbound.conversations import pack_data, unpack_data
from tidegate.outbox.effect_keys import in_handler
from tidegate.stores.sqlite import conversations as steps
from tidegate.stores.sqlite.conversations import Conversation, row_key, state_name
from tidegate.stores.sqlite.file import StoreFile

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
        place, name, now = row_key(key), state_name(state), self._clock.now()
        file = await self._opened()
        await file.write(lambda tx: steps.write_state(tx, place, name, now))

    async def get_state(self, key: StorageKey) -> str | None:
        place = row_key(key)
        file = await self._opened()
        state: str | None = await file.read(lambda tx: steps.look_up(tx, place, "state"))
        return state

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        """Raises BadInputError for what JSON cannot hold."""
        if not isinstance(data, dict):  # aiogram's rule, which lets `update_data` take more
            raise DataNotDictLikeError(f"Data must be a dict or dict-like object, got {type(data).__name__}")
        place, body, now = row_key(key), pack_data(data), self._clock.now()
        file = await self._opened()
        await file.write(lambda tx: steps.write_data(tx, place, body, now))

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        place = row_key(key)
        file = await self._opened()
        return unpack_data(await file.read(lambda tx: steps.look_up(tx, place, "data")))

    async def update_data(self, key: StorageKey, data: Mapping[str, Any]) -> dict[str, Any]:
        """In one step: two at once lose nothing of each other. Raises BadInputError as `set_data`."""
        place, more, now = row_key(key), pack_data(data), self._clock.now()
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
        name = state_name(state)
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


log = logging.getLogger("tidegate")


class MemoryFallbackStorage(BaseStorage):
    """Nothing changes for the bot: data that do not fit stay in memory, where aiogram would have had them,
    until they fit or the conversation ends. It is said once.
    """

    def __init__(self, storage: SqliteStorage) -> None:
        self.storage = storage
        self._misfits: dict[StorageKey, dict[str, Any]] = {}
        self._said = False

    async def set_state(self, key: StorageKey, state: StateType = None) -> None:
        await self.storage.set_state(key, state)

    async def get_state(self, key: StorageKey) -> str | None:
        return await self.storage.get_state(key)

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        try:
            await self.storage.set_data(key, data)
            self._misfits.pop(key, None)
        except BadInputError as error:
            self._say(error)
            self._misfits[key] = dict(data)
            await self.storage.set_data(key, {})  # after a restart, none are better than old ones

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        misfit = self._misfits.get(key)
        return await self.storage.get_data(key) if misfit is None else misfit.copy()

    async def update_data(self, key: StorageKey, data: Mapping[str, Any]) -> dict[str, Any]:
        if key not in self._misfits and _fits(data):
            return await self.storage.update_data(key, data)
        merged = {**await self.get_data(key), **data}
        await self.set_data(key, merged)
        return merged

    async def close(self) -> None:
        await self.storage.close()

    def _say(self, error: BadInputError) -> None:
        if not self._said:
            self._said = True
            log.warning("%s. Until then such data stay in memory, and are lost at a restart", error)


def _fits(data: Mapping[str, Any]) -> bool:
    try:
        pack_data(data)
    except BadInputError:
        return False
    return True


MarkBusy = Callable[[], AbstractContextManager[None]]


def has_default_storage(dispatcher: Dispatcher) -> bool:
    """Whether its storage is the one that aiogram takes by itself, and is used.

    Raises BadInputError if there are conversations in it already: they would be lost.
    """
    fsm = dispatcher.fsm
    # A MemoryStorage that somebody gave cannot be told from aiogram's own; one of a class of theirs can.
    if type(fsm.storage) is not MemoryStorage or fsm not in dispatcher.update.outer_middleware:
        return False
    if any(kept.state or kept.data for kept in fsm.storage.storage.values()):
        raise BadInputError(
            "the dispatcher has conversations in memory, which would be lost: attach the gate before updates"
            " are handled, or leave conversations where they are with gate.attach(…, fsm=False)"
        )
    return True


def use_file_storage(dispatcher: Dispatcher, storage: SqliteStorage, busy: MarkBusy) -> MemoryFallbackStorage:
    fsm = dispatcher.fsm
    fsm.storage = kept = MemoryFallbackStorage(storage)
    if type(fsm.events_isolation) is DisabledEventIsolation:
        fsm.events_isolation = LocalEventIsolation(busy)
    log.info("conversations are kept in the gate's file")
    return kept


class LocalEventIsolation(BaseEventIsolation):
    """Updates of one conversation are handled one at a time, in order; one process handles those of a file.

    For those that come past the inbox, as from a webhook server of aiogram's. Unlike aiogram's own it
    forgets whoever is not waiting. `busy` is entered before it waits.
    """

    def __init__(self, busy: MarkBusy) -> None:
        self._busy = busy
        self.lines: WeakValueDictionary[StorageKey, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def lock(self, key: StorageKey) -> AsyncGenerator[None, None]:
        if in_handler():  # through the inbox: no other update of its chat is handled meanwhile
            yield
            return
        line = self.lines.setdefault(key, asyncio.Lock())
        with self._busy():
            async with line:
                yield

    async def close(self) -> None:
        """Handlers may still run: what they hold ends with them."""
