"""Audiences of broadcasts in SQL: rows are added, read and deleted in short transactions."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, RowMapping, delete, func, insert, select, update

from tidegate.broadcast.stored_audience import AudienceRecord, AudienceRow, AudienceStore, AudienceTerms
from tidegate.clock import Clock
from tidegate.database.database import Database
from tidegate.database.row_ids import allocate_ids
from tidegate.database.schema import audience_rows, audiences
from tidegate.errors import StoreError
from tidegate.model import BotId
from tidegate.stores.message_codec import CODEC_ERRORS

log = logging.getLogger("tidegate.store")

NAME_LOCK: Final = 7_433_683_015  # the advisory lock of those that make an audience ready
CHATS_AT_ONCE: Final = 500  # in one statement
MOST_AUDIENCES: Final = 1_000  # read together

_id = audiences.c.id
_chat, _number = audience_rows.c.chat, audience_rows.c.number
_holds_name = audiences.c.state.in_(("ready", "begun"))


class SqlAudiences(AudienceStore):
    """The audiences of a database, which is opened with them, and closed by its owner."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def add(self, terms: AudienceTerms) -> int:
        now = self._clock.now()
        async with self._database.write() as transaction:
            [number] = await allocate_ids(transaction, audiences, 1)
            row = {
                "id": number,
                "bot": terms.bot,
                "name": terms.name,
                "state": "loading",
                "rows": 0,
                "digest": "",
                "changed_at": now,
                "terms": msgspec.msgpack.encode(terms),
            }
            await transaction.execute(insert(audiences), row)
        return number

    async def append(self, audience: int, rows: Sequence[AudienceRow]) -> set[str]:
        known: set[str] = set()
        async with self._database.write() as transaction:
            loading = update(audiences).where(_id == audience, audiences.c.state == "loading")
            if not (await transaction.execute(loading.values(changed_at=self._clock.now()))).rowcount:
                raise StoreError("the rows of this audience took too long to arrive, and were removed")
            for chats in _chunks([row.chat for row in rows]):
                query = select(_chat).where(audience_rows.c.audience == audience, _chat.in_(chats))
                known |= {row["chat"] for row in await transaction.rows(query)}
            if fresh := [row._asdict() | {"audience": audience} for row in rows if row.chat not in known]:
                await transaction.execute(insert(audience_rows), fresh)
        return known

    async def complete(self, audience: int, rows: int, digest: str) -> AudienceRecord:
        async with self._database.write() as transaction:
            if transaction.dialect == "postgresql":
                await transaction.execute(select(func.pg_advisory_xact_lock(NAME_LOCK)))
            own = select(audiences.c.bot, audiences.c.name).where(_id == audience).subquery()
            same_name = (audiences.c.bot == own.c.bot) & (audiences.c.name == own.c.name)
            found = await transaction.rows(select(audiences).where(same_name, _holds_name))
            if not found:
                values = {"state": "ready", "rows": rows, "digest": digest, "changed_at": self._clock.now()}
                await transaction.execute(update(audiences).where(_id == audience).values(values))
                found = await transaction.rows(select(audiences).where(_id == audience))
        return _record(found[0])

    async def begin(self, audience: int) -> None:
        await self._set(audience, "begun")

    async def end(self, audience: int) -> None:
        await self._set(audience, "ended")

    async def _set(self, audience: int, state: str) -> None:
        values = {"state": state, "changed_at": self._clock.now()}
        async with self._database.write() as transaction:
            await transaction.execute(update(audiences).where(_id == audience).values(values))

    async def find(self, audience: int) -> AudienceRecord | None:
        async with self._database.read(latest=True) as transaction:
            rows = await transaction.rows(select(audiences).where(_id == audience))
        return _record(rows[0]) if rows else None

    async def all(self) -> list[AudienceRecord]:
        found = []
        async with self._database.read(latest=True) as transaction:
            rows = await transaction.rows(select(audiences).order_by(_id).limit(MOST_AUDIENCES))
        for row in rows:
            try:
                found.append(_record(row))
            except CODEC_ERRORS as error:
                log.warning("audience %s cannot be decoded, and is left alone: %s", row["id"], error)
        return found

    async def page(self, audience: int, after: int, limit: int) -> list[AudienceRow]:
        columns = (_number, _chat, audience_rows.c.fields)
        query = select(*columns).where(audience_rows.c.audience == audience, _number > after)
        async with self._database.read(latest=True) as transaction:
            rows = await transaction.execute(query.order_by(_number).limit(limit))
            return [AudienceRow._make(row) for row in rows]

    async def remove(self, audience: int, limit: int) -> bool:
        ours = audience_rows.c.audience == audience
        async with self._database.write() as transaction:
            rest = select(_number).where(ours).order_by(_number).offset(limit).limit(1)
            first_left = await transaction.scalar(rest)
            some = ours if first_left is None else ours & (_number < first_left)
            await transaction.execute(delete(audience_rows).where(some))
            if first_left is None:
                await transaction.execute(delete(audiences).where(_id == audience))
        return first_left is None

    async def count(self, chat: str, bot: BotId | None) -> int:
        query = select(func.count()).select_from(audience_rows).where(_of_chat(chat, bot))
        async with self._database.read(latest=True) as transaction:
            return int(await transaction.scalar(query))

    async def forget(self, chat: str, bot: BotId | None) -> int:
        async with self._database.write() as transaction:
            return (await transaction.execute(delete(audience_rows).where(_of_chat(chat, bot)))).rowcount

    async def rewrite(self) -> None:
        await self._database.rewrite()


def _of_chat(chat: str, bot: BotId | None) -> ColumnElement[bool]:
    if bot is None:
        return _chat == chat
    return (_chat == chat) & audience_rows.c.audience.in_(select(_id).where(audiences.c.bot == bot))


def _chunks(chats: Sequence[str]) -> Iterator[Sequence[str]]:
    return (chats[at : at + CHATS_AT_ONCE] for at in range(0, len(chats), CHATS_AT_ONCE))


def _record(row: RowMapping) -> AudienceRecord:
    known: dict[str, Any] = {name: row[name] for name in ("id", "state", "changed_at", "rows", "digest")}
    return AudienceRecord(**known, terms=msgspec.msgpack.decode(row["terms"], type=AudienceTerms))
