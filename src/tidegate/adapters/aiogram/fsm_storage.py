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
from aiogram.fsm.state import State
from aiogram.fsm.storage.base import (
    DEFAULT_DESTINY,
    BaseEventIsolation,
    BaseStorage,
    StateType,
    StorageKey,
)
from aiogram.fsm.storage.memory import DisabledEventIsolation, MemoryStorage, MemoryStorageRecord
from aiogram.fsm.strategy import FSMStrategy

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.inbound.conversations import (
    CONVERSATIONS_PER_PAGE,
    Conversation,
    ConversationKey,
    Conversations,
    UnreadableDataError,
    pack_data,
    unpack_data,
)
from tidegate.inbound.updates import Order
from tidegate.outbox.effect_keys import in_handler
from tidegate.stores.sqlite.conversations import ConversationsFile

log = logging.getLogger("tidegate")

OpenConversations = Callable[[], Awaitable[Conversations]]
MarkBusy = Callable[[], AbstractContextManager[None]]
IsOrdered = Callable[[], bool]

MAX_WARNINGS: Final = 100  # of conversations that stay in memory, in the life of a process
_OF_A_USER = frozenset({FSMStrategy.USER_IN_CHAT, FSMStrategy.USER_IN_TOPIC})
_OF_A_CHAT = frozenset({FSMStrategy.CHAT, FSMStrategy.CHAT_TOPIC})


class SqliteStorage(BaseStorage):
    """An FSM storage whose state and data are on disk when a call returns. Each call is one transaction.

    Nothing is kept in memory, and a conversation with neither state nor data has no row.
    """

    def __init__(self, opened: OpenConversations, file: ConversationsFile | None = None) -> None:
        """`opened` returns the conversations of a store that is open; `file` is closed with the storage."""
        self.opened = opened
        self._file = file

    @classmethod
    def at(cls, path: str | Path, clock: Clock | None = None) -> Self:
        """In a file of its own. It is opened when it is first used, and again if it is used after `close`."""
        file = ConversationsFile(Path(path), clock or Clock())
        return cls(file.open, file)

    async def close(self) -> None:
        """Close the file if it is the storage's own: the gate's is closed with the gate."""
        if self._file is not None:
            await self._file.close()

    async def set_state(self, key: StorageKey, state: StateType = None) -> None:
        await (await self.opened()).set_state(_key(key), _state_name(state))

    async def get_state(self, key: StorageKey) -> str | None:
        return await (await self.opened()).get_state(_key(key))

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        """Raises BadInputError for data that cannot be stored, and names the field."""
        _check_data(data, dict)  # aiogram's rule, which lets `update_data` take more
        body = pack_data(data)  # before anything is awaited: the caller may change them
        await (await self.opened()).set_data(_key(key), body)

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        conversations = await self.opened()
        try:
            return unpack_data(await conversations.get_data(_key(key)))
        except UnreadableDataError as error:
            await conversations.set_aside(_key(key), error)
            return {}

    async def update_data(self, key: StorageKey, data: Mapping[str, Any]) -> dict[str, Any]:
        """Merge in one step: concurrent updates do not overwrite each other. Raises as `set_data` does."""
        _check_data(data, Mapping)
        body = pack_data(data)
        if body is None:
            return await self.get_data(key)
        return await (await self.opened()).merge_data(_key(key), body)

    async def each(
        self,
        destiny: str | None = None,
        state: StateType = None,
        *,
        after: int = 0,
        limit: int = CONVERSATIONS_PER_PAGE,
    ) -> list[Conversation]:
        """Return a page of conversations in order of their numbers. Pass the last number as `after` for more.

        `destiny` and `state` select; None matches all. A conversation that exists from the first page to the
        last is returned once; one that begins, ends or changes meanwhile may be missed.
        """
        found = await (await self.opened()).page(destiny, _state_name(state), after=after, limit=limit)
        return [one._replace(key=StorageKey(*one.key)) for one in found]

    async def expire(self, before: float, destiny: str = DEFAULT_DESTINY) -> int:
        """Delete those that were last changed before that time, in epoch seconds; return how many."""
        return await (await self.opened()).expire(before, destiny)


def _key(key: StorageKey) -> ConversationKey:
    return ConversationKey(
        key.bot_id, key.chat_id, key.user_id, key.thread_id, key.business_connection_id, key.destiny
    )


def _state_name(state: StateType) -> str | None:
    return state.state if isinstance(state, State) else state


def _check_data(data: object, kind: type) -> None:
    if not isinstance(data, kind):
        raise DataNotDictLikeError(f"Data must be a dict or dict-like object, got {type(data).__name__}")


