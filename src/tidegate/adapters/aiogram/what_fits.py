"""Conversations of a bot that was written for memory: in the file, as far as JSON can hold their data."""

import logging
from collections.abc import Mapping
from typing import Any

from aiogram.fsm.storage.base import BaseStorage, StateType, StorageKey

from tidegate.adapters.aiogram.conversation_data import pack
from tidegate.adapters.aiogram.sqlite_storage import SqliteStorage
from tidegate.errors import BadInputError

log = logging.getLogger("tidegate")


class WhatFits(BaseStorage):
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
        pack(data)
    except BadInputError:
        return False
    return True
