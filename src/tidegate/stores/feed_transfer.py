"""The update feeds of a SQLite store move to Redis: readers with their positions and webhooks, and what they
have yet to read, with the same numbers.

Written there first and removed here then: a move that is killed anywhere is run again.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidegate.model import BotId
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.update_feed import stored_readers

if TYPE_CHECKING:
    from tidegate.stores.redis.connection import RedisConnection

ROWS_PER_STEP: Final = 500


async def carry_feeds(file: StoreFile, link: "RedisConnection") -> tuple[int, int]:
    """Move every feed; return how many updates and readers are new there."""
    from tidegate.stores.redis.update_feed import (  # noqa: PLC0415  (its driver is an extra)
        BroughtReader,
        BroughtUpdate,
        RedisUpdateFeed,
    )

    there, moved_updates, moved_readers = RedisUpdateFeed(link, ""), 0, 0
    for bot, last, appended_at in await file.read(_feeds):
        stored = await file.read(partial(stored_readers, bot=bot))
        readers = [BroughtReader(one.public(), one.seen_at) for one in stored]
        _, count = await there.bring(bot, last, appended_at, readers=readers)
        moved_readers += count
        after = 0
        while seen := await file.read(partial(_seen, bot=bot, after=after)):
            await there.bring(bot, last, appended_at, seen=seen)
            after = seen[-1][1]
        while rows := await file.read(partial(_first_updates, bot=bot)):
            updates = [BroughtUpdate(*row) for row in rows]
            count, _ = await there.bring(bot, last, appended_at, updates=updates)
            moved_updates += count
            end = updates[-1].number
            await file.write(partial(_forget_updates, bot=bot, end=end))
        await file.write(partial(_forget_feed, bot=bot))
    return moved_updates, moved_readers


def _feeds(tx: Transaction) -> list[tuple[BotId, int, float]]:
    return tx.execute("SELECT bot, last, appended_at FROM feeds ORDER BY bot").fetchall()


def _seen(tx: Transaction, bot: BotId, after: int) -> list[tuple[int, int]]:
    find = "SELECT update_id, number FROM feed_seen WHERE bot = ? AND number > ? ORDER BY number LIMIT ?"
    return tx.execute(find, (bot, after, ROWS_PER_STEP)).fetchall()


def _first_updates(tx: Transaction, bot: BotId) -> list[Any]:
    find = (
        "SELECT number, kind, chat, arrived_at, body FROM feed_updates WHERE bot = ? ORDER BY number LIMIT ?"
    )
    return tx.execute(find, (bot, ROWS_PER_STEP)).fetchall()


def _forget_updates(tx: Transaction, bot: BotId, end: int) -> None:
    tx.execute("DELETE FROM feed_updates WHERE bot = ? AND number <= ?", (bot, end))


def _forget_feed(tx: Transaction, bot: BotId) -> None:
    tx.execute("DELETE FROM feeds WHERE bot = ?", (bot,))
    tx.execute("DELETE FROM feed_seen WHERE bot = ?", (bot,))
    tx.execute("DELETE FROM feed_readers WHERE bot = ?", (bot,))
