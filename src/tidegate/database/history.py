"""History in SQL: rows are written in batches, and read a page at a time by keyset."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, RowMapping, TextClause, text

from tidegate.database.database import Database, SqlTransaction
from tidegate.database.schema import metadata
from tidegate.errors import BadInputError
from tidegate.history import (
    AttemptOutcome,
    AttemptRow,
    ErasedRows,
    HistoryFilter,
    HistoryMessage,
    HistoryPage,
    HistoryRow,
    HistoryState,
    HistoryStats,
    HistoryStore,
    MessageAttempt,
    RecordedRow,
    ReplyChain,
)
from tidegate.model import BotId, ChatId, TicketId

ROWS_AT_ONCE: Final = 1_000  # in one statement on PostgreSQL
# On SQLite: 256, 128, 64 …, so that there are few statements. A connection keeps each that it has prepared,
# of 2 KB for a row.
ROWS_PER_INSERT: Final = 256
LARGEST_ID: Final = 2**63 - 1
SORTED_AT_MOST: Final = 20_000  # messages of a chat

_READ: Final = ", ".join(f"m.{name}" for name in HistoryMessage.__struct_fields__)
_TYPES: Final = {
    "bot": "bigint",
    "telegram_message_id": "bigint",
    "reply_to_message_id": "bigint",
    "user_id": "bigint",
    "is_change": "boolean",
    "attempts": "integer",
    "number": "integer",
    **dict.fromkeys(("created_at", "ended_at", "at", "seconds", "wait"), "double precision"),
}


def _insert_on_postgres(table: str, row: type[msgspec.Struct]) -> TextClause:
    """Return the statement for one value instead of thousands. Each row is an array."""
    columns = row.__struct_fields__
    values = (f"CAST(r->>{at} AS {_TYPES.get(name, 'text')})" for at, name in enumerate(columns))
    return text(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)}"  # noqa: S608  (our columns)
        " FROM jsonb_array_elements(CAST(:rows AS jsonb)) AS r ON CONFLICT (key) DO NOTHING"
    )


_INSERT_ON_POSTGRES: Final = {
    table: _insert_on_postgres(table, row)
    for table, row in (("tidegate_messages", HistoryRow), ("tidegate_attempts", AttemptRow))
}
_NULLABLE: Final = {
    table: {column.name for column in metadata.tables[table].c if column.nullable}
    for table in ("tidegate_messages", "tidegate_attempts")
}
_SELDOM: Final = {"reply_to_message_id", "user_id", "reason", "description"}  # in messages that go out
_COUNT_OF_CHAT: Final = text(
    "SELECT count(*) FROM (SELECT 1 FROM tidegate_messages WHERE chat_id = :chat LIMIT :limit) AS some"
)
_LAST_ID: Final = "SELECT coalesce(max(id), 0) FROM tidegate_messages"
_ADD_WORDS: Final = (
    "INSERT INTO tidegate_messages_words (rowid, text, chat_id)"
    " SELECT id, text, chat_id FROM tidegate_messages WHERE id > ? AND text IS NOT NULL"
)
# Without this, words of deleted rows stay in the index until it is merged by itself.
_MERGE_WORDS: Final = text(
    "INSERT INTO tidegate_messages_words (tidegate_messages_words) VALUES ('optimize')"
)
_USUAL_STATES: Final = frozenset({HistoryState.DELIVERED, HistoryState.RECEIVED})
_IS_UNUSUAL: Final = "m.state NOT IN ('delivered', 'received')"  # as the index of these rows has it
# A plus before a column keeps SQLite, which knows nothing of the rows, from choosing the index of the column.
# The message, then one step up in each round, then the replies to it. Changes are no messages of their own.
_CHAIN: Final = """
WITH RECURSIVE first_one AS (
    SELECT m.id, m.bot, m.chat_id, m.telegram_message_id, m.reply_to_message_id, 0 AS level
    FROM tidegate_messages m
    WHERE m.chat_id = :chat AND m.telegram_message_id = :message {of_bot}
    ORDER BY m.is_change, m.id DESC LIMIT 1
), upwards AS (
    SELECT * FROM first_one
    UNION ALL
    SELECT m.id, m.bot, m.chat_id, m.telegram_message_id, m.reply_to_message_id, upwards.level + 1
    FROM upwards JOIN tidegate_messages m ON m.chat_id = upwards.chat_id AND +m.bot = upwards.bot
        AND m.telegram_message_id = upwards.reply_to_message_id
    WHERE NOT m.is_change AND upwards.level < :depth
), replies AS (
    SELECT m.id, -1 AS level
    FROM first_one JOIN tidegate_messages m ON m.chat_id = first_one.chat_id
        AND m.reply_to_message_id = first_one.telegram_message_id
    WHERE m.bot = first_one.bot AND NOT m.is_change
    ORDER BY +m.created_at, m.id LIMIT :depth
)
SELECT {columns}, found.level
FROM (SELECT id, level FROM upwards UNION ALL SELECT id, level FROM replies) AS found
    JOIN tidegate_messages m ON m.id = found.id
