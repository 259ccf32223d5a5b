"""Who waits for something goes to Redis too, with what he is to be told; so does how far each poller came."""

from typing import TYPE_CHECKING

from tidegate.clock import Clock
from tidegate.outbox.sqlite.file import StoreFile, Transaction
from tidegate.polling.store.sqlite import SqliteSubscriptions

if TYPE_CHECKING:
    from tidegate.outbox.redis.link import Link


async def carry_subscriptions(file: StoreFile, link: "Link", clock: Clock) -> int:
    """How many were moved. Ended half-way, it can be done again: those that are there stay as they are."""
    return sum([await _carry(file, link, clock, name) for name in await file.read(_pollers)])


async def _carry(file: StoreFile, link: "Link", clock: Clock, name: str) -> int:
    from tidegate.polling.store.redis import RedisSubscriptions  # noqa: PLC0415  (its driver is an extra)

    here, there = SqliteSubscriptions(file, clock, name), RedisSubscriptions(link, clock, name)
    # First: whoever polls there goes on from where it was here, and sees what changed meanwhile.
    if (mark := await here.mark()) is not None and await there.mark() is None:
        await there.keep_mark(mark)
    moved = 0
    while kept := await here.after(0):
        moved += await there.bring(kept)
        last = kept[-1].number
        await file.write(lambda tx, last=last: _forget(tx, name, last))  # type: ignore[misc]
    return moved


def _pollers(tx: Transaction) -> list[str]:
    found = tx.execute("SELECT poller FROM subscriptions UNION SELECT name FROM pollers")
    return [name for (name,) in found]


def _forget(tx: Transaction, name: str, last: int) -> None:
    """By number: who was added again since has another."""
    tx.execute("DELETE FROM subscriptions WHERE poller = ? AND number <= ?", (name, last))
