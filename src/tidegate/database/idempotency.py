"""Answers to requests with an Idempotency-Key, in SQL: a repeated request gets the first answer again."""

from collections.abc import Callable
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, and_, delete, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from tidegate.database.database import Database
from tidegate.database.schema import idempotency

KEEP: Final = 86_400.0  # seconds
ABANDONED_AFTER: Final = 120.0  # seconds without an answer: the process that worked on it has ended


class OnceKey(msgspec.Struct, frozen=True):
    """A key is that of its owner: others may use the same."""

    owner: str
    key: str


class StoredAnswer(msgspec.Struct, frozen=True):
    """`status` is None while the first request is being worked on; `body` if it is not kept."""

    fingerprint: bytes
    status: int | None
    body: bytes | None


class SqlIdempotency:
    """One row for each key, for a day. Raises StoreAwayError while the database cannot be reached."""

    def __init__(self, database: Callable[[], Database]) -> None:
        self._find_database = database

    @property
    def _database(self) -> Database:
        return self._find_database()

    async def begin(self, key: OnceKey, fingerprint: bytes, now: float) -> StoredAnswer | None:
        """Reserve the key and return None, or return what is known of the request that has it.

        Of several that begin at the same time, one gets None. A reservation whose process has ended, and an
        answer that is a day old, give way.
        """
        table, row = idempotency.c, {**msgspec.structs.asdict(key), "fingerprint": fingerprint, "at": now}
        stale = or_(table.at <= now - KEEP, and_(table.status.is_(None), table.at <= now - ABANDONED_AFTER))
        await self._database.open()
        async with self._database.write() as transaction:
            await transaction.execute(delete(idempotency).where(stale, _is(key)))
            make = postgresql.insert if transaction.dialect == "postgresql" else sqlite.insert
            added = await transaction.execute(make(idempotency).values(row).on_conflict_do_nothing())
            if added.rowcount:
                await transaction.execute(delete(idempotency).where(table.at <= now - KEEP))
                return None
            known = select(table.fingerprint, table.status, table.body).where(_is(key))
            rows = await transaction.rows(known)
        return StoredAnswer(**rows[0])

    async def finish(self, key: OnceKey, status: int, body: bytes | None) -> None:
        """Store the answer."""
        async with self._database.write() as transaction:
            await transaction.execute(update(idempotency).where(_is(key)).values(status=status, body=body))

    async def forget(self) -> int:
        """Keep no content of an answer any more, as any may quote a chat; return how many had one.

        A request that is repeated hears that it was done.
        """
        forget = update(idempotency).where(idempotency.c.body.is_not(None)).values(body=None)
        async with self._database.write() as transaction:
            return (await transaction.execute(forget)).rowcount

    async def abandon(self, key: OnceKey) -> None:
        """Let the key be used again: the request has failed, and changed nothing."""
        async with self._database.write() as transaction:
            await transaction.execute(delete(idempotency).where(_is(key)))


def _is(key: OnceKey) -> ColumnElement[bool]:
    return and_(idempotency.c.owner == key.owner, idempotency.c.key == key.key)