ORDER BY found.level DESC, m.created_at, m.id
"""
_PURGE: Final = """
DELETE FROM tidegate_messages WHERE id IN (
    SELECT id FROM tidegate_messages
    WHERE created_at < :before AND (ended_at IS NULL OR ended_at < :before)
    ORDER BY created_at, id LIMIT :limit {locked}
)
"""
_PURGE_ATTEMPTS: Final = """
DELETE FROM tidegate_attempts WHERE key IN (
    SELECT key FROM tidegate_attempts WHERE at < :before ORDER BY at LIMIT :limit {locked}
)
"""
_ATTEMPTS: Final = text(
    "SELECT ticket, bot, chat_id, number, at, seconds, outcome, reason, description, wait"
    " FROM tidegate_attempts WHERE ticket = :ticket ORDER BY at DESC, number DESC LIMIT :limit"
)
_STATS: Final = """
SELECT (SELECT count(*) FROM tidegate_messages) AS messages,
    (SELECT min(created_at) FROM tidegate_messages) AS oldest,
    (SELECT max(created_at) FROM tidegate_messages) AS newest,
    {size} AS size
"""
_SIZE: Final = {
    "sqlite": "(SELECT page_count * page_size FROM pragma_page_count, pragma_page_size)",
    "postgresql": "pg_total_relation_size('tidegate_messages')",
}

Parameters = dict[str, Any]


class SqlHistory(HistoryStore):
    """The history of a database, which is opened with it, and closed by its owner."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def write(self, rows: Sequence[RecordedRow]) -> None:
        await self._database.open()  # others who use it may have closed it
        attempts = [row for row in rows if type(row) is AttemptRow]
        messages = [row for row in rows if type(row) is HistoryRow] if attempts else rows
        async with self._database.write() as transaction:
            for table, some in (("tidegate_messages", messages), ("tidegate_attempts", attempts)):
                if transaction.dialect == "sqlite":
                    if some:
                        await transaction.run(partial(_insert, table, some))
                    continue
                for at in range(0, len(some), ROWS_AT_ONCE):
                    packed = msgspec.json.encode(some[at : at + ROWS_AT_ONCE]).decode()
                    await transaction.execute(_INSERT_ON_POSTGRES[table], {"rows": packed})

    async def erase(self, chat_id: ChatId, bot: BotId | None = None) -> ErasedRows:
        where = "chat_id = :chat" + ("" if bot is None else " AND bot = :bot")
        values: Parameters = {"chat": str(chat_id)} | ({} if bot is None else {"bot": bot})
        async with self._database.write() as transaction:
            messages, attempts = [
                (await transaction.execute(text(f"DELETE FROM {table} WHERE {where}"), values)).rowcount  # noqa: S608
                for table in ("tidegate_messages", "tidegate_attempts")
            ]
            if messages and transaction.dialect == "sqlite":
                await transaction.execute(_MERGE_WORDS)
        return ErasedRows(messages, attempts)

    async def purge(self, before: float, limit: int) -> int:
        async with self._database.write() as transaction:
            locked = "FOR UPDATE SKIP LOCKED" if transaction.dialect == "postgresql" else ""
            purged = 0
            for query in (_PURGE, _PURGE_ATTEMPTS):
                values = {"before": before, "limit": limit}
                purged += (await transaction.execute(text(query.format(locked=locked)), values)).rowcount
        return purged

    async def rewrite(self) -> None:
        await self._database.rewrite()

    async def page(self, wanted: HistoryFilter, limit: int, cursor: str | None = None) -> HistoryPage:
        async with self._database.read() as transaction:
            is_large = await _is_large_chat(transaction, wanted)
            query, values = _page_query(wanted, cursor, transaction.dialect, is_large_chat=is_large)
            rows = await transaction.rows(text(query), {**values, "limit": limit + 1})
        messages = list(map(_decode, rows[:limit]))
        if len(rows) <= limit:
            return HistoryPage(messages)
        last = messages[-1]
        return HistoryPage(messages, f"{last.id}" if wanted.words else f"{last.created_at!r}_{last.id}")

    async def find(self, chat_id: ChatId, message_id: int, bot: BotId | None = None) -> list[HistoryMessage]:
        of_bot = "" if bot is None else "AND m.bot = :bot"
        query = (
            f"SELECT {_READ} FROM tidegate_messages m"  # noqa: S608
            f" WHERE m.chat_id = :chat AND m.telegram_message_id = :message {of_bot}"
            " ORDER BY +m.created_at, m.id"
        )
        return await self._messages(query, _place(chat_id, message_id, bot))

    async def find_ticket(self, ticket: TicketId) -> list[HistoryMessage]:
        query = f"SELECT {_READ} FROM tidegate_messages m WHERE m.ticket = :ticket ORDER BY m.id"  # noqa: S608
        return await self._messages(query, {"ticket": ticket})

    async def attempts(self, ticket: TicketId, limit: int) -> list[MessageAttempt]:
        async with self._database.read() as transaction:
            rows = await transaction.rows(_ATTEMPTS, {"ticket": ticket, "limit": limit})
        return [_decode_attempt(row) for row in reversed(rows)]

    async def chain(
        self, chat_id: ChatId, message_id: int, bot: BotId | None, depth: int
    ) -> ReplyChain | None:
        query = _CHAIN.format(columns=_READ, of_bot="" if bot is None else "AND m.bot = :bot")
        async with self._database.read() as transaction:
            values = {**_place(chat_id, message_id, bot), "depth": depth}
            rows = await transaction.rows(text(query), values)
        found = {side: [_decode(row) for row in rows if _side(row["level"]) == side] for side in (-1, 0, 1)}
        if not found[0]:
            return None
        return ReplyChain(message=found[0][0], above=found[1], replies=found[-1])

    async def stats(self) -> HistoryStats:
        async with self._database.read() as transaction:
            [row] = await transaction.rows(text(_STATS.format(size=_SIZE[transaction.dialect])))
        return HistoryStats(**row)

    async def _messages(self, query: str, values: Parameters) -> list[HistoryMessage]:
        async with self._database.read() as transaction:
            return list(map(_decode, await transaction.rows(text(query), values)))


