"""Moves what a SQLite store remembers to Redis: dead letters, limits, parked updates, conversations.

Each step writes there first and removes here then, and changes nothing for what Redis has: a move that is
killed anywhere is run again. Bytes are carried as they are stored, whether they can be decoded or not.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.inbound.conversations import ConversationKey
from tidegate.outbox.flood_control import WHOLE_BOT
from tidegate.outbox.lanes import URGENT
from tidegate.pacing.learned import LearnedSnapshot
from tidegate.pacing.rules import Rules
from tidegate.stores.sqlite import export, inbox_sql, own_limits
from tidegate.stores.sqlite.conversations import UNREADABLE_DESTINY
from tidegate.stores.sqlite.export import EndedRow
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.message_rows import PRIORITIES

if TYPE_CHECKING:
    from tidegate.stores.redis.connection import RedisConnection
    from tidegate.stores.redis.importer import BroughtLearned, BroughtLimit, BroughtMessage

ROWS_PER_STEP: Final = 500


async def carry_aliases(file: StoreFile, link: "RedisConnection") -> None:
    """Copy the other names of chats. They stay here, for messages that are put meanwhile."""
    from tidegate.stores.redis.importer import bring_aliases  # noqa: PLC0415  (its driver is an extra)

    await bring_aliases(link, await file.read(_aliases))


def _aliases(tx: Transaction) -> list[Any]:
    return tx.execute("SELECT bot, old, new FROM aliases ORDER BY n").fetchall()


async def carry_own_limits(file: StoreFile, link: "RedisConnection") -> int:
    """Copy the limits of single bots; return how many bots. They stay here, for what is sent meanwhile."""
    from tidegate.stores.redis.importer import bring_own_limits  # noqa: PLC0415  (likewise)

    found = await file.read(own_limits.read)
    return await bring_own_limits(link, {bot: stored.own for bot, stored in found.items() if stored.own})


async def carry_limits(file: StoreFile, link: "RedisConnection", clock: Clock) -> int:
    """Move closures and learned limits; return how many."""
    from tidegate.stores.redis.importer import bring_limits  # noqa: PLC0415  (likewise)

    now = clock.now()
    rows = await file.read(_limits)
    if rows:
        await bring_limits(link, [_brought_limit(row, now) for row in rows])
        await file.write(lambda tx: tx.execute("DELETE FROM limits"))
    return len(rows)


def _limits(tx: Transaction) -> list[Any]:
    return tx.execute("SELECT bot, chat_id, kind, closed_for, learned, heard_at FROM limits").fetchall()


def _brought_limit(row: Any, now: float) -> "BroughtLimit":  # noqa: ANN401  (SQLite's)
    from tidegate.stores.redis.importer import BroughtLimit  # noqa: PLC0415  (likewise)

    bot, chat, kind, closed_for, learned, heard_at = row
    elapsed = max(0.0, now - heard_at)
    return BroughtLimit(
        bot=str(bot),
        kind=kind,
        closed_for=max(0.0, closed_for - elapsed),
        chat=None if chat == WHOLE_BOT else str(chat),
        learned=None if learned is None else _brought_learned(learned, elapsed),
    )


def _brought_learned(stored: bytes, elapsed: float) -> "BroughtLearned | None":
    """One that cannot be decoded is learned anew."""
    from tidegate.stores.redis.importer import BroughtLearned  # noqa: PLC0415  (likewise)

    try:
        kept = msgspec.msgpack.decode(stored, type=LearnedSnapshot)
    except ValueError:
        return None
    if kept.bad is None:
        return None
    return BroughtLearned(
        step=kept.step,
        bad=kept.bad,
        interval=kept.interval,
        cut_ago=kept.cut_ago + elapsed,
        up_in=kept.up_in - elapsed,
        probing=kept.probing or None,
    )


async def carry_ended(
    file: StoreFile, link: "RedisConnection", clock: Clock, rules: Rules
) -> tuple[int, int]:
    """Move dead letters and ended messages, with their dedup keys; return how many of each.

    A message that cannot be decoded is a dead letter by now.
    """
    from tidegate.stores.redis.importer import bring_messages  # noqa: PLC0415  (likewise)

    letters = ended = 0
    while rows := await file.read(lambda tx: export.ended_chunk(tx, clock.now())):
        await bring_messages(link, [(_brought(row, rules), row.body, row.result) for row in rows])
        await file.write(partial(export.remove_ended, rows=rows))
        letters += sum(row.forget_at is None for row in rows)
        ended += sum(row.forget_at is not None for row in rows)
    return letters, ended


def _brought(row: EndedRow, rules: Rules) -> "BroughtMessage":
    from tidegate.stores.redis.importer import BroughtMessage  # noqa: PLC0415  (likewise)

    return BroughtMessage(
        id=row.id,
        bot=str(row.bot),
        chat=str(row.chat_id),
        kind=rules.kind(row.family),
        level=URGENT if row.urgent else row.priority,
        cost=row.cost,
        state=row.state,
        created=row.created_at,
        settled=row.settled_at,
        forget=row.forget_at or 0.0,
        attempts=row.attempts or None,
        crashes=row.crashes or None,
        paid=True if row.paid else None,
        urgent_as=PRIORITIES[row.priority] if row.urgent else None,
        reason=row.reason,
        description=row.description,
        dedup=None if row.dedup_key is None else f"{row.bot}/{row.dedup_key}",
        dedup_until=row.dedup_until or 0.0,
    )


async def carry_parked_updates(file: StoreFile, link: "RedisConnection", clock: Clock) -> int:
    """Move parked updates and events; return how many."""
    from tidegate.stores.redis.inbox import RedisInbox  # noqa: PLC0415  (likewise)

    there, moved = RedisInbox(link, clock), 0
    while parked := await file.read(lambda tx: inbox_sql.oldest_parked(tx, ROWS_PER_STEP)):
        moved += await there.bring(parked)
        gone = [(one.item.source, one.item.key) for one in parked]
        await file.write(partial(_forget_parked, gone=gone))
    return moved


def _forget_parked(tx: Transaction, gone: Sequence[tuple[str, str]]) -> None:
    tx.executemany("DELETE FROM parked WHERE source = ? AND key = ?", gone)


async def carry_conversations(file: StoreFile, link: "RedisConnection") -> int:
    """Move conversations to the keys of aiogram's storage; return how many. Those that Redis has stay."""
    from tidegate.stores.redis.conversations import bring_conversation  # noqa: PLC0415  (likewise)

    moved = 0
    while rows := await file.read(_conversations):
        for _, bot, chat, user, thread, business, destiny, state, data in rows:
            key = ConversationKey(bot, chat, user, thread or None, business or None, destiny)
            if destiny.startswith(UNREADABLE_DESTINY):  # its bytes are kept beside the one that came after it
                key = key._replace(destiny=destiny.removeprefix(UNREADABLE_DESTINY))
                await bring_conversation(link, key, state, data, is_unreadable=True)
            else:
                moved += await bring_conversation(link, key, state, data)
        last = rows[-1][0]
        await file.write(partial(_forget_conversations, last=last))
    return moved


def _conversations(tx: Transaction) -> list[Any]:
    return tx.execute(
        "SELECT n, bot, chat, user, thread, business, destiny, state, data FROM conversations"
        " ORDER BY n LIMIT ?",
        (ROWS_PER_STEP,),
    ).fetchall()


def _forget_conversations(tx: Transaction, last: int) -> None:
    tx.execute("DELETE FROM conversations WHERE n <= ?", (last,))
