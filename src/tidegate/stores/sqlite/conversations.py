"""Conversations in the SQLite file. One with neither state nor data has no row."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.inbound.conversations import (
    Conversation,
    ConversationKey,
    Conversations,
    UnreadableDataError,
    pack_data,
    unpack_data,
)
from tidegate.stores.sqlite.file import StoreFile, Transaction

log = logging.getLogger("tidegate")

EXPIRED_AT_ONCE: Final = 500  # conversations in a transaction, so that others do not wait for long

RowKey = tuple[int, int, int, int | str, int | str, str]

_ID_BOUND: Final = 2**63
_KEY: Final = "bot, chat, user, thread, business, destiny"
_THIS_ROW: Final = "bot = ? AND chat = ? AND user = ? AND thread = ? AND business = ? AND destiny = ?"
_NO_THREAD: Final = ""  # of another type than a thread: no thread can equal it
_NO_BUSINESS: Final = 0
UNREADABLE_DESTINY: Final = "unreadable:"  # before the destiny of conversations that cannot be decoded


class SqliteConversations(Conversations):
    """Nothing is kept in memory. The file is opened and closed by its owner."""

    def __init__(self, file: StoreFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    async def set_state(self, key: ConversationKey, state: str | None) -> None:
        row, now = _row_key(key), self._clock.now()
        name = None if state is None else _check_text(state, "the state of a conversation")
        await self._file.write(lambda tx: _write(tx, row, "state", name, now))

    async def get_state(self, key: ConversationKey) -> str | None:
        row = _row_key(key)
        find = f"SELECT state, data FROM conversations WHERE {_THIS_ROW} AND state IS NOT NULL"
        found = await self._file.read(lambda tx: tx.execute(find, row).fetchone())
        if found is None:
            return None
        state: str
        state, data = found
        try:
            unpack_data(data)
        except UnreadableDataError as error:
            await self.set_aside(key, error)
            return None
        return state

    async def put(self, key: ConversationKey, state: str | None, data: bytes | None) -> None:
        row, now = _row_key(key), self._clock.now()
        name = None if state is None else _check_text(state, "the state of a conversation")

        def put(tx: Transaction) -> None:
            _write(tx, row, "state", name, now)
            _write(tx, row, "data", data, now)

        await self._file.write(put)

    async def set_data(self, key: ConversationKey, data: bytes | None) -> None:
        row, now = _row_key(key), self._clock.now()
        await self._file.write(lambda tx: _write(tx, row, "data", data, now))

    async def get_data(self, key: ConversationKey) -> bytes | None:
        row = _row_key(key)
        return await self._file.read(lambda tx: _data_of(tx, row))

    async def merge_data(self, key: ConversationKey, data: bytes) -> dict[str, Any]:
        row, now = _row_key(key), self._clock.now()

        def merge(tx: Transaction) -> dict[str, Any]:
            try:
                stored = unpack_data(_data_of(tx, row))
            except UnreadableDataError as error:
                _set_aside(tx, row, error)
                stored = {}
            merged = stored | unpack_data(data)
            _write(tx, row, "data", pack_data(merged), now)
            return merged

        return await self._file.write(merge)

    async def page(
        self, destiny: str | None, state: str | None, *, after: int, limit: int
    ) -> list[Conversation]:
        name = None if state is None else _check_text(state, "the state of a conversation")
        # The plus keeps SQLite from sorting all of a destiny for each page.
        chosen = {"n > ?": after, "+destiny = ?": destiny, "state = ?": name}
        given = {condition: value for condition, value in chosen.items() if value is not None}
        select = (
            f"SELECT n, {_KEY}, state, data, changed_at FROM conversations"
            f" WHERE {' AND '.join(given)} ORDER BY n LIMIT ?"
        )
        found: list[Conversation] = []
        while (left := limit - len(found)) > 0:
            values = (*(given | {"n > ?": after}).values(), left)
            rows = await self._file.read(partial(_page, select=select, values=values))
            found += [one for row in rows if (one := _conversation_in(row)) is not None]
            if len(rows) < left:
                break
            after = rows[-1][0]
        return found

    async def set_aside(self, key: ConversationKey, error: UnreadableDataError) -> None:
        row = _row_key(key)
        await self._file.write(lambda tx: _set_aside(tx, row, error))

    async def expire(self, before: float, destiny: str) -> int:
        old = "SELECT n FROM conversations WHERE destiny = ? AND changed_at < ? ORDER BY changed_at LIMIT ?"
        delete = f"DELETE FROM conversations WHERE n IN ({old})"
        expired = 0
        while True:
            deleted: int = await self._file.write(
                lambda tx: tx.execute(delete, (destiny, before, EXPIRED_AT_ONCE)).rowcount
            )
            expired += deleted
            if deleted < EXPIRED_AT_ONCE:
                return expired


class ConversationsFile:
    """A file for conversations alone, open from its first use until `close`, and again if used later."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._file: StoreFile | None = None
        self._lock = asyncio.Lock()

    async def open(self) -> SqliteConversations:
        if self._file is None:
            async with self._lock:
                if self._file is None:
                    file = StoreFile(self._path)
                    await file.open()
                    self._file = file
        return SqliteConversations(self._file, self._clock)

    async def close(self) -> None:
        async with self._lock:
            file, self._file = self._file, None
            if file is not None:
                await file.close()


