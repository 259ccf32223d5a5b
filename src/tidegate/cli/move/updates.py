"""Updates that wait in a file go to Redis, those of a chat in order."""

from typing import TYPE_CHECKING, Final

from tidegate.clock import Clock
from tidegate.inbound.arrivals import Source
from tidegate.inbound.inbox.sqlite import SqliteInbox
from tidegate.outbox.sqlite.file import StoreFile, Transaction

if TYPE_CHECKING:
    from tidegate.outbox.redis.link import Link

STEP: Final = 500


async def carry_updates(file: StoreFile, link: "Link", clock: Clock) -> int:
    """How many were moved. Ended half-way, it can be done again: those that are there are known there."""
    from tidegate.inbound.inbox.redis import RedisInbox  # noqa: PLC0415  (its driver is an extra)

    here, there = SqliteInbox(file, clock), RedisInbox(link, clock)
    await here.open()
    try:
        sources, moved = await file.read(_sources), 0
        while held := await here.claim(sources, STEP, suspects=STEP):
            await there.accept([one.arrival for one in held])
            await here.done(held)
            moved += len(held)
        return moved
    finally:
        await here.close()


def _sources(tx: Transaction) -> list[Source]:
    return [Source(source) for (source,) in tx.execute("SELECT DISTINCT source FROM arrivals")]
