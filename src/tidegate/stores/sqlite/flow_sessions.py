"""Sessions of flows in the SQLite file: one row each, with its timer, and one transaction per event."""

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.flows.port import (
    FlowSessionStore,
    LocalLocks,
    SessionConflictError,
    SessionKey,
    SessionPage,
    StoredSession,
    count_states,
    readable_keys,
    readable_session,
)
from tidegate.flows.session import Session
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.leases import SqliteLeases

PAGE_SIZE: Final = 500  # sessions
COUNTED_PER_STEP: Final = 2_000  # sessions, in which nobody else is served: some ms
UNREADABLE_FLOW: Final = "unreadable:"  # before the name of a flow: its sessions that cannot be read


class SqliteFlowSessions(FlowSessionStore):
    """The sessions of one flow. `file` is opened and closed by its owner.

    One process handles the updates of a file, so its locks are local.
    """

    is_durable = True

    def __init__(self, file: StoreFile, clock: Clock, flow: str) -> None:
        self.flow = flow
        self._set_aside_count = 0
        self.leases = SqliteLeases(file, clock)
        self._file = file
        self._locks = LocalLocks()

    def unreadable(self) -> int:
        return self._set_aside_count

    async def load(self, key: SessionKey, event: str | None = None) -> StoredSession:
        row, is_seen = await self._file.read(lambda tx: _load(tx, self.flow, key.text, event))
        if row is None:
            return StoredSession(is_seen=is_seen)
        read = readable_session(self.flow, key.text, row[1])
        if read is None:
            await self._set_aside([(key.text, *row)])
            return StoredSession(is_seen=is_seen)
        return StoredSession(read[1], row[0], is_seen)

    async def _set_aside(self, rows: Sequence[tuple[str, int, bytes]]) -> None:
        """Keep sessions that cannot be read, as (key, version, body), under another name of the flow.

        In their places they would hide the timers of others, and ring for ever.
        """
        aside = (
            "UPDATE OR REPLACE flow_sessions SET flow = ?, timer_at = NULL, pending = 0"
            " WHERE flow = ? AND key = ? AND version = ? AND body = ?"
        )
        values = [(UNREADABLE_FLOW + self.flow, self.flow, *row) for row in rows]
        self._set_aside_count += await self._file.write(lambda tx: tx.executemany(aside, values).rowcount)

    async def commit(
        self,
        key: SessionKey,
        session: Session | None,
        *,
        expected: int,
        seen: str | None = None,
        at: float = 0.0,
    ) -> int:
        columns = None if session is None else (session.to_json(), session.timer, int(bool(session.pending)))

        def write(tx: Transaction) -> int | None:
            version = _commit(tx, (self.flow, key.text), columns, expected)
            if version is not None and seen is not None:
                note = "INSERT OR REPLACE INTO flow_events (flow, key, event, seen_at) VALUES (?, ?, ?, ?)"
                tx.execute(note, (self.flow, key.text, seen, at))
            return version

        version: int | None = await self._file.write(write)
        if version is None:
            raise SessionConflictError(self.flow, key)
        return version

    async def due(self, now: float, limit: int) -> Sequence[tuple[SessionKey, Session]]:
        query = (
            "SELECT key, version, body FROM flow_sessions WHERE flow = ? AND timer_at <= ?"
            " ORDER BY timer_at LIMIT ?"
        )
        while True:
            rows = await self._file.read(lambda tx: tx.execute(query, (self.flow, now, limit)).fetchall())
            read = [(row, readable_session(self.flow, row[0], row[2])) for row in rows]
            unreadable = [row for row, one in read if one is None]
            if not unreadable:
                return [one for _, one in read if one is not None]
            await self._set_aside(unreadable)

    async def timers(self, now: float) -> tuple[int, float | None]:
        count = "SELECT count(*) FROM flow_sessions WHERE flow = ? AND timer_at IS NOT NULL"
        following = "SELECT min(timer_at) FROM flow_sessions WHERE flow = ? AND timer_at > ?"
        row = await self._file.read(
            lambda tx: (
                tx.execute(count, (self.flow,)).fetchone()[0],
                tx.execute(following, (self.flow, now)).fetchone()[0],
            )
        )
        return row[0], row[1]

    async def unfinished(self, cursor: str = "") -> SessionPage:
        return await self._page("AND pending = 1", cursor)

    async def scan(self, cursor: str = "") -> SessionPage:
        return await self._page("", cursor)

    async def _page(self, condition: str, cursor: str) -> SessionPage:
        query = f"SELECT key FROM flow_sessions WHERE flow = ? AND key > ? {condition} ORDER BY key LIMIT ?"
        rows = await self._file.read(lambda tx: tx.execute(query, (self.flow, cursor, PAGE_SIZE)).fetchall())
        is_last = len(rows) < PAGE_SIZE
        return SessionPage(readable_keys(text for (text,) in rows), "" if is_last else rows[-1][0])

    async def count_states(self) -> dict[tuple[int, str], int]:
        query = "SELECT key, body FROM flow_sessions WHERE flow = ? AND key > ? ORDER BY key LIMIT ?"
        counts: Counter[tuple[int, str]] = Counter()

        def step(tx: Transaction, after: str) -> str:
            rows = tx.execute(query, (self.flow, after, COUNTED_PER_STEP)).fetchall()
            for key, body in rows:
                count_states(counts, key, body)
            return rows[-1][0] if len(rows) == COUNTED_PER_STEP else ""

        after = await self._file.read(partial(step, after=""))
        while after:
            after = await self._file.read(partial(step, after=after))
        return dict(counts)

    async def forget_seen(self, before: float) -> int:
        delete = "DELETE FROM flow_events WHERE flow = ? AND seen_at < ?"
        forgotten: int = await self._file.write(lambda tx: tx.execute(delete, (self.flow, before)).rowcount)
        return forgotten

    async def fingerprint(self) -> str | None:
        query = "SELECT value FROM facts WHERE name = ?"
        row = await self._file.read(lambda tx: tx.execute(query, (self._fact,)).fetchone())
        return None if row is None else row[0]

    async def save_fingerprint(self, fingerprint: str) -> None:
        insert = "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)"
        await self._file.write(lambda tx: tx.execute(insert, (self._fact, fingerprint)))

    @property
    def _fact(self) -> str:
        return f"flow:{self.flow}:fingerprint"

    def hold(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._locks.hold(name)


def _load(tx: Transaction, flow: str, key: str, event: str | None) -> tuple[Any, bool]:
    row = tx.execute(
        "SELECT version, body FROM flow_sessions WHERE flow = ? AND key = ?", (flow, key)
    ).fetchone()
    find = "SELECT 1 FROM flow_events WHERE flow = ? AND key = ? AND event = ?"
    is_seen = event is not None and tx.execute(find, (flow, key, event)).fetchone() is not None
    return row, is_seen


def _commit(
    tx: Transaction, key: tuple[str, str], columns: tuple[bytes, float | None, int] | None, expected: int
) -> int | None:
    """Return the new version, or None if another version than the expected one is stored."""
    row = tx.execute("SELECT version FROM flow_sessions WHERE flow = ? AND key = ?", key).fetchone()
    if (0 if row is None else row[0]) != expected:
        return None
    if columns is None:
        tx.execute("DELETE FROM flow_sessions WHERE flow = ? AND key = ?", key)
        return 0
    tx.execute(
        "INSERT INTO flow_sessions (flow, key, version, body, timer_at, pending) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (flow, key) DO UPDATE SET version = excluded.version, body = excluded.body,"
        " timer_at = excluded.timer_at, pending = excluded.pending",
        (*key, expected + 1, *columns),
    )
    return expected + 1
