"""The longest step in Redis while a group with many waiting messages becomes a supergroup.

`PYTHONPATH=src:tests python -m benchmarks.redis_migration 10000 150000`: starts a Redis of its own.
"""

import asyncio
import secrets
import sys
import time
from typing import Final

from servers import redis_server
from tidegate.clock import Clock
from tidegate.model import BotId, Message, Migrated, Priority, Rate, Settlement, TicketId
from tidegate.pacing.rules import Rules
from tidegate.stores.redis.connection import Argument, RedisPyConnection
from tidegate.stores.redis.outbox import RedisOutbox

BULK: Final = 500
WIDE: Final = Rate(100_000, 1)
LEFT: Final = (b"[42/send/-1\0", b"(42/send/-1\1")


class TimedConnection(RedisPyConnection):
    """Knows the longest step, as its caller sees it."""

    longest = 0.0

    async def run(self, step: str, *args: Argument) -> list[bytes]:
        began = time.perf_counter()
        reply = await super().run(step, *args)
        self.longest = max(self.longest, time.perf_counter() - began)
        return reply


def message(number: int) -> Message:
    return Message(
        id=TicketId(f"m{number}"),
        bot=BotId(42),
        chat_id=-1,
        method="sendMessage",
        params={"text": "x" * 100},
        priority=Priority.HIGH,
    )


async def migrate(url: str, count: int) -> None:
    clock = Clock()
    link = TimedConnection(url, clock, secrets.token_hex(4))
    outbox = RedisOutbox(link, clock, Rules(bot=WIDE, private=WIDE, group=WIDE))
    await outbox.open()
    for first in range(0, count, BULK):
        await outbox.put([message(number) for number in range(first, first + BULK)])
    [claim] = await outbox.claim(1)
    link.longest, began = 0.0, time.perf_counter()
    await outbox.settle([Settlement(claim, Migrated(-2))])
    while await link.command("ZLEXCOUNT", link.key("queue"), *LEFT):
        await outbox.stats()
    took = time.perf_counter() - began
    print(f"{count:,} messages moved in {took:.2f} s, the longest step took {1e3 * link.longest:.0f} ms")
    await outbox.close()


def main() -> None:
    for count in map(int, sys.argv[1:]):
        with redis_server() as server:
            asyncio.run(migrate(server.url, count))


if __name__ == "__main__":
    main()
