"""How messages leave their places in the file: claimed, settled, taken back, forgotten."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from tidegate.model import BotId, ChatId, State, TicketId
from tidegate.outbox.carryover import Limit
from tidegate.outbox.dispatch import ALIASES_KEPT
from tidegate.outbox.sqlite.file import Transaction
from tidegate.outbox.sqlite.looking import chat_now
from tidegate.outbox.sqlite.rows import PRIORITIES, RECORD, pack_result
from tidegate.outbox.sqlite.sequence import retire
from tidegate.pacing.learned import Kept

Row = tuple[Any, ...]
AMONG: Final = "seq IN (SELECT value FROM json_each(?))"
CLEANED_AT_ONCE: Final = 2_000  # messages
WAITS: Final = "state IN ('queued', 'retry')"


class Call(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The slots that a call used. `at`: when it was answered, by the wall clock."""

    at: float
    bot: BotId
    chat: ChatId
    kind: str
    paid: bool
    cost: int


class Ended(msgspec.Struct, frozen=True):
    """What is to be written of a call: the row's new columns, and the slots it used."""

    seq: int
    bot: BotId
    name: str  # under which it counts from now on
    columns: tuple[Any, ...]  # of SETTLE
    call: Call | None  # None if it was not made


class Burial(msgspec.Struct, frozen=True):
    """Nothing for a chat can succeed: what waits in its lane follows the one that found out."""

    seqs: list[int]
    reason: str | None
    description: str | None


SETTLE: Final = (
    "UPDATE messages SET state = ?, attempts = ?, crashes = ?, retry_at = ?, settled_at = ?, forget_at = ?,"
    " reason = ?, description = ?, result = ? WHERE seq = ? AND settled_at IS NULL"
)
# What becomes of most. Python binds None, and subclasses of str, ten times slower than plain values.
DELIVER: Final = (
    "UPDATE messages SET state = 'delivered', attempts = ?, settled_at = ?, forget_at = ?, result = ?,"
    " retry_at = NULL, reason = NULL, description = NULL WHERE seq = ? AND settled_at IS NULL"
)


def claim(tx: Transaction, seqs: Sequence[int]) -> dict[int, Row]:
    """Marks those as being sent that still wait. By number: created_at and body."""
    found = tx.execute(
        f"UPDATE messages SET state = 'sending' WHERE {AMONG} AND {WAITS}"
        " RETURNING seq, created_at, body, bot, priority, retry_at IS NOT NULL",
        (json.dumps(seqs),),
    ).fetchall()
    for (bot, priority, retrying), count in Counter(row[3:] for row in found).items():
        tx.count(bot, "retry" if retrying else PRIORITIES[priority], -count)
        tx.count(bot, State.SENDING, count)
    return {row[0]: row[1:3] for row in found}


def bodies(tx: Transaction, seqs: Sequence[int]) -> dict[int, Row]:
    """What `claim` gives, where nothing can be written."""
    found = tx.execute(
        f"SELECT seq, created_at, body FROM messages WHERE {AMONG} AND {WAITS}", (json.dumps(seqs),)
    )
    return {row[0]: row[1:] for row in found}


def settle(tx: Transaction, ended: Sequence[Ended]) -> None:
    delivered, others = [], []
    for each in ended:
        state, attempts, _, _, settled_at, forget_at, _, _, result = each.columns
        packed = pack_result(result)
        if state == State.DELIVERED:
            delivered.append((attempts, settled_at, forget_at, packed, each.seq))
        else:
            others.append((*each.columns[:-1], packed, each.seq))
    tx.executemany(DELIVER, delivered)
    tx.executemany(SETTLE, others)
    called(tx, [each.call for each in ended if each.call is not None])
    for (bot, name), count in Counter((each.bot, each.name) for each in ended).items():
        tx.count(bot, State.SENDING, -count)
        tx.count(bot, name, count)


def called(tx: Transaction, calls: Sequence[Call]) -> int | None:
    """Calls were answered: their slots cool, after a restart too. Returns the number of the row."""
    if not calls:
        return None
    latest = max(call.at for call in calls)
    row = (latest, msgspec.msgpack.encode(calls))
    return tx.execute("INSERT INTO calls (at, body) VALUES (?, ?)", row).lastrowid


