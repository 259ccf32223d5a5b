"""SQL of claim and settle, and of messages that end without a call."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from tidegate.model import BotId, ChatId, NotSent, Outcome, Record, Refused, State, TicketId, Unreachable
from tidegate.outbox.dispatcher import ALIASES_KEPT
from tidegate.outbox.flood_control import StoredLimit
from tidegate.outbox.lanes import Entry
from tidegate.pacing.learned import FORGET_AFTER, LearnedSnapshot
from tidegate.stores.message_codec import storable_text
from tidegate.stores.sqlite import own_limits
from tidegate.stores.sqlite.file import Transaction
from tidegate.stores.sqlite.message_rows import PRIORITIES, RECORD_COLUMNS, chat_now, pack_result, retire

Row = tuple[Any, ...]
AMONG: Final = "seq IN (SELECT value FROM json_each(?))"
CLEANED_AT_ONCE: Final = 2_000  # messages
ANSWERS_KEPT: Final = 100  # for processes that may not be there any more
WAITS: Final = "state IN ('queued', 'retry')"


class AnsweredCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The slots that a call used. `at`: wall time of its answer."""

    at: float
    bot: BotId
    chat: ChatId
    kind: str
    paid: bool
    cost: int


class PlannedSettlement(msgspec.Struct, gc=False):
    """A settlement on its way to the disk: how a call ended, and what that changes."""

    entry: Entry
    chat: ChatId  # the name that it was sent to
    outcome: Outcome
    record: Record  # as it will be
    delay: float  # seconds until it may go again
    forget_at: float | None
    answered: float  # monotonic
    called_at: float  # the same by the wall clock
    buried: Sequence[Entry] = ()  # nothing for its chat can succeed: these wait in its lane, and die, too
    alias: ChatId | None = None  # another name of its chat, from the answer

    @property
    def counted_as(self) -> str:
        record = self.record
        return record.message.priority if record.state is State.QUEUED else record.state


SETTLE: Final = (
    "UPDATE messages SET state = ?, attempts = ?, crashes = ?, retry_at = ?, settled_at = ?, forget_at = ?,"
    " reason = ?, description = ?, result = ? WHERE seq = ? AND settled_at IS NULL"
)
# Most settlements, many in one statement: Python releases the GIL for each.
ROWS_PER_UPDATE: Final = 50
_DELIVER: Final = (
    "WITH told (seq, attempts, settled_at, forget_at, result) AS (VALUES {rows}) UPDATE messages"
    " SET state = 'delivered', attempts = told.attempts, settled_at = told.settled_at,"
    " forget_at = told.forget_at, result = told.result, retry_at = NULL, reason = NULL, description = NULL"
    " FROM told WHERE messages.seq = told.seq AND messages.settled_at IS NULL"
)
DELIVER: Final = _DELIVER.format(rows="(?, ?, ?, ?, ?)")
DELIVER_ROWS: Final = _DELIVER.format(rows=", ".join(["(?, ?, ?, ?, ?)"] * ROWS_PER_UPDATE))


def mark_sending(tx: Transaction, seqs: Sequence[int]) -> dict[int, Row]:
    """Mark rows as being sent that still wait. Returns created_at, body, id and chat_id by number."""
    found = tx.execute(
        f"UPDATE messages SET state = 'sending' WHERE {AMONG} AND {WAITS}"
        " RETURNING seq, created_at, body, id, chat_id, bot, priority, retry_at IS NOT NULL",
        (json.dumps(seqs),),
    ).fetchall()
    for (bot, priority, retrying), count in Counter(row[5:] for row in found).items():
        tx.count(bot, "retry" if retrying else PRIORITIES[priority], -count)
        tx.count(bot, State.SENDING, count)
    return {row[0]: row[1:5] for row in found}


def read_bodies(tx: Transaction, seqs: Sequence[int]) -> dict[int, Row]:
    """The result of `mark_sending`, for when nothing can be written."""
    found = tx.execute(
        f"SELECT seq, created_at, body, id, chat_id FROM messages WHERE {AMONG} AND settled_at IS NULL",
        (json.dumps(seqs),),
    )
    return {row[0]: row[1:] for row in found}


def write_settlements(tx: Transaction, plans: Sequence[PlannedSettlement]) -> None:
    delivered, others, calls = [], [], []
    for plan in plans:
        entry, record = plan.entry, plan.record
        if record.state is State.DELIVERED:
            result = pack_result(record.result)
            delivered.append((entry.id, record.attempts, record.settled_at, plan.forget_at, result))
        else:
            others.append(_columns(plan))
        if not isinstance(plan.outcome, NotSent | Unreachable):
            lane = entry.lane
            calls.append(
                AnsweredCall(plan.called_at, lane.bot.id, plan.chat, lane.kind, entry.paid, entry.cost)
            )
    many = len(delivered) - len(delivered) % ROWS_PER_UPDATE
    for at in range(0, many, ROWS_PER_UPDATE):
        tx.execute(DELIVER_ROWS, list(chain.from_iterable(delivered[at : at + ROWS_PER_UPDATE])))
    tx.executemany(DELIVER, delivered[many:])
    tx.executemany(SETTLE, others)
    record_calls(tx, calls)
    counted = Counter((plan.record.message.bot, plan.counted_as) for plan in plans)
    for (bot, name), count in counted.items():
        tx.count(bot, State.SENDING, -count)
        tx.count(bot, name, count)


