"""What other processes did, for the sender to follow within a tenth of a second."""

import json
from typing import Any

import msgspec

from tidegate.model import TicketId, Why
from tidegate.outbox.sqlite.file import Transaction
from tidegate.outbox.sqlite.rows import PLACE, Place

Entry = tuple[str, Any]  # a verb, and what it is about


def take(tx: Transaction) -> list[Entry]:
    """Everything noted since the last time, in order; it is followed once this is on disk."""
    rows = tx.execute("SELECT n, verb, body FROM journal ORDER BY n").fetchall()
    if rows:
        tx.execute("DELETE FROM journal WHERE n <= ?", (rows[-1][0],))
    return [(verb, _read(tx, n, verb, msgspec.msgpack.decode(body))) for n, verb, body in rows]


def _read(tx: Transaction, n: int, verb: str, body: Any) -> Any:  # noqa: ANN401  (by verb)
    if verb == "put":
        found = tx.execute(
            f"SELECT {PLACE} FROM messages WHERE seq IN (SELECT value FROM json_each(?))"
            " AND state IN ('queued', 'retry') ORDER BY seq",
            (json.dumps(body),),
        )
        return [Place(*row) for row in found]
    return (n, body) if verb == "why" else body


def ask_why(tx: Transaction, ticket: TicketId) -> int:
    """Ask the sender; returns the number of the question."""
    cursor = tx.execute(
        "INSERT INTO journal (verb, body) VALUES ('why', ?)", (msgspec.msgpack.encode(ticket),)
    )
    assert cursor.lastrowid is not None  # noqa: S101  (it was inserted)
    return cursor.lastrowid


def answer_why(tx: Transaction, question: int, why: Why | None) -> None:
    tx.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (question, msgspec.msgpack.encode(why)))


def take_answer(tx: Transaction, question: int) -> Why | None:
    row = tx.execute("DELETE FROM answers WHERE n = ? RETURNING body", (question,)).fetchone()
    return None if row is None else msgspec.msgpack.decode(row[0], type=Why | None)
