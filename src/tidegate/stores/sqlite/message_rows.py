"""Messages as rows of the file: columns, numbers and queries."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from tidegate.model import BotId, ChatId, Message, Priority, Record, State, TicketId
from tidegate.outbox.flood_control import WHOLE_BOT
from tidegate.outbox.transitions import DEAD_LETTER_STATES, UNREADABLE
from tidegate.pacing.rules import Family, cost_of, family_of
from tidegate.stores.message_codec import (
    UnreadableBody,
    decode_result,
    encode_result,
    read_body,
    report_unreadable,
    stand_in,
)
from tidegate.stores.sqlite.file import Transaction

PRIORITIES: Final = tuple(Priority)
Buried = tuple[Record, UnreadableBody]  # a message that cannot be decoded, as it is after it was settled


class WaitingRow(NamedTuple):
    """The columns of a waiting message that the schedule needs: the first ones of its row."""

    seq: int
    bot: BotId
    chat_id: ChatId
    family: Family
    priority: int
    urgent: int
    cost: int
    paid: int
    created_at: float
    not_before: float | None
    expires_at: float | None
    retry_at: float | None
    attempts: int
    crashes: int


WAITING_COLUMNS: Final = ", ".join(WaitingRow._fields)
RECORD_COLUMNS: Final = (
    "id, bot, chat_id, priority, body,"
    " state, created_at, attempts, crashes, settled_at, reason, description, result, expires_at"
)


def waiting_row(message: Message, seq: int, now: float) -> WaitingRow:
    method, params = message.method, message.params
    family = family_of(method)
    # `_make` is in C: this is done for every message.
    return WaitingRow._make(
        (
            seq,
            message.bot,
            message.chat_id,
            family,
            PRIORITIES.index(message.priority),
            1 if message.urgent else 0,
            0 if family == "free" else cost_of(method, params),
            1 if params.get("allow_paid_broadcast") else 0,
            now,
            message.not_before,
            message.expires_at,
            None,
            0,
            0,
        )
    )


def record_of(row: tuple[Any, ...], now: float) -> Record:
    """A record from `RECORD_COLUMNS`. One past its deadline has expired, even if that is not written.

    If its body cannot be decoded, it is shown with what its row knows, in the state that is written there.
    """
    ticket, bot, chat_id, priority, body, state, created_at, attempts, crashes = row[:9]
    settled_at, reason, description, result, expires_at = row[9:]
    if expires_at is not None and expires_at <= now and state in {State.QUEUED, State.RETRY}:
        state, settled_at = State.EXPIRED, expires_at
    message, unreadable = read_body(body, ticket, bot, chat_id), None
    if isinstance(message, UnreadableBody):
        description, unreadable = description or message.description, bytes(body)
        message = stand_in(ticket, bot, chat_id, PRIORITIES[priority])
    return Record(
        message=message,
        state=State(state),
        created_at=created_at,
        attempts=attempts,
        crashes=crashes,
        settled_at=settled_at,
        reason=reason,
        description=description,
        result=decode_result(result),
        body=unreadable,
    )


def pack_result(result: object) -> bytearray | None:
    raw = encode_result(result)
    return None if raw is None else bytearray(raw)  # which sqlite3 binds faster than bytes


def bury_unreadable(tx: Transaction, bodies: Mapping[int, UnreadableBody], now: float) -> list[Buried]:
    """Settle messages as dead whose bodies cannot be decoded; the bodies stay in their rows.

    Those that have ended by now stay as they are, except parked ones. Log the others with `report_buried`
    once this is on disk.
    """
    buried: list[Buried] = []
    for seq, body in bodies.items():
        was = tx.execute(
            "SELECT state, retry_at IS NOT NULL FROM messages"
            " WHERE seq = ? AND (settled_at IS NULL OR state = 'parked')",
            (seq,),
        ).fetchone()
        if was is None:
            continue
        row = tx.execute(
            "UPDATE messages SET state = 'dead', settled_at = ?, retry_at = NULL, reason = ?, description = ?"
            f" WHERE seq = ? RETURNING {RECORD_COLUMNS}",
            (now, UNREADABLE, body.description, seq),
        ).fetchone()
        record = record_of(row, now)
        state, retrying = was
        waited_as = "retry" if retrying else record.message.priority
        tx.count(record.message.bot, state if state in {State.SENDING, State.PARKED} else waited_as, -1)
        tx.count(record.message.bot, State.DEAD)
        buried.append((record, body))
    return buried


def report_buried(buried: Iterable[Buried]) -> None:
    for record, body in buried:
        message = record.message
        report_unreadable(message.id, message.bot, message.chat_id, body)


def next_number(tx: Transaction) -> int:
    number: int = tx.execute(
        "SELECT max(ifnull((SELECT max(seq) FROM messages), 0),"
        " ifnull((SELECT value FROM facts WHERE name = 'last_seq'), 0)) + 1"
    ).fetchone()[0]
    return number


def retire(tx: Transaction, numbers: Collection[int]) -> None:
    """Note the numbers of rows that are removed."""
    if numbers:
        tx.execute(
            "INSERT INTO facts VALUES ('last_seq', ?)"
            " ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
            (max(numbers),),
        )


def find(tx: Transaction, ticket: TicketId, now: float) -> Record | None:
    row = tx.execute(
        f"SELECT {RECORD_COLUMNS} FROM messages WHERE id = ? AND (forget_at IS NULL OR forget_at > ?)",
        (ticket, now),
    ).fetchone()
    return None if row is None else record_of(row, now)


def find_by_key(tx: Transaction, bot: BotId, dedup_key: str, now: float) -> TicketId | None:
    row = tx.execute(
        "SELECT id FROM messages WHERE bot = ? AND dedup_key = ? AND (forget_at IS NULL OR forget_at > ?)",
        (bot, dedup_key, now),
    ).fetchone()
    return None if row is None else TicketId(row[0])


def ids(tx: Transaction, start: str, end: str, now: float, limit: int) -> list[TicketId]:
    rows = tx.execute(
        "SELECT id FROM messages WHERE id >= ? AND id < ? AND (? = '' OR substr(id, -length(?)) = ?)"
        " AND (forget_at IS NULL OR forget_at > ?) ORDER BY id LIMIT ?",
        (start, start + "\U0010ffff", end, end, end, now, limit),
    )
    return [ticket for [ticket] in rows]


def records(
    tx: Transaction,
    now: float,
    *,
    bot: BotId | None,
    chat_id: ChatId | None,
    states: frozenset[State],
    reason: str | None,
    before: float | None,
    limit: int,
) -> list[Record]:
    asked: list[Any] = [now, bot, bot, chat_id, chat_id, reason, reason, before, before]
    # Written out, so that SQLite can use the index of dead letters.
    among = ", ".join(f"'{state}'" for state in sorted(states))
    letters = "settled_at IS NOT NULL AND forget_at IS NULL AND" if states <= DEAD_LETTER_STATES else ""
    order = "settled_at, seq" if letters else "seq"
    rows = tx.execute(
        f"SELECT {RECORD_COLUMNS} FROM messages WHERE {letters} state IN ({among})"
        " AND (forget_at IS NULL OR forget_at > ?)"
        " AND (? IS NULL OR bot = ?) AND (? IS NULL OR chat_id = ?) AND (? IS NULL OR reason = ?)"
        f" AND (? IS NULL OR ifnull(settled_at, created_at) < ?) ORDER BY {order} LIMIT ?",
        [*asked, limit],
    )
    return [record_of(row, now) for row in rows]


def tally(tx: Transaction, bot: BotId, prefix: str) -> dict[tuple[State, str | None], int]:
    rows = tx.execute(
        "SELECT state, reason, count(*) FROM messages WHERE bot = ? AND dedup_key >= ? AND dedup_key < ?"
        " GROUP BY state, reason",
        (bot, prefix, prefix + "\U0010ffff"),
    )
    return {(State(state), reason): count for state, reason, count in rows}


def chat_now(tx: Transaction, bot: BotId, chat: ChatId) -> ChatId:
    """The present id of a chat."""
    while True:
        row = tx.execute("SELECT new FROM aliases WHERE bot = ? AND old = ?", (bot, chat)).fetchone()
        if row is None:
            return chat
        chat = row[0]


def names_of(tx: Transaction, chat: ChatId) -> list[ChatId]:
    """All names of a chat, for any bot."""
    names = [chat]
    for name in names:
        found = tx.execute(
            "SELECT old FROM aliases WHERE new = ? UNION SELECT new FROM aliases WHERE old = ?", (name, name)
        )
        names += [other for [other] in found if other not in names]
    return names


def pauses(tx: Transaction) -> list[tuple[BotId, ChatId | None]]:
    rows = tx.execute("SELECT bot, chat_id FROM pauses ORDER BY bot, chat_id")
    return [(bot, None if chat == WHOLE_BOT else chat) for bot, chat in rows]


def is_paused(tx: Transaction, bot: BotId, chat: ChatId) -> bool:
    chats = (WHOLE_BOT, chat_now(tx, bot, chat))
    return (
        tx.execute("SELECT 1 FROM pauses WHERE bot = ? AND chat_id IN (?, ?)", (bot, *chats)).fetchone()
        is not None
    )


def closures(tx: Transaction, now: float) -> list[tuple[BotId, ChatId | None, float, str]]:
    """Bots (None) and chats that a 429 has closed, and for how many seconds."""
    found = tx.execute(
        "SELECT bot, chat_id, heard_at + closed_for - ? AS left FROM limits WHERE left > 0", (now,)
    )
    return [(bot, chat or None, left, "") for bot, chat, left in found]