def _columns(plan: PlannedSettlement) -> Row:
    record = plan.record
    retry_at = plan.called_at + plan.delay if record.state is State.RETRY else None
    return (
        record.state.value,
        record.attempts,
        record.crashes,
        retry_at,
        record.settled_at,
        plan.forget_at,
        storable_text(record.reason),
        storable_text(record.description),
        pack_result(record.result),
        plan.entry.id,
    )


def write_consequences(tx: Transaction, plans: Sequence[PlannedSettlement], now: float) -> list[Row]:
    """Write refusals, other names of chats, and the messages that die with their chat."""
    ended: list[Row] = []
    for plan in plans:
        bot, record = plan.record.message.bot, plan.record
        if isinstance(plan.outcome, Refused):
            tx.count(bot, "refused")
        if plan.alias is not None:
            alias(tx, bot, plan.chat, plan.alias)
        if plan.buried:
            seqs = [int(entry.id) for entry in plan.buried]
            ended += end_waiting(tx, seqs, State.DEAD, now, None, record.reason, record.description)
    return ended


def record_calls(tx: Transaction, calls: Sequence[AnsweredCall]) -> int | None:
    """Write answered calls, whose slots cool even after a restart. Returns the number of the row."""
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
    """End waiting messages without a call. Returns seq, id, and the columns of a record."""
    # Dead letters (dead, parked) are kept until an operator decides.
    forget_at = None if forget_after is None else now + forget_after
    rows = tx.execute(
        "UPDATE messages SET state = ?, settled_at = ?, reason = ?, description = ?,"
        " forget_at = CASE WHEN ? IS NULL THEN NULL ELSE max(?, ifnull(dedup_until, 0)) END"
        f" WHERE {AMONG} AND {WAITS}"
        f" RETURNING seq, id, bot, priority, retry_at IS NOT NULL, {RECORD_COLUMNS}",
        (
            state,
            now,
            storable_text(reason),
            storable_text(description),
            forget_at,
            forget_at,
            json.dumps(list(seqs)),
        ),
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


def sending_of(tx: Transaction, ids: Iterable[TicketId]) -> list[int]:
    """Numbers of those among these messages that are being sent, as the file says."""
    found = tx.execute(
        "SELECT seq FROM messages WHERE id IN (SELECT value FROM json_each(?)) AND state = 'sending'",
        (json.dumps(list(ids)),),
    )
    return [seq for [seq] in found]


def sending_to(tx: Transaction, chats: Iterable[ChatId], bot: BotId | None) -> list[int]:
    """Numbers of messages that are being sent to these chats, as the file says."""
    query = (
        "SELECT seq FROM messages WHERE settled_at IS NULL AND state = 'sending'"
        " AND chat_id = ? AND (? IS NULL OR bot = ?)"
    )
    return [seq for chat in chats for [seq] in tx.execute(query, (chat, bot, bot))]


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


def erase_chats(tx: Transaction, chats: Sequence[ChatId], bot: BotId | None) -> list[int]:
    """Erase every trace of chats, except what is being sent. Returns the numbers of the rows."""
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


def remove_forgotten(tx: Transaction, now: float, longest_window: float, after: int) -> tuple[int, bool]:
    """Look at some messages after this number, and remove those that can be forgotten.

    Returns the number to go on after, and whether there was much to remove. An index would cost every
    message more than this look does.
    """
    [last] = tx.execute(
        "SELECT max(seq) FROM (SELECT seq FROM messages WHERE seq > ? ORDER BY seq LIMIT ?)",
        (after, CLEANED_AT_ONCE),
    ).fetchone()
    removed = 0
    if last is not None:
        removed = tx.execute(
            "DELETE FROM messages WHERE seq > ? AND seq <= ? AND forget_at <= ?", (after, last, now)
        ).rowcount
        if removed:
            retire(tx, [last])
    tx.execute("DELETE FROM calls WHERE at < ?", (now - longest_window,))
    own_limits.remove_passed(tx, now)
    tx.execute("DELETE FROM limits WHERE heard_at + max(closed_for, ?) < ?", (FORGET_AFTER, now))
    tx.execute(
        "DELETE FROM answers WHERE n NOT IN (SELECT n FROM answers ORDER BY n DESC LIMIT ?)", (ANSWERS_KEPT,)
    )
    return last or 0, removed > CLEANED_AT_ONCE // 10


def store_limits(tx: Transaction, limits: Sequence[StoredLimit], now: float) -> None:
    """Write closures and learned limits after a 429."""
    tx.executemany(
        "INSERT OR REPLACE INTO limits (bot, chat_id, kind, heard_at, closed_for, learned)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [(each.bot, each.chat, each.kind, now, each.closed_for, _packed(each.learned)) for each in limits],
    )


def alias(tx: Transaction, bot: BotId, old: ChatId, name: ChatId) -> None:
    """Write another name of a chat, and move its pause there."""
    new = chat_now(tx, bot, name)
    if new != old:
        tx.execute("INSERT OR REPLACE INTO aliases (bot, old, new) VALUES (?, ?, ?)", (bot, old, new))
        tx.execute("DELETE FROM aliases WHERE n <= (SELECT max(n) FROM aliases) - ?", (ALIASES_KEPT,))
        tx.execute("UPDATE OR REPLACE pauses SET chat_id = ? WHERE bot = ? AND chat_id = ?", (new, bot, old))


def _packed(learned: LearnedSnapshot | None) -> bytes | None:
    return None if learned is None else msgspec.msgpack.encode(learned)