def _row_key(key: ConversationKey) -> RowKey:
    """Return the columns that identify a row. Two keys that differ in anything have two rows."""
    if not all(map(_is_id, (key.bot, key.chat, key.user, 0 if key.thread is None else key.thread))):
        raise BadInputError(f"the ids of a conversation are whole numbers of 64 bits: got {key}")
    return (
        key.bot,
        key.chat,
        key.user,
        _NO_THREAD if key.thread is None else key.thread,
        _NO_BUSINESS
        if key.business is None
        else _check_text(key.business, "the business connection of a conversation"),
        _check_text(key.destiny, "the destiny of a conversation"),
    )


def _is_id(number: object) -> bool:
    return isinstance(number, int) and -_ID_BOUND <= number < _ID_BOUND


def _check_text(text: object, what: str) -> str:
    """Return a plain text, also for an enum."""
    try:
        return str.encode(text).decode()  # type: ignore[arg-type]  # anything but a text raises
    except (TypeError, UnicodeEncodeError):
        raise BadInputError(f"{what} is a text, not {text!r}") from None


def _data_of(tx: Transaction, row: RowKey) -> bytes | None:
    found = tx.execute(f"SELECT data FROM conversations WHERE {_THIS_ROW}", row).fetchone()
    return None if found is None else found[0]


def _write(tx: Transaction, row: RowKey, column: Literal["state", "data"], value: object, now: float) -> None:
    """Set a column. A row whose two columns are both empty is deleted."""
    if value is not None:
        tx.execute(
            f"INSERT INTO conversations ({_KEY}, {column}, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            f" ON CONFLICT ({_KEY}) DO UPDATE"
            f" SET {column} = excluded.{column}, changed_at = excluded.changed_at",
            (*row, value, now),
        )
        return
    other = "data" if column == "state" else "state"
    delete = f"DELETE FROM conversations WHERE {_THIS_ROW} AND {other} IS NULL"
    if not tx.execute(delete, row).rowcount:
        clear = f"UPDATE conversations SET {column} = NULL, changed_at = ? WHERE {_THIS_ROW}"
        tx.execute(clear, (now, *row))


def _set_aside(tx: Transaction, row: RowKey, error: UnreadableDataError) -> None:
    """Keep a conversation that cannot be decoded under another destiny."""
    text = "the conversation of user %s in chat %s cannot be read and is set aside: %s"
    log.error(text, row[2], row[1], error)
    aside = f"UPDATE OR REPLACE conversations SET destiny = ? WHERE {_THIS_ROW}"
    tx.execute(aside, (UNREADABLE_DESTINY + row[-1], *row))


def _page(tx: Transaction, select: str, values: Sequence[Any]) -> list[Any]:
    return tx.execute(select, values).fetchall()


def _conversation_in(row: tuple[Any, ...]) -> Conversation | None:
    """Return None for one that cannot be decoded. It is set aside when its user writes."""
    number, bot, chat, user, thread, business, destiny, state, data, changed_at = row
    thread = None if thread == _NO_THREAD else thread
    business = None if business == _NO_BUSINESS else business
    key = ConversationKey(bot, chat, user, thread, business, destiny)
    try:
        return Conversation(number, key, state, unpack_data(data), changed_at)
    except UnreadableDataError:
        return None