def _insert(table: str, rows: Sequence[RecordedRow], connection: Connection) -> None:
    """Write rows, and the words of those messages that were new.

    Each statement gives the interpreter to other threads once. With one for each row, a busy event loop would
    let this thread run so seldom that it takes seconds.
    """
    has_words = table == "tidegate_messages"
    last = connection.exec_driver_sql(_LAST_ID).scalar_one() if has_words else 0
    at = 0
    while left := len(rows) - at:
        size = min(ROWS_PER_INSERT, 1 << left.bit_length() - 1)
        connection.exec_driver_sql(*_insert_on_sqlite(table, rows[at : at + size]))
        at += size
    if has_words:
        connection.exec_driver_sql(_ADD_WORDS, (last,))


def _insert_on_sqlite(table: str, rows: Sequence[RecordedRow]) -> tuple[str, tuple[object, ...]]:
    """Return the statement for these rows, and its values.

    Python binds None and bool ten times slower than other values, and holds the interpreter meanwhile:
    columns of which these rows have nothing are left out, and None in others is bound as a text that is in
    none.
    """
    names = rows[0].__struct_fields__
    columns = dict(zip(names, zip(*map(msgspec.structs.astuple, rows), strict=True), strict=True))
    for name in _SELDOM.intersection(names):
        if columns[name].count(None) == len(rows):
            del columns[name]
    nullable = _NULLABLE[table]
    marks = f"({', '.join('nullif(?, char(0))' if name in nullable else '?' for name in columns)})"
    for name, values in columns.items():
        if name in nullable:
            columns[name] = tuple("\0" if value is None else value for value in values)
    if "is_change" in columns:
        columns["is_change"] = tuple(map(int, columns["is_change"]))
    insert = (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([marks] * len(rows))}"  # noqa: S608
        " ON CONFLICT (key) DO NOTHING"
    )
    return insert, tuple(chain.from_iterable(zip(*columns.values(), strict=True)))


async def _is_large_chat(transaction: SqlTransaction, wanted: HistoryFilter) -> bool:
    """Return whether a chat has so many messages that to sort them takes longer than to look for them.

    No index has the messages of a chat in the order of their times: it would cost each write as much as the
    others together. PostgreSQL knows by itself which way is shorter.
    """
    if wanted.chat_id is None or wanted.words or transaction.dialect != "sqlite":
        return False
    values = {"chat": str(wanted.chat_id), "limit": SORTED_AT_MOST + 1}
    return bool(await transaction.scalar(_COUNT_OF_CHAT, values) > SORTED_AT_MOST)


