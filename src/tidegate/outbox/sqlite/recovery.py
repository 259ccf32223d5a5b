"""How a process becomes the sender: what a crash left behind is settled, what is stored is read."""

from typing import Any, Final

import msgspec

from tidegate.model import State
from tidegate.outbox.carryover import Limit
from tidegate.outbox.sqlite.file import Transaction
from tidegate.outbox.sqlite.rows import PLACE, RECORD, Place, record_of, unpack
from tidegate.outbox.sqlite.settling import CALLED
from tidegate.outbox.transitions import after_crash
from tidegate.pacing.learned import Kept

CHUNK: Final = 10_000  # messages read in one step


class Before(msgspec.Struct, gc=False):
    """What there is to remember, with times of the wall clock."""

    clean: bool  # whether the last sender said that it ended
    aliases: list[Any]
    calls: list[Any]
    limits: list[tuple[Limit, float]]
    pauses: list[Any]


class Loaded(msgspec.Struct, gc=False):
    """Some of the messages that wait; and those that were being sent when their sender died."""

    places: list[Place]
    last: int
    crashed: list[Any]  # the columns of records, where that was their end


def take_over(tx: Transaction) -> Before:
    """From now on this process is the sender; what others noted for it is in what will be read."""
    clean = tx.execute("SELECT value FROM facts WHERE name = 'clean'").fetchone()
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('clean', 0)")
    tx.execute("DELETE FROM journal")
    tx.execute("DELETE FROM answers")
    limits = tx.execute("SELECT bot, chat_id, kind, closed_for, learned, heard_at FROM limits")
    return Before(
        clean=clean is None or bool(clean[0]),
        aliases=tx.execute("SELECT bot, old, new FROM aliases ORDER BY n").fetchall(),
        calls=tx.execute("SELECT at, bot, chat_id, kind, paid, cost FROM calls ORDER BY n").fetchall(),
        limits=[
            (Limit(bot, chat, kind, closed_for, _learned(learned)), heard_at)
            for bot, chat, kind, closed_for, learned, heard_at in limits
        ],
        pauses=tx.execute("SELECT bot, chat_id FROM pauses").fetchall(),
    )


def hand_over(tx: Transaction) -> None:
    """This process was the sender, and everything it did is written."""
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('clean', 1)")


def load(tx: Transaction, after: int, now: float, kinds: dict[str, str]) -> Loaded:
    """The next messages that wait. What was being sent may have arrived: each decides what that means."""
    rows = tx.execute(
        f"SELECT {PLACE}, state FROM messages WHERE settled_at IS NULL AND seq > ? ORDER BY seq LIMIT ?",
        (after, CHUNK),
    ).fetchall()
    places, crashed = [], []
    for *columns, state in rows:
        place: Place | None = Place(*columns)
        if state == State.SENDING:
            place, record = _crash(tx, Place(*columns), now, kinds)
            crashed += record
        if place is not None:
            places.append(place)
    return Loaded(places, rows[-1][0] if rows else after, crashed)


def _crash(
    tx: Transaction, place: Place, now: float, kinds: dict[str, str]
) -> tuple[Place | None, list[Any]]:
    [body] = tx.execute("SELECT body FROM messages WHERE seq = ?", (place.seq,)).fetchone()
    message, crashes = unpack(body), place.crashes + 1
    step = after_crash(message, place.attempts, crashes)
    waits = step.state == State.QUEUED
    row = tx.execute(
        "UPDATE messages SET state = ?, crashes = ?, reason = ?, description = ?, retry_at = NULL,"
        f" settled_at = ? WHERE seq = ? RETURNING {RECORD}",
        (step.state, crashes, step.reason, step.description, None if waits else now, place.seq),
    ).fetchone()
    tx.execute(CALLED, (now, place.bot, place.chat_id, kinds[place.family], place.paid, place.cost))
    tx.count(place.bot, State.SENDING, -1)
    tx.count(place.bot, message.priority if waits else step.state)
    return (place._replace(crashes=crashes, retry_at=None), []) if waits else (None, [record_of(row, now)])


def _learned(kept: bytes | None) -> Kept | None:
    return None if kept is None else msgspec.msgpack.decode(kept, type=Kept)
