"""aiogram's conversations (FSM state and data) in a SQLite file: the gate's, or one of its own."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Self
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
from aiogram.fsm.storage.memory import DisabledEventIsolation, MemoryStorage
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
        """Raises BadInputError for data that JSON cannot hold."""
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
    """For bots that were written for aiogram's MemoryStorage: data that JSON cannot hold stay in memory.

    They stay there until they fit or the conversation ends. A warning is logged once.
    """

    def __init__(self, opened: OpenConversations, file: ConversationsFile | None = None) -> None:
        super().__init__(opened, file)
        self._in_memory: dict[StorageKey, dict[str, Any]] = {}
        self._warned = False

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        try:
            await super().set_data(key, data)
            self._in_memory.pop(key, None)
        except BadInputError as error:
            if not self._warned:
                self._warned = True
                log.warning("%s. Until then such data stay in memory, and are lost at a restart", error)
            self._in_memory[key] = dict(data)
            await super().set_data(key, {})  # after a restart, none are better than old ones

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        data = self._in_memory.get(key)
        return await super().get_data(key) if data is None else data.copy()

    async def update_data(self, key: StorageKey, data: Mapping[str, Any]) -> dict[str, Any]:
        if key not in self._in_memory and _fits_json(data):
            return await super().update_data(key, data)
        merged = {**await self.get_data(key), **data}
        await self.set_data(key, merged)
        return merged


def _fits_json(data: Mapping[str, Any]) -> bool:
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
