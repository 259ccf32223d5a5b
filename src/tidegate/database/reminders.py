"""Reminders in SQL: rows in the order of `(due_at, id)`, claimed in short transactions."""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from msgspec.structs import fields
from sqlalchemy import (
    ColumnElement,
    Integer,
    RowMapping,
    bindparam,
    case,
    cast,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    true,
    union_all,
    update,
)

from tidegate.clock import Clock
from tidegate.database.database import Database, SqlTransaction
from tidegate.database.row_ids import allocate_ids
from tidegate.database.schema import reminders as table
from tidegate.errors import BadInputError, StoreError
from tidegate.file_codec import unpack_file, with_files_packed
from tidegate.model import BotId, ChatId
from tidegate.reminders.port import (
    ADD_AT_ONCE,
    Addition,
    DueBatch,
    FirstState,
    ReminderCounts,
    ReminderStore,
    Shard,
)
from tidegate.reminders.reminder import NewReminder, Reminder
from tidegate.stores.message_codec import CODEC_ERRORS, LONGEST_CAUSE

log = logging.getLogger("tidegate.store")

IDS_AT_ONCE: Final = 1_000  # in one statement
KEY_LOCK: Final = 7_433_683_011  # the advisory lock of those that add keys

_id, _due = table.c.id, table.c.due_at
_is_queued = _due.is_not(None) & table.c.handler.is_(None)
_is_handled = _due.is_not(None) & table.c.handler.is_not(None)
# What firing changes is in columns: a body is written once, with what is given and nobody looks for.
_STATE_FIELDS: Final = tuple(
    name
    for name in Reminder.__struct_fields__
    if name not in {*NewReminder.__struct_fields__, "id", "created_at"}
)
_BODY_DEFAULTS: Final = {
    field.name: field.default for field in fields(NewReminder) if field.name not in table.c
}
_one = update(table).where(_id == bindparam("row"))
_ADVANCE: Final = _one.values({name: bindparam(name) for name in (*_STATE_FIELDS, "due_at")})
_REPLACE: Final = _one.values(
    {column.name: bindparam(column.name) for column in table.c if column is not _id}
)
_SET_ASIDE: Final = _one.values(due_at=None, trouble=bindparam("trouble"))