class MemoryFallbackStorage(SqliteStorage):
    """For bots that were written for aiogram's MemoryStorage: data that cannot be stored stay in memory.

    A conversation is kept whole: its state and its data are both in the file, or both in memory while its
    data do not fit. A restart ends those in memory, so that no user is in a state without its data.
    """

    def __init__(self, opened: OpenConversations, file: ConversationsFile | None = None) -> None:
        super().__init__(opened, file)
        self._in_memory: dict[StorageKey, MemoryStorageRecord] = {}
        # A conversation moves in several steps: no other write comes between them.
        self._locks: WeakValueDictionary[StorageKey, asyncio.Lock] = WeakValueDictionary()
        self._warnings: set[str] = set()

    def _lock(self, key: StorageKey) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def set_state(self, key: StorageKey, state: StateType = None) -> None:
        async with self._lock(key):
            record = self._in_memory.get(key)
            if record is None:
                await super().set_state(key, state)
            else:
                record.state = _state_name(state)

    async def get_state(self, key: StorageKey) -> str | None:
        record = self._in_memory.get(key)
        return await super().get_state(key) if record is None else record.state

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        async with self._lock(key):
            await self._set_data(key, data)

    async def _set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        record = self._in_memory.get(key)
        try:
            if record is None:
                await super().set_data(key, data)
                return
            _check_data(data, dict)
            body = pack_data(data)
        except BadInputError as error:
            self._warn(str(error))
            state = await self.get_state(key)
            self._in_memory[key] = MemoryStorageRecord(data=dict(data), state=state)
            await (await self.opened()).put(_key(key), None, None)
            return
        await (await self.opened()).put(_key(key), record.state, body)
        del self._in_memory[key]

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        record = self._in_memory.get(key)
        return await super().get_data(key) if record is None else record.data.copy()

    async def update_data(self, key: StorageKey, data: Mapping[str, Any]) -> dict[str, Any]:
        async with self._lock(key):
            if key not in self._in_memory and _can_be_stored(data):
                return await super().update_data(key, data)
            merged = {**await self.get_data(key), **data}
            await self._set_data(key, merged)
            return merged

    def _warn(self, reason: str) -> None:
        """Once for each reason, which names the field."""
        if reason not in self._warnings and len(self._warnings) < MAX_WARNINGS:
            self._warnings.add(reason)
            text = "%s. Until then such conversations stay in memory, state and data: a restart loses them"
            log.warning(text, reason)


def _can_be_stored(data: Mapping[str, Any]) -> bool:
    try:
        pack_data(data)
    except BadInputError:
        return False
    return True


def has_default_storage(dispatcher: Dispatcher) -> bool:
    """Return whether the dispatcher's storage is the one that aiogram takes by itself, and is used.

    Raises BadInputError if there are conversations in it already: they would be lost.
    """
    fsm = dispatcher.fsm
    # A MemoryStorage that the user gave cannot be told from aiogram's own; one of the user's class can.
    if type(fsm.storage) is not MemoryStorage or fsm not in dispatcher.update.outer_middleware:
        return False
    if any(record.state or record.data for record in fsm.storage.storage.values()):
        raise BadInputError(
            "the dispatcher has conversations in memory, which would be lost: attach the gate before updates"
            ' are handled, or leave out conversations="store"'
        )
    return True


def use_file_storage(
    dispatcher: Dispatcher, opened: OpenConversations, mark_busy: MarkBusy, order: Order
) -> MemoryFallbackStorage:
    """Move the dispatcher's conversations to the file. Return the storage that it has then."""
    fsm = dispatcher.fsm
    fsm.storage = fallback = MemoryFallbackStorage(opened)
    if type(fsm.events_isolation) is DisabledEventIsolation:
        fsm.events_isolation = LocalEventIsolation(mark_busy, is_ordered=inbox_orders(dispatcher, order))
    log.info("conversations are kept in the gate's file")
    return fallback


def inbox_orders(dispatcher: Dispatcher, order: Order) -> IsOrdered:
    """Return a function that tells whether the inbox handles updates of one conversation one at a time.

    It does for those that it hands out, if its order is at least as strict as the dispatcher's conversations
    are wide: those of a user in a chat, or of a whole chat.
    """
    wide = {"user": _OF_A_USER, "chat": _OF_A_USER | _OF_A_CHAT, "none": frozenset[FSMStrategy]()}
    covered = dispatcher.fsm.strategy in wide[order]
    return lambda: covered and in_handler()


class LocalEventIsolation(BaseEventIsolation):
    """Updates of one conversation are handled one at a time, in order; one process handles those of a file.

    It is for updates that do not come through the inbox, as from aiogram's own webhook server. Unlike
    aiogram's isolation it forgets a conversation that nobody waits for. `mark_busy` is entered before it
    waits.
    """

    def __init__(self, mark_busy: MarkBusy, *, is_ordered: IsOrdered) -> None:
        self._mark_busy = mark_busy
        self._is_ordered = is_ordered
        self.locks: WeakValueDictionary[StorageKey, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def lock(self, key: StorageKey) -> AsyncGenerator[None, None]:
        if self._is_ordered():
            yield
            return
        lock = self.locks.setdefault(key, asyncio.Lock())
        with self._mark_busy():
            async with lock:
                yield

    async def close(self) -> None:
        """Handlers may still run; their locks end with them."""
