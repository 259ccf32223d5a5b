"""How messages come into the file: put, and put again."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from tidegate.model import Message, State, Ticket, TicketId
from tidegate.outbox.sqlite.file import Transaction
from tidegate.outbox.sqlite.rows import PLACE, PRIORITIES, Place, pack, place_of
from tidegate.pacing.rules import Family

COLUMNS: Final = f"{PLACE}, state, id, dedup_key, dedup_until, coalesce_key, body"
INSERT: Final = f"INSERT INTO messages ({COLUMNS}) VALUES ({', '.join('?' * (len(Place._fields) + 6))})"

KindOf = Callable[[Family], str]


class Put(msgspec.Struct, gc=False):
    """What became of a put: the tickets in order, those that came, and those that they replaced."""

    tickets: list[Ticket]
    placed: list[Place]
    in_place: set[int]  # of those placed: they took the place of another one
    replaced: list[tuple[int, TicketId]]  # others that left their places: where from, and who


def put(tx: Transaction, messages: Sequence[Message], now: float, kind: KindOf, keep: float) -> Put:
    """All or none. Order of arrival is the order in the file."""
    if any(message.dedup_key is not None or message.coalesce_key is not None for message in messages):
        done = Put([], [], set(), [])
        for message in messages:
            _put_one(tx, message, now, kind, keep, done)
    else:
        done = _put_plain(tx, messages, now)
    arrived = Counter((place.bot, PRIORITIES[place.priority]) for place in done.placed)
    for (bot, priority), count in arrived.items():
        tx.count(bot, priority, count)
    return done


def _put_plain(tx: Transaction, messages: Sequence[Message], now: float) -> Put:
    first = _next_seq(tx)
    places = [place_of(message, first + number, now) for number, message in enumerate(messages)]
    rows = [_row(place, message, now) for place, message in zip(places, messages, strict=True)]
    stored = tx.executemany(f"{INSERT} ON CONFLICT (id) DO NOTHING", rows).rowcount
    tickets = [Ticket(message.id) for message in messages]
    if stored < len(messages):  # told once already; whoever asks again did not hear the answer
        known = [_seq_of(tx, message.id) for message in messages]
        fresh = [seq == place.seq for seq, place in zip(known, places, strict=True)]
        tickets = [Ticket(ticket.id, fresh=new) for ticket, new in zip(tickets, fresh, strict=True)]
        places = [place for place, new in zip(places, fresh, strict=True) if new]
    return Put(tickets, places, set(), [])


def _put_one(  # noqa: PLR0917
    tx: Transaction, message: Message, now: float, kind: KindOf, keep: float, done: Put
) -> None:
    first = _first_with_its_key(tx, message, now)
    if first is not None:
        done.tickets.append(Ticket(first, fresh=False))
        return
    place = place_of(message, _next_seq(tx), now)
    older = _waiting_with_its_key(tx, message) if message.coalesce_key is not None else None
    if older is not None:
        place = _replace(tx, older, place, kind, keep, done)
    tx.execute(INSERT, _row(place, message, now))
    done.placed.append(place)
    done.tickets.append(Ticket(message.id))


def _first_with_its_key(tx: Transaction, message: Message, now: float) -> TicketId | None:
    """The ticket of the same message, or of one with its dedup key, which lives."""
    if _seq_of(tx, message.id) is not None:
        return message.id
    if message.dedup_key is None:
        return None
    found = tx.execute(
        "SELECT id, dedup_until, seq FROM messages WHERE bot = ? AND dedup_key = ?",
        (message.bot, message.dedup_key),
    ).fetchone()
    if found is None:
        return None
    first, until, seq = found
    if now < until:
        return TicketId(first)
    tx.execute("UPDATE messages SET dedup_key = NULL WHERE seq = ?", (seq,))
    return None


def _waiting_with_its_key(tx: Transaction, message: Message) -> Place | None:
    """The older message that this one replaces. One that is being sent is not replaced, and loses the key."""
    key = (message.bot, message.chat_id, message.coalesce_key)
    where = "bot = ? AND chat_id = ? AND coalesce_key = ? AND settled_at IS NULL"
    row = tx.execute(f"SELECT {PLACE}, state FROM messages WHERE {where}", key).fetchone()
    if row is None:
        return None
    *place, state = row
    if state == State.SENDING:
        tx.execute(f"UPDATE messages SET coalesce_key = NULL WHERE {where}", key)
        return None
    return Place(*place)


def _replace(  # noqa: PLR0917
    tx: Transaction, older: Place, newer: Place, kind: KindOf, keep: float, done: Put
) -> Place:
    """There is a place to keep if both stand in the same line, and do not wait for their time to come."""
    now = newer.created_at
    stays = (
        (newer.not_before or 0.0) <= now
        and (older.not_before or 0.0) <= now
        and (kind(older.family), older.priority, older.urgent, older.paid)
        == (kind(newer.family), newer.priority, newer.urgent, newer.paid)
    )
    [ticket] = tx.execute("SELECT id FROM messages WHERE seq = ?", (older.seq,)).fetchone()
    # The older one moves away from the number that says where in line it stood.
    aside = newer.seq if stays else older.seq
    tx.execute(
        "UPDATE messages SET seq = ?, state = 'replaced', retry_at = NULL, settled_at = ?,"
        " forget_at = max(?, ifnull(dedup_until, 0)) WHERE seq = ?",
        (aside, now, now + keep, older.seq),
    )
    tx.count(older.bot, "retry" if older.retry_at is not None else PRIORITIES[older.priority], -1)
    tx.count(older.bot, State.REPLACED)
    done.replaced.append((older.seq, ticket))
    if stays:
        done.in_place.add(older.seq)
        return newer._replace(seq=older.seq)
    return newer


def replay(tx: Transaction, ids: Iterable[TicketId]) -> list[Place]:
    """Dead and parked messages to the ends of their lines."""
    placed = []
    for ticket in dict.fromkeys(ids):
        letter = tx.execute(
            "SELECT bot, state FROM messages WHERE id = ? AND state IN ('dead', 'parked')", (ticket,)
        ).fetchone()
        if letter is None:
            continue
        row = tx.execute(
            "UPDATE messages SET seq = (SELECT max(seq) + 1 FROM messages), state = 'queued', attempts = 0,"
            " crashes = 0, not_before = NULL, retry_at = NULL, settled_at = NULL, forget_at = NULL,"
            " reason = NULL, description = NULL, coalesce_key = NULL"
            f" WHERE id = ? RETURNING {PLACE}",
            (ticket,),
        ).fetchone()
        placed.append(Place(*row))
        bot, state = letter
        tx.count(bot, state, -1)
        tx.count(bot, PRIORITIES[placed[-1].priority])
    return placed


def _next_seq(tx: Transaction) -> int:
    seq: int = tx.execute("SELECT ifnull(max(seq), 0) + 1 FROM messages").fetchone()[0]
    return seq


def _seq_of(tx: Transaction, ticket: TicketId) -> int | None:
    row = tx.execute("SELECT seq FROM messages WHERE id = ?", (ticket,)).fetchone()
    return None if row is None else row[0]


def _row(place: Place, message: Message, now: float) -> tuple[Any, ...]:
    until = now + message.dedup_for if message.dedup_key is not None else None
    return (*place, "queued", message.id, message.dedup_key, until, message.coalesce_key, pack(message))