class SqlReminders(ReminderStore):
    """The reminders of a database, which is opened and closed with them."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or Clock()

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def add(self, reminders: Sequence[NewReminder], first: FirstState) -> list[Addition]:
        if len(reminders) > ADD_AT_ONCE:
            raise BadInputError(f"{len(reminders):,} reminders at once: add at most {ADD_AT_ONCE:,}")
        async with self._database.write() as transaction:
            known = await _known_keys(transaction, reminders)
            plain = sum(new.key is None for new in reminders)
            keyed = {(new.bot, new.key) for new in reminders if new.key is not None}
            ids = await allocate_ids(transaction, table, plain + len(keyed - known.keys()))
            fresh, unused = set(ids), iter(ids)
            additions: list[Addition] = []
            for new in reminders:
                old_id, old = known.get((new.bot, new.key), (None, None))
                one = first(new, next(unused) if old_id is None else old_id, old)
                additions.append(Addition(one, old))
                if new.key is not None:
                    known[new.bot, new.key] = (one.id, one)
            # Of a key that was given twice, the last.
            rows = {added.reminder.id: _row(added.reminder) for added in additions if not added.is_unchanged}
            if inserted := [row for key, row in rows.items() if key in fresh]:
                await transaction.execute(insert(table), inserted)
            if replaced := [row | {"row": key} for key, row in rows.items() if key not in fresh]:
                await transaction.execute(_REPLACE, replaced)
        return additions

    async def get(self, ids: Iterable[int]) -> list[Reminder]:
        async with self._database.read(latest=True) as transaction:
            return [
                one
                for chunk in _chunks(ids)
                for one in _readable(
                    await transaction.rows(select(table).where(_id.in_(chunk)).order_by(_id))
                )
            ]

    async def find(
        self,
        *,
        bot: BotId | None = None,
        user_id: int | None = None,
        chat_id: ChatId | None = None,
        key: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[Reminder]:
        query = select(table).where(_id > after).order_by(_id).limit(limit)
        if bot is not None:
            query = query.where(table.c.bot == bot)
        if user_id is not None:
            query = query.where(table.c.user_id == user_id)
        if chat_id is not None:
            query = query.where(table.c.chat_id == str(chat_id))
        if key is not None:
            query = query.where(table.c.key == key)
        # A list of all may lag behind; whoever asks for one user or key may just have added it.
        latest = not (user_id is None and chat_id is None and key is None)
        async with self._database.read(latest=latest) as transaction:
            return _readable(await transaction.rows(query))

    async def upcoming(self, *, bot: BotId | None = None, limit: int = 100) -> list[Reminder]:
        ours = [] if bot is None else [table.c.bot == bot]
        async with self._database.read() as transaction:
            rows = [
                row
                for part in (_is_queued, _is_handled)  # each has its index
                for row in await transaction.rows(
                    select(table).where(part, *ours).order_by(_due, _id).limit(limit)
                )
            ]
        return _readable(sorted(rows, key=lambda row: (row["due_at"], row["id"]))[:limit])

    async def change(self, reminder_id: int, change: Callable[[Reminder], Reminder]) -> Reminder | None:
        async with self._database.write() as transaction:
            rows = await transaction.rows(select(table).where(_id == reminder_id).with_for_update())
            if not rows:
                return None
            old = _decode(rows[0])
            if isinstance(old, str):
                raise StoreError(f"reminder {reminder_id} cannot be decoded: {old}")
            new = change(old)
            if new != old:
                row = _row(new) | {"row": reminder_id}
                if (new.next_at, new.paused) == (old.next_at, old.paused):
                    row["due_at"] = rows[0]["due_at"]  # whoever has leased it keeps it
                await transaction.execute(_REPLACE, row)
        return new

    async def remove(self, ids: Iterable[int]) -> list[Reminder]:
        async with self._database.write() as transaction:
            rows = [
                row
                for chunk in _chunks(ids)
                for row in await transaction.rows(delete(table).where(_id.in_(chunk)).returning(table))
            ]
        return _readable(sorted(rows, key=lambda row: row["id"]))

    async def rewrite(self) -> None:
        await self._database.rewrite()

    @asynccontextmanager
    async def claim_due(
        self, before: float, limit: int, shard: Shard | None = None
    ) -> AsyncIterator[DueBatch]:
        query = (
            select(table)
            .where(_is_queued, _due < before, *_of_shard(shard))
            .order_by(_due, _id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        async with self._database.write() as transaction:
            reminders: list[Reminder] = []
            while not reminders and (rows := await transaction.rows(query)):
                reminders = await _set_aside(transaction, rows)  # unless all of them are bad
            yield _Batch(transaction, reminders)

    async def lease_handled(
        self, handlers: Iterable[str], before: float, seconds: float, limit: int
    ) -> list[Reminder]:
        now = self._clock.now()
        query = (
            select(table)
            .where(_is_handled, table.c.handler.in_(list(handlers)), _due < before)
            .where(or_(_due <= now, _due <= table.c.next_at))  # else it is leased
            .order_by(_due, _id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        async with self._database.write() as transaction:
            reminders = await _set_aside(transaction, await transaction.rows(query))
            if reminders:
                leased = _id.in_([one.id for one in reminders])
                await transaction.execute(update(table).where(leased).values(due_at=now + seconds))
        return reminders

    async def next_due(self, handlers: Iterable[str] = (), shard: Shard | None = None) -> float | None:
        queued = select(_due).where(_is_queued, *_of_shard(shard)).order_by(_due, _id).limit(1)
        handled = select(func.min(_due)).where(_is_handled, table.c.handler == bindparam("handler"))
        async with self._database.read(latest=True) as transaction:
            found = [await transaction.scalar(queued)]
            found += [await transaction.scalar(handled, {"handler": handler}) for handler in handlers]
        return min((at for at in found if at is not None), default=None)

    async def counts(self, now: float) -> ReminderCounts:
        def count(condition: ColumnElement[bool]) -> ColumnElement[int]:
            return func.count().filter(condition)

        active, ended = _due.is_not(None), table.c.next_at.is_(None)
        query = select(count(active), count(~active & ~ended), count(ended), count(_due <= now))
        async with self._database.read() as transaction:
            return ReminderCounts._make((await transaction.execute(query)).one())

    async def due_counts(self, start: float, step: float, steps: int, bot: BotId | None = None) -> list[int]:
        ours = [] if bot is None else [table.c.bot == bot]
        within = (_due >= start, _due < start + step * steps)
        # Each part has its index, from which alone it is read, unless a bot is named.
        due = union_all(*(select(_due).where(part, *within, *ours) for part in (_is_queued, _is_handled)))
        since = due.subquery().c.due_at - start
        async with self._database.read() as transaction:
            # PostgreSQL rounds where SQLite cuts.
            passed = func.floor(since / step) if transaction.dialect == "postgresql" else since / step
            number = cast(passed, Integer).label("number")
            rows = await transaction.rows(select(number, func.count().label("count")).group_by(number))
        counts = [0] * steps
        for row in rows:
            counts[min(row["number"], steps - 1)] += row["count"]
        return counts


class _Batch:
    """Due rows that are locked by an open transaction."""

    def __init__(self, transaction: SqlTransaction, reminders: Sequence[Reminder]) -> None:
        self._transaction = transaction
        self.reminders = reminders

    async def advance(self, reminders: Sequence[Reminder]) -> None:
        if reminders:
            await self._transaction.execute(_ADVANCE, [_state(one) | {"row": one.id} for one in reminders])


def _of_shard(shard: Shard | None) -> list[ColumnElement[bool]]:
    if shard is None:
        return []
    # In SQL, the remainder of a negative number (a group) is negative.
    remainder = (table.c.user_id % shard.of + shard.of) % shard.of
    # PostgreSQL believes that an equation seldom holds, and would sort all that are due; of a CASE it
    # believes that it holds for every second row.
    return [case((remainder == shard.number, true()), else_=false())]


def _chunks(ids: Iterable[int]) -> Iterable[list[int]]:
    unique = sorted(set(ids))
    return (unique[start : start + IDS_AT_ONCE] for start in range(0, len(unique), IDS_AT_ONCE))


async def _known_keys(
    transaction: SqlTransaction, reminders: Sequence[NewReminder]
) -> dict[tuple[BotId, str | None], tuple[int, Reminder | None]]:
    """Return the stored reminders whose keys are added again; None in place of one that cannot be decoded.

    Two that add the same new key at the same time would both find it unknown: on PostgreSQL, too, those that
    add keys take turns.
    """
    keys: dict[BotId, set[str]] = {}
    for new in reminders:
        if new.key is not None:
            keys.setdefault(new.bot, set()).add(new.key)
    if keys and transaction.dialect == "postgresql":
        await transaction.execute(select(func.pg_advisory_xact_lock(KEY_LOCK)))
    found: dict[tuple[BotId, str | None], tuple[int, Reminder | None]] = {}
    for bot, names in keys.items():
        query = (
            select(table).where(table.c.bot == bot, table.c.key.in_(names)).order_by(_id).with_for_update()
        )
        for row in await transaction.rows(query):
            old = _decode(row)
            found[bot, row["key"]] = (row["id"], None if isinstance(old, str) else old)
    return found


async def _set_aside(transaction: SqlTransaction, rows: Sequence[RowMapping]) -> list[Reminder]:
    """Return the reminders of these rows. Rows that cannot be decoded are due no more, and kept."""
    good, bad = [], []
    for row in rows:
        one = _decode(row)
        if isinstance(one, Reminder):
            good.append(one)
        else:
            bad.append({"row": row["id"], "trouble": one})
    if bad:
        log.error(
            "%s reminders cannot be decoded, and are set aside with their bytes; the first is %s: %s",
            len(bad),
            bad[0]["row"],
            bad[0]["trouble"],
        )
        await transaction.execute(_SET_ASIDE, bad)
    return good


_OWN_COLUMNS: Final = frozenset({"schedule", "queued", "chat_id", "body", "due_at", "trouble"})
# As plain texts: msgspec does not take SQLAlchemy's kind of text for a key.
_PLAIN_COLUMNS: Final = tuple(str(column.name) for column in table.c if column.name not in _OWN_COLUMNS)
_body = msgspec.msgpack.Decoder(ext_hook=unpack_file)


def _row(one: Reminder) -> dict[str, Any]:
    given = {name: getattr(one, name) for name in _BODY_DEFAULTS}
    body = {name: value for name, value in given.items() if value != _BODY_DEFAULTS[name]}
    row = {name: getattr(one, name) for name in _PLAIN_COLUMNS} | _state(one)
    return row | {
        "chat_id": str(one.chat_id),
        "schedule": msgspec.json.encode(one.schedule).decode(),
        "body": msgspec.msgpack.encode(body | {"fields": with_files_packed(one.fields)}),
        "trouble": None,
    }


def _state(one: Reminder) -> dict[str, Any]:
    return {name: getattr(one, name) for name in _STATE_FIELDS} | {
        "queued": msgspec.json.encode(one.queued).decode(),
        "due_at": None if one.paused else one.next_at,
    }


def _decode(row: RowMapping) -> Reminder | str:
    """Return the reminder of a row, or why it cannot be decoded."""
    try:
        chat = row["chat_id"]
        known = {
            **_body.decode(row["body"]),
            **{name: row[name] for name in _PLAIN_COLUMNS},
            "chat_id": chat if chat.startswith("@") else int(chat),
            "schedule": msgspec.json.decode(row["schedule"]),
            "queued": msgspec.json.decode(row["queued"]),
        }
        return msgspec.convert(known, Reminder)
    except (*CODEC_ERRORS, AttributeError) as error:
        return str(error)[:LONGEST_CAUSE] or type(error).__name__


def _readable(rows: Iterable[RowMapping]) -> list[Reminder]:
    """Return the reminders that can be decoded: the scheduler reports and pauses the others."""
    return [one for row in rows if isinstance(one := _decode(row), Reminder)]