def end_waiting(  # noqa: PLR0917
    tx: Transaction,
    seqs: Iterable[int],
    state: State,
    now: float,
    forget_after: float | None,
    reason: str | None = None,
    description: str | None = None,
) -> list[Row]:
    """Those that wait come to an end without a call: seq, id, and the columns of a record."""
    # What is kept for a letter (dead, parked) is not forgotten by itself.
    forget_at = None if forget_after is None else now + forget_after
    rows = tx.execute(
        "UPDATE messages SET state = ?, settled_at = ?, reason = ?, description = ?,"
        " forget_at = CASE WHEN ? IS NULL THEN NULL ELSE max(?, ifnull(dedup_until, 0)) END"
        f" WHERE {AMONG} AND {WAITS}"
        f" RETURNING seq, id, bot, priority, retry_at IS NOT NULL, {RECORD}",
        (state, now, reason, description, forget_at, forget_at, json.dumps(list(seqs))),
    ).fetchall()
    for _, _, bot, priority, retrying, *_ in rows:
        tx.count(bot, "retry" if retrying else PRIORITIES[priority], -1)
        tx.count(bot, state)
    return [(row[0], row[1], *row[5:]) for row in rows]


def seqs_of(tx: Transaction, ids: Iterable[TicketId]) -> list[int]:
    found = tx.execute(
        "SELECT seq FROM messages WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),)
    )
    return [seq for [seq] in found]


def drop(tx: Transaction, ids: Iterable[TicketId]) -> int:
    rows = tx.execute(
        "DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('dead', 'parked')"
        " RETURNING bot, state, seq",
        (json.dumps(list(ids)),),
    ).fetchall()
    for bot, state, _ in rows:
        tx.count(bot, state, -1)
    retire(tx, [seq for *_, seq in rows])
    return len(rows)


def erase(tx: Transaction, chats: Sequence[ChatId], bot: BotId | None) -> list[int]:
    """Every trace of a chat; what is being sent stays. The numbers of those that are gone."""
    tx.execute("PRAGMA secure_delete = ON")  # gone from the free pages too
    gone: list[int] = []
    for chat in chats:
        theirs, key = "chat_id = ? AND (? IS NULL OR bot = ?)", (chat, bot, bot)
        rows = tx.execute(
            f"DELETE FROM messages WHERE {theirs} AND state != 'sending'"
            " RETURNING seq, bot, state, priority, settled_at IS NULL",
            key,
        ).fetchall()
        for seq, owner, state, priority, waits in rows:
            if waits or state in {State.DEAD, State.PARKED}:
                tx.count(owner, PRIORITIES[priority] if state == State.QUEUED else state, -1)
            if waits:
                tx.count(owner, State.CANCELLED)
            gone.append(seq)
        tx.execute(f"DELETE FROM limits WHERE {theirs}", key)
    tx.execute("PRAGMA secure_delete = OFF")
    retire(tx, gone)
    return gone


def clean(tx: Transaction, now: float, longest_window: float, after: int) -> int:
    """Look at some messages after this number, and remove what nobody needs any more.

    Returns the number to go on after. There is no index for this: it would cost more than the look.
    """
    [last] = tx.execute(
        "SELECT max(seq) FROM (SELECT seq FROM messages WHERE seq > ? ORDER BY seq LIMIT ?)",
        (after, CLEANED_AT_ONCE),
    ).fetchone()
    if last is not None:
        gone = tx.execute(
            "DELETE FROM messages WHERE seq > ? AND seq <= ? AND forget_at <= ?", (after, last, now)
        )
        if gone.rowcount:
            retire(tx, [last])
    tx.execute("DELETE FROM calls WHERE at < ?", (now - longest_window,))
    return last or 0


def keep(
    tx: Transaction,
    limits: Sequence[Limit],
    aliases: Sequence[tuple[BotId, ChatId, ChatId]],
    now: float,
) -> None:
    """What was learned from answers: closures and limits, and other names of chats."""
    tx.executemany(
        "INSERT OR REPLACE INTO limits (bot, chat_id, kind, heard_at, closed_for, learned)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [(each.bot, each.chat, each.kind, now, each.closed_for, _packed(each.learned)) for each in limits],
    )
    for bot, old, name in aliases:
        new = chat_now(tx, bot, name)
        if new != old:
            tx.execute("INSERT OR REPLACE INTO aliases (bot, old, new) VALUES (?, ?, ?)", (bot, old, new))
            tx.execute("DELETE FROM aliases WHERE n <= (SELECT max(n) FROM aliases) - ?", (ALIASES_KEPT,))
            tx.execute(
                "UPDATE OR REPLACE pauses SET chat_id = ? WHERE bot = ? AND chat_id = ?", (new, bot, old)
            )


def _packed(learned: Kept | None) -> bytes | None:
    return None if learned is None else msgspec.msgpack.encode(learned)
