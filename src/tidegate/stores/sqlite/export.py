"""Export of waiting messages to another store: in order, in chunks, held back until the other store has them.

Only for a process that holds the sender's lock. Messages on their way are parked with a reason of their own:
whatever happens to the move, they are not sent from here.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.model import BotId, ChatId, Message, State, TicketId
from tidegate.pacing.rules import Family
from tidegate.stores.message_codec import UnreadableBody, read_body
from tidegate.stores.sqlite.file import Transaction
from tidegate.stores.sqlite.message_rows import PRIORITIES, Buried, bury_unreadable, chat_now, retire
from tidegate.stores.sqlite.settle_sql import AnsweredCall

MESSAGES_PER_CHUNK: Final = 500  # messages
BYTES_PER_CHUNK: Final = 4_000_000
MOVING: Final = "moving"  # the reason of what is on its way
_OURS: Final = f"(settled_at IS NULL OR (state = 'parked' AND reason = '{MOVING}'))"
_AMONG: Final = "id IN (SELECT value FROM json_each(?))"


class LeftBehind(msgspec.Struct, frozen=True):
    """Numbers of what is in the file beside messages that wait. `dedup_keys`: of ended messages."""

    dead: int = 0
    parked: int = 0
    ended: int = 0
    dedup_keys: int = 0
    limits: int = 0
    parked_updates: int = 0
    conversations: int = 0


class EndedRow(NamedTuple):
    """A message that has ended, or is a dead letter, as it is stored."""

    seq: int
    id: TicketId
    bot: BotId
    chat_id: ChatId
    family: Family
    priority: int
    urgent: int
    cost: int
    paid: int
    created_at: float
    state: State
    attempts: int
    crashes: int
    dedup_key: str | None
    dedup_until: float | None
    settled_at: float
    forget_at: float | None
    reason: str | None
    description: str | None
    result: bytes | None
    body: bytes


def ended_chunk(tx: Transaction, now: float) -> list[EndedRow]:
    """Some of the messages that have ended and are not forgotten yet, those that ended first."""
    rows = tx.execute(
        f"SELECT {', '.join(EndedRow._fields)} FROM messages WHERE NOT {_OURS}"
        " AND (forget_at IS NULL OR forget_at > ?) ORDER BY settled_at, seq LIMIT ?",
        (now, MESSAGES_PER_CHUNK),
    )
    found, size = list[EndedRow](), 0
    for row in rows:
        found.append(EndedRow(*row))
        size += len(found[-1].body)
        if size > BYTES_PER_CHUNK:
            break
    return found


def remove_ended(tx: Transaction, rows: Sequence[EndedRow]) -> None:
    """Remove messages that the other store has."""
    tx.executemany("DELETE FROM messages WHERE seq = ?", [(row.seq,) for row in rows])
    for row in rows:
        if row.forget_at is None:
            tx.count(row.bot, row.state, -1)
    retire(tx, [row.seq for row in rows])


def number_waiting(tx: Transaction, now: float) -> int:
    """Write the order in which waiting messages would go into a temporary table; returns how many.

    That is the order of arrival; a message with `not_before` stands where it became due.
    """
    tx.execute("DROP TABLE IF EXISTS temp.moving")
    tx.execute("CREATE TEMP TABLE moving (n INTEGER PRIMARY KEY, seq INTEGER NOT NULL)")
    tx.execute(
        "INSERT INTO moving (seq) SELECT seq FROM (SELECT seq, not_before,"
        " max(min(created_at, ifnull(not_before, created_at))) OVER (ORDER BY seq) AS read_up_to"
        f" FROM messages WHERE {_OURS})"
        " ORDER BY CASE WHEN not_before <= ? THEN max(not_before, read_up_to) ELSE read_up_to END, seq",
        (now,),
    )
    count: int = tx.execute("SELECT count(*) FROM moving").fetchone()[0]
    return count


def hold_chunk(tx: Transaction, after: int, now: float) -> tuple[int, list[Message], list[Buried]]:
    """Hold back the next messages after this place; returns the last place, and the messages.

    Those that cannot be decoded are settled as dead: they stay in the file, and are returned last.
    They are ready to be put: with the present id of their chat, and the rest of their dedup lifetime.
    """
    last = _end_of_chunk(tx, after)
    rows = tx.execute(
        "SELECT seq, id, bot, chat_id, priority, retry_at IS NOT NULL, state, not_before, dedup_until, body"
        f" FROM moving JOIN messages USING (seq) WHERE n > ? AND n <= ? AND {_OURS} ORDER BY n",
        (after, last),
    ).fetchall()
    messages = []
    unreadable: dict[int, UnreadableBody] = {}
    for seq, ticket, bot, chat_id, priority, retrying, state, not_before, dedup_until, body in rows:
        message = read_body(body, ticket, bot, chat_id)
        if isinstance(message, UnreadableBody):
            unreadable[seq] = message
            continue
        messages.append(_as_put(tx, message, not_before, dedup_until, now))
        if state != State.PARKED:
            _hold(tx, message.id, now)
            tx.count(bot, "retry" if retrying else PRIORITIES[priority], -1)
            tx.count(bot, State.PARKED)
    return last, messages, bury_unreadable(tx, unreadable, now)


def _end_of_chunk(tx: Transaction, after: int) -> int:
    """The last place of a chunk, bounded in messages and bytes: messages may hold files."""
    size = 0
    for n, length in tx.execute(
        "SELECT n, length(body) FROM moving JOIN messages USING (seq) WHERE n > ? ORDER BY n LIMIT ?",
        (after, MESSAGES_PER_CHUNK),
    ):
        size, after = size + length, n
        if size > BYTES_PER_CHUNK:
            break
    return after


def _hold(tx: Transaction, ticket: TicketId, now: float) -> None:
    tx.execute(
        "UPDATE messages SET state = 'parked', reason = ?, settled_at = ?, retry_at = NULL,"
        " description = 'it is being moved to another store: run tidegate move again' WHERE id = ?",
        (MOVING, now, ticket),
    )


def _as_put(
    tx: Transaction, message: Message, not_before: float | None, dedup_until: float | None, now: float
) -> Message:
    changes: dict[str, Any] = {}
    if not_before != message.not_before:  # it was replayed, or took the place of another
        changes["not_before"] = not_before
    if dedup_until is not None:
        changes["dedup_for"] = max(0.0, dedup_until - now)
    chat = chat_now(tx, message.bot, message.chat_id)
    if chat != message.chat_id:
        changes["chat_id"] = chat
    return msgspec.structs.replace(message, **changes) if changes else message


def remove_moved(tx: Transaction, ids: Iterable[TicketId]) -> None:
    """Remove messages that the other store has."""
    rows = tx.execute(
        f"DELETE FROM messages WHERE {_AMONG} AND state = 'parked' AND reason = ? RETURNING bot, seq",
        (json.dumps(list(ids)), MOVING),
    ).fetchall()
    for bot, _ in rows:
        tx.count(bot, State.PARKED, -1)
    retire(tx, [seq for _, seq in rows])


def release_held(tx: Transaction, ids: Iterable[TicketId]) -> None:
    """Queue held messages again in their places: the other store has surely not taken them."""
    rows = tx.execute(
        "UPDATE messages AS held SET state = 'queued', reason = NULL, description = NULL, settled_at = NULL,"
        # A newer one with the same key may have come meanwhile.
        " coalesce_key = iif(EXISTS (SELECT 1 FROM messages AS newer WHERE newer.bot = held.bot"
        " AND newer.chat_id = held.chat_id AND newer.coalesce_key = held.coalesce_key"
        " AND newer.settled_at IS NULL), NULL, coalesce_key)"
        f" WHERE {_AMONG} AND state = 'parked' AND reason = ? RETURNING bot, priority",
        (json.dumps(list(ids)), MOVING),
    ).fetchall()
    for bot, priority in rows:
        tx.count(bot, State.PARKED, -1)
        tx.count(bot, PRIORITIES[priority])


def count_to_move(tx: Transaction) -> tuple[int, int]:
    """Numbers of messages to move: those that wait, and those that an earlier move has held back."""
    held = f"forget_at IS NULL AND settled_at IS NOT NULL AND state = 'parked' AND reason = '{MOVING}'"
    return (
        tx.execute("SELECT count(*) FROM messages WHERE settled_at IS NULL").fetchone()[0],
        tx.execute(f"SELECT count(*) FROM messages WHERE {held}").fetchone()[0],
    )


def left_behind(tx: Transaction, now: float) -> LeftBehind:
    dead, parked, ended, keys = tx.execute(
        "SELECT ifnull(sum(state = 'dead'), 0), ifnull(sum(state = 'parked'), 0),"
        " ifnull(sum(forget_at > ?), 0), ifnull(sum(dedup_key IS NOT NULL AND dedup_until > ?), 0)"
        f" FROM messages WHERE NOT {_OURS}",
        (now, now),
    ).fetchone()
    others = [
        tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("limits", "parked", "conversations")
    ]
    return LeftBehind(dead, parked, ended, keys, *others)


def recent_calls(tx: Transaction) -> list[AnsweredCall]:
    """Recent calls, whose slots still cool."""
    rows = tx.execute("SELECT body FROM calls ORDER BY n")
    return [call for [body] in rows for call in msgspec.msgpack.decode(body, type=list[AnsweredCall])]


def ended_cleanly(tx: Transaction) -> bool:
    """Return whether the last sender has written every call that it made."""
    row = tx.execute("SELECT value FROM facts WHERE name = 'clean'").fetchone()
    return row is None or bool(row[0])