def _page_query(
    wanted: HistoryFilter, cursor: str | None, dialect: str, *, is_large_chat: bool
) -> tuple[str, Parameters]:
    source, conditions, values = "tidegate_messages m", list[str](), Parameters()
    if wanted.words:
        order = "m.id DESC"
        if dialect == "sqlite":
            # CROSS JOIN keeps this order: the matching rows come from the newest to the oldest, unsorted.
            source, order = (
                "tidegate_messages_words w CROSS JOIN tidegate_messages m ON m.id = w.rowid",
                "w.rowid DESC",
            )
            conditions.append("w.tidegate_messages_words MATCH :words")
            values["words"] = _fts5_query(wanted.words, wanted.chat_id)
        else:
            conditions.append("m.words @@ to_tsquery('simple', :words)")
            values["words"] = _tsquery(wanted.words)
    else:
        is_sorted = dialect == "sqlite" and wanted.chat_id is not None and not is_large_chat
        order = f"{'+' if is_sorted else ''}m.created_at DESC, m.id DESC"
    _add_filters(wanted, conditions, values, is_large_chat=is_large_chat)
    if cursor is not None:
        _add_cursor(wanted, cursor, conditions, values)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {_READ} FROM {source}{where} ORDER BY {order} LIMIT :limit", values  # noqa: S608


def _add_filters(
    wanted: HistoryFilter, conditions: list[str], values: Parameters, *, is_large_chat: bool
) -> None:
    is_unusual = bool(wanted.states) and _USUAL_STATES.isdisjoint(wanted.states)
    if wanted.bot is not None:
        conditions.append("m.bot = :bot" if wanted.chat_id is None and not is_unusual else "+m.bot = :bot")
        values["bot"] = wanted.bot
    if wanted.direction is not None:
        conditions.append("m.direction = :direction")
        values["direction"] = wanted.direction
    if wanted.chat_id is not None:
        conditions.append("+m.chat_id = :chat" if is_large_chat else "m.chat_id = :chat")
        values["chat"] = str(wanted.chat_id)
    if wanted.states:
        states = {f"state{at}": str(state) for at, state in enumerate(wanted.states)}
        conditions.append(f"m.state IN ({', '.join(f':{name}' for name in states)})")
        values |= states
    if is_unusual:
        conditions.append(_IS_UNUSUAL)
    if wanted.since is not None:
        conditions.append("m.created_at >= :since")
        values["since"] = wanted.since
    if wanted.until is not None:
        conditions.append("m.created_at < :until")
        values["until"] = wanted.until


def _add_cursor(wanted: HistoryFilter, cursor: str, conditions: list[str], values: Parameters) -> None:
    time, _, number = cursor.rpartition("_")
    try:
        values["last_id"] = int(number)
        if not wanted.words:
            values["last_time"] = float(time)
        is_known = bool(time) != bool(wanted.words) and math.isfinite(values.get("last_time", 0.0))
        is_known = is_known and 0 <= values["last_id"] <= LARGEST_ID
    except ValueError:
        is_known = False
    if not is_known:
        raise BadInputError("the cursor is not one of this list: begin without one")
    if wanted.words:
        conditions.append("m.id < :last_id")
    else:
        conditions += ["m.created_at <= :last_time", "(m.created_at < :last_time OR m.id < :last_id)"]


def _fts5_query(words: Sequence[str], chat_id: ChatId | None) -> str:
    """All of the words, each in quotes, so that nothing in them is taken for syntax."""
    quoted = (
        f'"{word.rstrip("*").replace(chr(34), chr(34) * 2)}"{"*" if word.endswith("*") else ""}'
        for word in words
    )
    in_text = f"text : ({' AND '.join(quoted)})"
    return in_text if chat_id is None else f'{in_text} AND chat_id : "{chat_id}"'


def _tsquery(words: Sequence[str]) -> str:
    """Likewise for PostgreSQL."""
    escaped = (
        (word.rstrip("*").replace("\\", "\\\\").replace("'", "''"), word.endswith("*")) for word in words
    )
    return " & ".join(f"'{word}'{':*' if is_beginning else ''}" for word, is_beginning in escaped)


def _place(chat_id: ChatId, message_id: int, bot: BotId | None) -> Parameters:
    return {"chat": str(chat_id), "message": message_id} | ({} if bot is None else {"bot": bot})


def _side(level: int) -> int:
    """-1: a reply. 0: the message. 1: above it."""
    return min(level, 1)


def _decode(row: RowMapping) -> HistoryMessage:
    known = {name: row[name] for name in HistoryMessage.__struct_fields__}
    known["chat_id"] = _chat(known["chat_id"])
    known["is_change"] = bool(known["is_change"])
    known["state"] = HistoryState(known["state"])
    return HistoryMessage(**known)


def _decode_attempt(row: RowMapping) -> MessageAttempt:
    known = {**row, "chat_id": _chat(row["chat_id"]), "outcome": AttemptOutcome(row["outcome"])}
    return MessageAttempt(**known)


def _chat(text: str) -> ChatId:
    return int(text) if text.lstrip("-").isdecimal() else text
