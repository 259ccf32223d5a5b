"""Sessions of a flow in an FSM storage of aiogram: those of earlier versions, and beside a gate in memory."""

import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec
from aiogram.fsm.storage.base import BaseStorage, StorageKey

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.flows.port import FlowSessionStore, SessionKey, SessionPage, StoredSession
from tidegate.flows.session import Session

if TYPE_CHECKING:
    from tidegate.stores.redis.conversations import RedisConversationLocks

log = logging.getLogger("tidegate.flows")


class StorageFlowSessions(FlowSessionStore):
    """The gate's store of sessions, with an FSM storage beside it.

    A durable store has the last word: the storage is read for sessions that the store does not have, which
    an earlier version kept there, and is never written but to remove them. Beside a store in memory, the
    storage holds the sessions, and the store only their timers, pending marks and seen events.
    """

    def __init__(self, store: FlowSessionStore, storage: BaseStorage, clock: Clock) -> None:
        self.flow = store.flow
        self.is_durable = store.is_durable
        self.leases = store.leases
        self._store = store
        self._storage = storage
        _check(storage, self._key(SessionKey(1, 1, 1)))
        self.locks = _shared_locks(storage, clock) if not store.is_durable else None

    def _key(self, key: SessionKey) -> StorageKey:
        return StorageKey(key.bot, key.chat, key.user, thread_id=key.thread, destiny=f"flow:{self.flow}")

    def unreadable(self) -> int:
        return self._store.unreadable()

    async def load(self, key: SessionKey, event: str | None = None) -> StoredSession:
        stored = await self._store.load(key, event)
        if self.is_durable and stored.version:
            return stored
        return msgspec.structs.replace(stored, session=await self._read(key))

    async def _read(self, key: SessionKey) -> Session | None:
        data = await self._storage.get_data(self._key(key))
        if not data:
            return None
        try:
            return msgspec.convert(data, Session)
        except msgspec.ValidationError as error:
            log.error("flow %s forgets session %s, which cannot be read: %s", self.flow, key.text, error)  # noqa: TRY400
            return None

    async def commit(
        self,
        key: SessionKey,
        session: Session | None,
        *,
        expected: int,
        seen: str | None = None,
        at: float = 0.0,
    ) -> int:
        # First: a session that was read here must not come back when the store has forgotten it.
        if session is None and await self._storage.get_data(self._key(key)):
            await self._storage.set_data(self._key(key), {})
        version = await self._store.commit(key, session, expected=expected, seen=seen, at=at)
        if session is not None and not self.is_durable:
            data: dict[str, Any] = msgspec.to_builtins(session)
            await self._storage.set_data(self._key(key), data)
        return version

    async def due(self, now: float, limit: int) -> Sequence[tuple[SessionKey, Session]]:
        return await self._store.due(now, limit)

    async def timers(self, now: float) -> tuple[int, float | None]:
        return await self._store.timers(now)

    async def unfinished(self, cursor: str = "") -> SessionPage:
        return await self._store.unfinished(cursor)

    async def scan(self, cursor: str = "") -> SessionPage:
        return await self._store.scan(cursor)

    async def count_states(self) -> dict[tuple[int, str], int]:
        """Sessions that are in the storage alone are not counted: it cannot list them."""
        return await self._store.count_states()

    async def forget_seen(self, before: float) -> int:
        return await self._store.forget_seen(before)

    async def fingerprint(self) -> str | None:
        return await self._store.fingerprint()

    async def save_fingerprint(self, fingerprint: str) -> None:
        await self._store.save_fingerprint(fingerprint)

    def hold(self, name: str) -> AbstractAsyncContextManager[None]:
        if self.locks is None:
            return self._store.hold(name)
        return self.locks.hold(f"tidegate-fsm:flow:{self.flow}:{name}:turn")


def _shared_locks(storage: BaseStorage, clock: Clock) -> "RedisConversationLocks | None":
    """Locks in the Redis of the storage, if it is in one: other processes may share its sessions."""
    if (redis := getattr(storage, "redis", None)) is None:
        return None
    from tidegate.stores.redis.conversations import RedisConversationLocks  # noqa: PLC0415  (an extra)

    return RedisConversationLocks(redis, clock)


def _check(storage: BaseStorage, key: StorageKey) -> None:
    """Refuse a storage whose keys cannot tell a flow from other conversations."""
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
