"""Conversations in the SQLite file. One with neither state nor data has no row."""

from typing import Any, Final, Literal, NamedTuple

from aiogram.fsm.state import State
from aiogram.fsm.storage.base import StateType, StorageKey

from tidegate.errors import BadInputError
from tidegate.inbound.conversations import pack_data, unpack_data
from tidegate.stores.sqlite.file import Transaction

RowKey = tuple[int, int, int, int | str, int | str, str]

_MOST: Final = 2**63
_KEY: Final = "bot, chat, user, thread, business, destiny"
_HERE: Final = "bot = ? AND chat = ? AND user = ? AND thread = ? AND business = ? AND destiny = ?"
_NO_THREAD: Final = ""  # as the tables say: whatever is none is of another kind than what is one
_NO_BUSINESS: Final = 0


class Conversation(NamedTuple):
    """`number` rises with the time at which it began; `changed_at` is in epoch seconds."""

    number: int
    key: StorageKey
    state: str | None
    data: dict[str, Any]
    changed_at: float


def row_key(key: StorageKey) -> RowKey:
    """Two keys that differ in anything have two places. Raises BadInputError."""
    thread, business = key.thread_id, key.business_connection_id
    if not all(map(_is_id, (key.bot_id, key.chat_id, key.user_id, 0 if thread is None else thread))):
        raise BadInputError(f"the ids of a conversation are whole numbers of 64 bits: got {key}")
    return (
        key.bot_id,
        key.chat_id,
        key.user_id,
        _NO_THREAD if thread is None else thread,
        _NO_BUSINESS
        if business is None
        else _check_text(business, "the business connection of a conversation"),
        _check_text(key.destiny, "the destiny of a conversation"),
    )


def state_name(state: StateType) -> str | None:
    """Raises BadInputError."""
    name = state.state if isinstance(state, State) else state
    return None if name is None else _check_text(name, "the state of a conversation")


def _is_id(number: object) -> bool:
    return isinstance(number, int) and -_MOST <= number < _MOST


def _check_text(text: object, what: str) -> str:
    """A plain one, also of an enum."""
    try:
        return str.encode(text).decode()  # type: ignore[arg-type]  # what is no text is named below
    except (TypeError, UnicodeEncodeError):
        raise BadInputError(f"{what} is a text, not {text!r}") from None


# --- steps ---


def look_up(tx: Transaction, place: RowKey, what: Literal["state", "data"]) -> Any:  # noqa: ANN401  (a column)
    row = tx.execute(f"SELECT {what} FROM conversations WHERE {_HERE}", place).fetchone()
    return None if row is None else row[0]


def write_state(tx: Transaction, place: RowKey, state: str | None, now: float) -> None:
    _write(tx, place, ("state", "data"), state, now)


def write_data(tx: Transaction, place: RowKey, data: bytes | None, now: float) -> None:
    _write(tx, place, ("data", "state"), data, now)


def add_data(tx: Transaction, place: RowKey, more: bytes, now: float) -> dict[str, Any]:
    """All that it remembers then."""
    data = unpack_data(look_up(tx, place, "data")) | unpack_data(more)
    write_data(tx, place, pack_data(data), now)
    return data


def _write(tx: Transaction, place: RowKey, columns: tuple[str, str], value: object, now: float) -> None:
    """Into the first column; the second may hold something or not."""
    this, other = columns
    if value is not None:
        tx.execute(
            f"INSERT INTO conversations ({_KEY}, {this}, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            f" ON CONFLICT ({_KEY}) DO UPDATE SET {this} = excluded.{this}, changed_at = excluded.changed_at",
            (*place, value, now),
        )
        return
    delete = f"DELETE FROM conversations WHERE {_HERE} AND {other} IS NULL"
    if not tx.execute(delete, place).rowcount:
        clear = f"UPDATE conversations SET {this} = NULL, changed_at = ? WHERE {_HERE}"
        tx.execute(clear, (now, *place))


def page(
    tx: Transaction, destiny: str | None, state: str | None, after: int, limit: int
) -> list[tuple[Any, ...]]:
    # The plus keeps SQLite from sorting all of a destiny for each page.
    chosen = {"n > ?": after, "+destiny = ?": destiny, "state = ?": state}
    given = {condition: value for condition, value in chosen.items() if value is not None}
    return tx.execute(
        f"SELECT n, {_KEY}, state, data, changed_at FROM conversations"
        f" WHERE {' AND '.join(given)} ORDER BY n LIMIT ?",
        (*given.values(), limit),
    ).fetchall()


def conversation_in(row: tuple[Any, ...]) -> Conversation:
    number, bot, chat, user, thread, business, destiny, state, data, changed_at = row
    thread = None if thread == _NO_THREAD else thread
    business = None if business == _NO_BUSINESS else business
    key = StorageKey(bot, chat, user, thread, business, destiny)
    return Conversation(number, key, state, unpack_data(data), changed_at)


def forget_old(tx: Transaction, before: float, destiny: str, limit: int) -> int:
    old = "SELECT n FROM conversations WHERE destiny = ? AND changed_at < ? ORDER BY changed_at LIMIT ?"
    delete = f"DELETE FROM conversations WHERE n IN ({old})"
    return tx.execute(delete, (destiny, before, limit)).rowcount
