"""What can be asked of the file by any process, sender or not."""

from typing import Any

from tidegate.model import BotId, ChatId, Record, State, TicketId
from tidegate.outbox.carryover import WHOLE_BOT
from tidegate.outbox.sqlite.file import Transaction
from tidegate.outbox.sqlite.rows import RECORD, record_of

LETTERS = frozenset({State.DEAD, State.PARKED})


def find(tx: Transaction, ticket: TicketId, now: float) -> Record | None:
    row = tx.execute(
        f"SELECT {RECORD} FROM messages WHERE id = ? AND (forget_at IS NULL OR forget_at > ?)", (ticket, now)
    ).fetchone()
    return None if row is None else record_of(row, now)


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
    # Named apart, so that the index of letters is used where it can be.
    among = ", ".join(f"'{state}'" for state in sorted(states))
    letters = "settled_at IS NOT NULL AND forget_at IS NULL AND" if states <= LETTERS else ""
    order = "settled_at, seq" if letters else "seq"
    rows = tx.execute(
        f"SELECT {RECORD} FROM messages WHERE {letters} state IN ({among})"
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
    """The id by which a chat goes now."""
    while True:
        row = tx.execute("SELECT new FROM aliases WHERE bot = ? AND old = ?", (bot, chat)).fetchone()
        if row is None:
            return chat
        chat = row[0]


def names_of(tx: Transaction, chat: ChatId) -> list[ChatId]:
    """A chat by all its names, for any bot."""
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
