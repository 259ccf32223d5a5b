"""Sessions of a flow in any FSM storage of aiogram."""

import logging
from typing import Any

import msgspec
from aiogram.fsm.storage.base import BaseStorage, StorageKey

from tidegate.errors import BadInputError
from tidegate.flows.port import FlowSessionStore, SessionKey
from tidegate.flows.session import Session

log = logging.getLogger("tidegate.flows")


class StorageFlowSessions(FlowSessionStore):
    """Under a destiny of their own; a session is written as one set of data."""

    def __init__(self, storage: BaseStorage, flow: str) -> None:
        self._storage = storage
        self._destiny = f"flow:{flow}"
        self._flow = flow
        _check(storage, self._key(SessionKey(1, 1, 1)))

    def _key(self, place: SessionKey) -> StorageKey:
        return StorageKey(place.bot, place.chat, place.user, thread_id=place.thread, destiny=self._destiny)

    async def get(self, place: SessionKey) -> Session | None:
        data = await self._storage.get_data(self._key(place))
        if not data:
            return None
        try:
            return msgspec.convert(data, Session)
        except msgspec.ValidationError as error:
            log.error("flow %s forgets session %s, which cannot be read: %s", self._flow, place.key, error)  # noqa: TRY400
            return None

    async def put(self, place: SessionKey, session: Session) -> None:
        data: dict[str, Any] = msgspec.to_builtins(session)
        await self._storage.set_data(self._key(place), data)

    async def drop(self, place: SessionKey) -> None:
        await self._storage.set_data(self._key(place), {})


def _check(storage: BaseStorage, key: StorageKey) -> None:
    """Some keep conversations under names that cannot tell a flow from the rest."""
    builder = getattr(storage, "key_builder", None) or getattr(storage, "_key_builder", None)
    if builder is None:
        return
    try:
        builder.build(key, "data")
    except ValueError as error:
        raise BadInputError(
            "the storage cannot tell a flow's sessions from other conversations: give it"
            " key_builder=DefaultKeyBuilder(with_bot_id=True, with_destiny=True)"
        ) from error
