"""Leases in the SQLite file, for the leader among processes that share it."""

import secrets
from typing import Final

from tidegate.clock import Clock
from tidegate.leader_lease import LeaseStore
from tidegate.stores.sqlite.file import StoreFile, Transaction


class SqliteLeases(LeaseStore):
    """One holder of leases. `file` is open before it."""

    def __init__(self, file: StoreFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self.holder: Final = secrets.token_hex(6)

    async def lease(self, name: str, seconds: float) -> bool:
        # As of now: if the step waits for the disk, the lease is over sooner, never later.
        now = self._clock.now()
        return await self._file.write(lambda tx: _lease(tx, name, self.holder, now, seconds))

    async def give_back(self, name: str) -> None:
        release = "UPDATE pollers SET holder = NULL, until = NULL WHERE name = ? AND holder = ?"
        await self._file.write(lambda tx: tx.execute(release, (name, self.holder)))


def held_by_another(tx: Transaction, name: str, holder: str, now: float) -> float | None:
    """Return when another holder's lease ends, None if no other has one. For the steps of a leader."""
    query = "SELECT until FROM pollers WHERE name = ? AND holder <> ? AND until > ?"
    row = tx.execute(query, (name, holder, now)).fetchone()
    return None if row is None else row[0]


def _lease(tx: Transaction, name: str, holder: str, now: float, seconds: float) -> bool:
    until = held_by_another(tx, name, holder, now)
    if until is None:
        tx.execute(
            "INSERT INTO pollers (name, holder, until) VALUES (?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until",
            (name, holder, now + seconds),
        )
        return True
    if until > now + seconds:  # the clock was set back: the lease must not last longer because of that
        tx.execute("UPDATE pollers SET until = ? WHERE name = ?", (now + seconds, name))
    return False
