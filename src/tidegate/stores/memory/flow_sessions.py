"""Sessions of flows in memory, for tests and bots that may forget."""

import heapq
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from tidegate.flows.port import (
    FlowSessionStore,
    LocalLocks,
    SessionConflictError,
    SessionKey,
    SessionPage,
    StoredSession,
    count_states,
    readable_session,
)
from tidegate.flows.session import Session
from tidegate.leader_lease import UncontestedLeases


class MemoryFlowSessions(FlowSessionStore):
    """The sessions are kept as bytes, which take less room than objects and cannot be changed by a caller."""

    is_durable = False

    def __init__(self, flow: str) -> None:
        self.flow = flow
        self.leases = UncontestedLeases()
        self._rows: dict[SessionKey, tuple[int, bytes]] = {}  # version and body
        self._set_aside_count = 0
        self._unreadable: dict[SessionKey, bytes] = {}
        self._timers: dict[SessionKey, float] = {}
        self._unfinished: dict[SessionKey, None] = {}
        self._seen: dict[tuple[SessionKey, str], float] = {}
        self._fingerprint: str | None = None
        self._locks = LocalLocks()

    def unreadable(self) -> int:
        return self._set_aside_count

    async def load(self, key: SessionKey, event: str | None = None) -> StoredSession:
        is_seen = event is not None and (key, event) in self._seen
        version, body = self._rows.get(key, (0, b""))
        read = readable_session(self.flow, key.text, body) if version else None
        if version and read is None:
            self._set_aside(key)
        return StoredSession(is_seen=is_seen) if read is None else StoredSession(read[1], version, is_seen)

    def _set_aside(self, key: SessionKey) -> None:
        self._set_aside_count += 1
        self._unreadable[key] = self._rows[key][1]
        for index in (self._rows, self._timers, self._unfinished):
            index.pop(key, None)

    async def commit(
        self,
        key: SessionKey,
        session: Session | None,
        *,
        expected: int,
        seen: str | None = None,
        at: float = 0.0,
    ) -> int:
        if self._rows.get(key, (0, b""))[0] != expected:
            raise SessionConflictError(self.flow, key)
        for index in (self._rows, self._timers, self._unfinished):
            index.pop(key, None)
        if seen is not None:
            self._seen[key, seen] = at
        if session is None:
            return 0
        self._rows[key] = expected + 1, session.to_json()
        if session.timer is not None:
            self._timers[key] = session.timer
        if session.pending:
            self._unfinished[key] = None
        return expected + 1

    async def due(self, now: float, limit: int) -> Sequence[tuple[SessionKey, Session]]:
        while True:
            due = (key for key, at in self._timers.items() if at <= now)
            first = heapq.nsmallest(limit, due, key=self._timers.__getitem__)
            read = {key: readable_session(self.flow, key.text, self._rows[key][1]) for key in first}
            unreadable = [key for key, one in read.items() if one is None]
            if not unreadable:
                return [one for one in read.values() if one is not None]
            for key in unreadable:
                self._set_aside(key)

    async def timers(self, now: float) -> tuple[int, float | None]:
        return len(self._timers), min((at for at in self._timers.values() if at > now), default=None)

    async def unfinished(self, cursor: str = "") -> SessionPage:  # noqa: ARG002  (one page has them all)
        return SessionPage(list(self._unfinished))

    async def scan(self, cursor: str = "") -> SessionPage:  # noqa: ARG002  (one page has them all)
        return SessionPage(list(self._rows))

    async def count_states(self) -> dict[tuple[int, str], int]:
        counts: Counter[tuple[int, str]] = Counter()
        for key, (_, body) in list(self._rows.items()):
            count_states(counts, key.text, body)
        return dict(counts)

    async def forget_seen(self, before: float) -> int:
        old = [event for event, at in self._seen.items() if at < before]
        for event in old:
            del self._seen[event]
        return len(old)

    async def fingerprint(self) -> str | None:
        return self._fingerprint

    async def save_fingerprint(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    def hold(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._locks.hold(name)
