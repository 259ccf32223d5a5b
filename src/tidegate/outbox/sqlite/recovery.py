"""How a process becomes the sender: what a crash left behind is settled, what is stored is read."""

from typing import Any, Final

import msgspec

from tidegate.model import State
from tidegate.outbox.carryover import Limit
from tidegate.outbox.packing import unpack
from tidegate.outbox.sqlite.file import Transaction
from tidegate.outbox.sqlite.rows import PLACE, RECORD, Place, record_of
from tidegate.outbox.sqlite.settling import Call, called
from tidegate.outbox.transitions import after_crash
from tidegate.pacing.learned import Kept

CHUNK: Final = 10_000  # messages read in one step


class Before(msgspec.Struct, gc=False):
    """What there is to remember, with times of the wall clock."""

    clean: bool  # whether the last sender said that it ended
    aliases: list[Any]
    calls: list[Call]
    limits: list[tuple[Limit, float]]
    pauses: list[Any]


class Loaded(msgspec.Struct, gc=False):
    """Some of the messages that wait; and those that were being sent when their sender died."""

    places: list[Place]
    last: int
    crashed: list[Any]  # the columns of records, where that was their end
    calls: list[Call]  # those that may have been made


def take_over(tx: Transaction, now: float) -> Before:
    """From now on this process is the sender; what others noted for it is in what will be read."""
    clean = tx.execute("SELECT value FROM facts WHERE name = 'clean'").fetchone()
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('clean', 0)")
    tx.execute("DELETE FROM journal")
    tx.execute("DELETE FROM answers")
    limits = tx.execute("SELECT bot, chat_id, kind, closed_for, learned, heard_at FROM limits")
    return Before(
        clean=clean is None or bool(clean[0]),
        aliases=tx.execute("SELECT bot, old, new FROM aliases ORDER BY n").fetchall(),
        calls=_calls(tx, now),
        limits=[
            (Limit(bot, chat, kind, closed_for, _learned(learned)), heard_at)
            for bot, chat, kind, closed_for, learned, heard_at in limits
        ],
        pauses=tx.execute("SELECT bot, chat_id FROM pauses").fetchall(),
    )


def _calls(tx: Transaction, now: float) -> list[Call]:
    """Those of the future were in flight, or the clock was set back: they count as made now, and once."""
    calls: list[Call] = []
    for n, at, body in tx.execute("SELECT n, at, body FROM calls ORDER BY n").fetchall():
        found = msgspec.msgpack.decode(body, type=list[Call])
        if at > now:
            found = [msgspec.structs.replace(call, at=min(call.at, now)) for call in found]
            tx.execute("DELETE FROM calls WHERE n = ?", (n,))
            called(tx, found)
        calls += found
    return calls


def hand_over(tx: Transaction) -> None:
    """This process was the sender, and everything it did is written."""
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('clean', 1)")


def load(tx: Transaction, after: int, now: float, kinds: dict[str, str]) -> Loaded:
    """The next messages that wait. What was being sent may have arrived: each decides what that means."""
    rows = tx.execute(
        f"SELECT {PLACE}, state FROM messages WHERE settled_at IS NULL AND seq > ? ORDER BY seq LIMIT ?",
        (after, CHUNK),
    ).fetchall()
    loaded = Loaded([], rows[-1][0] if rows else after, [], [])
    for row in rows:
        place: Place | None = Place._make(row[:-1])
        if row[-1] == State.SENDING:
            place = _crash(tx, Place._make(row[:-1]), now, kinds, loaded)
        if place is not None:
            loaded.places.append(place)
    called(tx, loaded.calls)
    return loaded


def _crash(tx: Transaction, place: Place, now: float, kinds: dict[str, str], loaded: Loaded) -> Place | None:
    [body] = tx.execute("SELECT body FROM messages WHERE seq = ?", (place.seq,)).fetchone()
    message, crashes = unpack(body), place.crashes + 1
    step = after_crash(message, place.attempts, crashes)
    waits = step.state == State.QUEUED
    row = tx.execute(
        "UPDATE messages SET state = ?, crashes = ?, reason = ?, description = ?, retry_at = NULL,"
        f" settled_at = ? WHERE seq = ? RETURNING {RECORD}",
        (step.state, crashes, step.reason, step.description, None if waits else now, place.seq),
    ).fetchone()
    kind, paid = kinds[place.family], bool(place.paid)
    loaded.calls.append(Call(now, place.bot, place.chat_id, kind, paid, place.cost))
    tx.count(place.bot, State.SENDING, -1)
    tx.count(place.bot, message.priority if waits else step.state)
    if waits:
        return place._replace(crashes=crashes, retry_at=None)
    loaded.crashed.append(record_of(row, now))
    return None


def _learned(kept: bytes | None) -> Kept | None:
    return None if kept is None else msgspec.msgpack.decode(kept, type=Kept)
