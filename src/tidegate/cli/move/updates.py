"""Updates that wait in a file go to Redis, those of a chat in order; what came before is known there too."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from tidegate.clock import Clock
from tidegate.inbound.arrivals import Arrival, Source
from tidegate.inbound.inbox.base import REMEMBER
from tidegate.inbound.inbox.sqlite import accepting
from tidegate.outbox.sqlite.file import StoreFile, Transaction

if TYPE_CHECKING:
    from tidegate.outbox.redis.link import Link

STEP: Final = 500
_Known = tuple[str, str, float]  # source, key, when it came


async def carry_updates(file: StoreFile, link: "Link", clock: Clock) -> int:
    """How many were moved. Ended half-way, it can be done again: those that are there are known there.

    Also those that wait for their next try: they have it there.
    """
    from tidegate.inbound.inbox.redis import RedisInbox  # noqa: PLC0415  (its driver is an extra)

    there, moved = RedisInbox(link, clock), 0
    while rows := await file.read(_first):
        await there.accept([Arrival(Source(source), *rest) for _, source, *rest in rows])
        last = rows[-1][0]
        await file.write(lambda tx, last=last: _forget(tx, last))  # type: ignore[misc]
        moved += len(rows)
    await _carry_known(file, link, clock.now())
    return moved


async def _carry_known(file: StoreFile, link: "Link", now: float) -> None:
    """Telegram sends again what it was not told of: that must not be handled again."""
    from tidegate.inbound.inbox.redis.rows import memory_of  # noqa: PLC0415  (likewise)

    after = ("", "")
    while rows := await file.read(lambda tx, after=after: _known(tx, after, now)):  # type: ignore[misc]
        bits: defaultdict[str, list[str | int]] = defaultdict(list)
        for source, key, at in rows:
            memory = memory_of(Arrival(Source(source), key, "", b""))
            if memory.bit:
                bits[memory.key] += ["SET", "u1", memory.bit, 1]
            else:
                left = int(at + REMEMBER - now) + 1
                await link.command("SET", link.key(memory.key), f"{now + left:.6f}", "EX", left)
        for name, changes in bits.items():
            await link.command("BITFIELD", link.key(name), *changes)
            await link.command("EXPIRE", link.key(name), int(REMEMBER))
        after = rows[-1][:2]


def _first(tx: Transaction) -> list[Any]:
    return tx.execute(
        "SELECT number, source, key, lane, body FROM arrivals ORDER BY number LIMIT ?", (STEP,)
    ).fetchall()


def _forget(tx: Transaction, last: int) -> None:
    tx.execute("DELETE FROM held WHERE number <= ?", (last,))
    accepting.count(tx, -tx.execute("DELETE FROM arrivals WHERE number <= ?", (last,)).rowcount)


def _known(tx: Transaction, after: tuple[str, str], now: float) -> list[_Known]:
    return tx.execute(
        "SELECT source, key, at FROM seen WHERE (source, key) > (?, ?) AND at > ?"
        " ORDER BY source, key LIMIT ?",
        (*after, now - REMEMBER, STEP),
    ).fetchall()
