"""Where conversations are, if nobody chose a place for them: in the gate's file, if that is its store."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from weakref import WeakValueDictionary

from aiogram import Dispatcher
from aiogram.fsm.storage.base import BaseEventIsolation, StorageKey
from aiogram.fsm.storage.memory import DisabledEventIsolation, MemoryStorage

from tidegate.adapters.aiogram.sqlite_storage import SqliteStorage
from tidegate.adapters.aiogram.what_fits import WhatFits
from tidegate.effects import is_in_hand
from tidegate.errors import BadInputError

log = logging.getLogger("tidegate")

Busy = Callable[[], AbstractContextManager[None]]


def nobody_chose(dispatcher: Dispatcher) -> bool:
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


def keep_in_file(dispatcher: Dispatcher, storage: SqliteStorage, busy: Busy) -> WhatFits:
    fsm = dispatcher.fsm
    fsm.storage = kept = WhatFits(storage)
    if type(fsm.events_isolation) is DisabledEventIsolation:
        fsm.events_isolation = InOrder(busy)
    log.info("conversations are kept in the gate's file")
    return kept


class InOrder(BaseEventIsolation):
    """Updates of one conversation are handled one at a time, in order; one process handles those of a file.

    For those that come past the inbox, as from a webhook server of aiogram's. Unlike aiogram's own it
    forgets whoever is not waiting. `busy` is entered before it waits.
    """

    def __init__(self, busy: Busy) -> None:
        self._busy = busy
        self.lines: WeakValueDictionary[StorageKey, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def lock(self, key: StorageKey) -> AsyncGenerator[None, None]:
        if is_in_hand():  # through the inbox: no other update of its chat is handled meanwhile
            yield
            return
        line = self.lines.setdefault(key, asyncio.Lock())
        with self._busy():
            async with line:
                yield

    async def close(self) -> None:
        """Handlers may still run: what they hold ends with them."""
