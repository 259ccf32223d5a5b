"""SQL of put and replay: dedup keys, coalesce keys, and the order of arrival."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from tidegate.model import BotId, Message, Priority, State, Ticket, TicketId
from tidegate.pacing.rules import Family
from tidegate.stores.message_codec import UnreadableBody, pack, read_body
from tidegate.stores.sqlite.file import Transaction
from tidegate.stores.sqlite.message_rows import (
    PRIORITIES,
    WAITING_COLUMNS,
    WaitingRow,
    next_number,
    waiting_row,
)

# Python binds None, bytes and subclasses of str ten times slower than plain values, and releases the GIL for
# each statement: most messages are inserted many at a time, with their common values written out.
ROWS_PER_INSERT: Final = 50
_PLAIN: Final = (
    "INSERT INTO messages (seq, bot, chat_id, family, priority, urgent, cost, paid, created_at, id, body,"
    " state, attempts, crashes) VALUES "
)
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', 0, 0)"
_ONCE: Final = " ON CONFLICT (id) DO NOTHING"
PLAIN_INSERT: Final = _PLAIN + _ROW + _ONCE
PLAIN_INSERT_ROWS: Final = _PLAIN + ", ".join([_ROW] * ROWS_PER_INSERT) + _ONCE
FULL_INSERT: Final = (
    f"INSERT INTO messages ({WAITING_COLUMNS}, state, id, dedup_key, dedup_until, coalesce_key, body)"
    f" VALUES ({', '.join('?' * len(WaitingRow._fields))}, 'queued', ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO NOTHING"
)

KindOf = Callable[[Family], str]


class PutResult(msgspec.Struct, gc=False):
    """The result of a put: tickets in order, the rows that came, and the rows that they replaced."""

    tickets: list[Ticket]
    placed: list[WaitingRow]
    in_place: set[int]  # numbers that a new row took over from another one
    replaced: list[tuple[int, TicketId]]  # rows that left their places: their numbers and tickets

    @property
    def left(self) -> list[int]:
        """Numbers of replaced rows that no new row took over."""
        return [seq for seq, _ in self.replaced if seq not in self.in_place]


def put(tx: Transaction, messages: Sequence[Message], now: float, kind: KindOf, keep: float) -> PutResult:
    """Store messages, all or none. Order of arrival is the order in the file."""
    first_of = _known_keys(tx, messages, now)
    done = PutResult([], [], set(), [])
    fresh: list[tuple[WaitingRow, Message]] = []
    seq = next_number(tx)
    for message in messages:
        if message.dedup_key is not None:
            first = first_of.get((message.bot, message.dedup_key))
            if first is not None and now < first[1]:
                done.tickets.append(Ticket(TicketId(first[0]), fresh=False))
                continue
            first_of[message.bot, message.dedup_key] = (message.id, now + message.dedup_for)
        place = waiting_row(message, seq, now)
        seq += 1
        if message.coalesce_key is not None:
            _insert(tx, fresh, done)  # it may replace one of these
            fresh = []
            if tx.execute("SELECT 1 FROM messages WHERE id = ?", (message.id,)).fetchone():
                done.tickets.append(Ticket(message.id, fresh=False))  # put before: it replaces nothing
                continue
            older = _waiting_with_its_key(tx, message)
            if older is not None:
                place = _replace(tx, older, place, kind, keep, done)
        fresh.append((place, message))
        done.tickets.append(Ticket(message.id))
    _insert(tx, fresh, done)
    for (bot, priority), count in Counter((place.bot, place.priority) for place in done.placed).items():
        tx.count(bot, PRIORITIES[priority], count)
    return done


def _known_keys(
    tx: Transaction, messages: Sequence[Message], now: float
) -> dict[tuple[BotId, str], tuple[str, float]]:
    """The tickets that hold these dedup keys, and until when. Expired holders lose their key."""
    wanted = [(message.bot, message.dedup_key) for message in messages if message.dedup_key is not None]
    if not wanted:
        return {}
    bots, keys = {bot for bot, _ in wanted}, json.dumps([key for _, key in wanted])
    found: dict[tuple[BotId, str], tuple[str, float]] = {}
    for bot in bots:
        among = "bot = ? AND dedup_key IN (SELECT value FROM json_each(?))"
        tx.execute(
            f"UPDATE messages SET dedup_key = NULL WHERE {among} AND dedup_until <= ?", (bot, keys, now)
        )
        rows = tx.execute(f"SELECT dedup_key, id, dedup_until FROM messages WHERE {among}", (bot, keys))
        found |= {(bot, key): (ticket, until) for key, ticket, until in rows}
    return found


def _insert(tx: Transaction, fresh: list[tuple[WaitingRow, Message]], done: PutResult) -> None:
    plain, full = [], []
    for place, message in fresh:
        if _is_plain(message):
            plain.append((*place[:9], message.id, bytearray(pack(message))))
        else:
            full.append(_row(place, message))
    many = len(plain) - len(plain) % ROWS_PER_INSERT
    stored = sum(
        tx.execute(PLAIN_INSERT_ROWS, list(chain.from_iterable(plain[at : at + ROWS_PER_INSERT]))).rowcount
        for at in range(0, many, ROWS_PER_INSERT)
    )
    if plain[many:]:
        stored += tx.executemany(PLAIN_INSERT, plain[many:]).rowcount
    if full:
        stored += tx.executemany(FULL_INSERT, full).rowcount
    if stored == len(fresh):
        done.placed += [place for place, _ in fresh]
    else:
        _mark_repeated(tx, fresh, done)


def _mark_repeated(tx: Transaction, fresh: list[tuple[WaitingRow, Message]], done: PutResult) -> None:
    """Mark the tickets of messages that were stored before: their caller did not hear the answer."""
    for place, message in fresh:
        [seq] = tx.execute("SELECT seq FROM messages WHERE id = ?", (message.id,)).fetchone()
        if seq == place.seq:
            done.placed.append(place)
        else:
            at = max(at for at, ticket in enumerate(done.tickets) if ticket.id == message.id)
            done.tickets[at] = Ticket(message.id, fresh=False)


def _is_plain(message: Message) -> bool:
    return (
        message.dedup_key is None
        and message.not_before is None
        and message.expires_at is None
        and message.coalesce_key is None
    )


def _waiting_with_its_key(tx: Transaction, message: Message) -> WaitingRow | None:
    """The older message that this one replaces. One that is being sent stays, and loses the key."""
    key = (message.bot, message.chat_id, message.coalesce_key)
    where = "bot = ? AND chat_id = ? AND coalesce_key = ? AND settled_at IS NULL"
    row = tx.execute(f"SELECT {WAITING_COLUMNS}, state FROM messages WHERE {where}", key).fetchone()
    if row is None:
        return None
    *place, state = row
    if state == State.SENDING:
        tx.execute(f"UPDATE messages SET coalesce_key = NULL WHERE {where}", key)
        return None
    return WaitingRow(*place)


def _replace(  # noqa: PLR0917
    tx: Transaction, older: WaitingRow, newer: WaitingRow, kind: KindOf, keep: float, done: PutResult
) -> WaitingRow:
    """Replace the older row; its place is kept if both are in the same line and due."""
    now = newer.created_at
    stays = (
        (newer.not_before or 0.0) <= now
        and (older.not_before or 0.0) <= now
        and (kind(older.family), older.priority, older.urgent, older.paid)
        == (kind(newer.family), newer.priority, newer.urgent, newer.paid)
    )
    [ticket] = tx.execute("SELECT id FROM messages WHERE seq = ?", (older.seq,)).fetchone()
    # The older row moves away from the number that is its place in line.
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
        joined = older.created_at if older.not_before is None else older.not_before
        return newer._replace(seq=older.seq, not_before=joined)
    return newer


def replay(tx: Transaction, ids: Iterable[TicketId], now: float) -> list[WaitingRow]:
    """Queue dead and parked messages anew, at the ends of their lines; not those that cannot be decoded."""
    placed = []
    for ticket in dict.fromkeys(ids):
        letter = tx.execute(
            "SELECT bot, state, chat_id, body FROM messages WHERE id = ? AND state IN ('dead', 'parked')",
            (ticket,),
        ).fetchone()
        if letter is None:
            continue
        bot, state, chat_id, body = letter
        if isinstance(read_body(body, ticket, bot, chat_id), UnreadableBody):
            continue
        row = tx.execute(
            "UPDATE messages SET seq = ?, state = 'queued', attempts = 0,"
            " crashes = 0, not_before = ?, retry_at = NULL, settled_at = NULL, forget_at = NULL,"
            " reason = NULL, description = NULL, coalesce_key = NULL"
            f" WHERE id = ? RETURNING {WAITING_COLUMNS}",
            (next_number(tx), now, ticket),
        ).fetchone()
        placed.append(WaitingRow(*row))
        tx.count(bot, state, -1)
        tx.count(bot, PRIORITIES[placed[-1].priority])
    return placed


def reprioritize(
    tx: Transaction, ids: Iterable[TicketId], priority: Priority, now: float
) -> tuple[int, list[int]]:
    """Give waiting messages another priority; returns how many have it now, and the numbers of changed rows.

    Not urgent ones, nor those that cannot be decoded: the body says the priority as well.
    """
    level, count, changed = PRIORITIES.index(priority), 0, list[int]()
    for ticket in dict.fromkeys(ids):
        found = tx.execute(
            "SELECT seq, bot, chat_id, priority, state, body FROM messages WHERE id = ? AND urgent = 0"
            " AND state IN ('queued', 'retry') AND (expires_at IS NULL OR expires_at > ?)",
            (ticket, now),
        ).fetchone()
        if found is None:
            continue
        seq, bot, chat_id, before, state, body = found
        message = read_body(body, ticket, bot, chat_id)
        if isinstance(message, UnreadableBody):
            continue
        count += 1
        if before == level:
            continue
        packed = bytearray(pack(msgspec.structs.replace(message, priority=priority)))
        tx.execute("UPDATE messages SET priority = ?, body = ? WHERE seq = ?", (level, packed, seq))
        if state == State.QUEUED:
            tx.count(bot, PRIORITIES[before], -1)
            tx.count(bot, priority)
        changed.append(seq)
    return count, changed


def _row(place: WaitingRow, message: Message) -> tuple[Any, ...]:
    until = place.created_at + message.dedup_for if message.dedup_key is not None else None
    return (*place, message.id, message.dedup_key, until, message.coalesce_key, pack(message))
