"""What a direct call costs with the store in Redis, for `redis_store.py`."""

import asyncio
import time
from typing import Any, Final

import redis.asyncio
from benchmarks.redis_lines import Figures
from benchmarks.redis_load import BOT, CHATS
from benchmarks.redis_tidegate import RESULT, outbox_at

from tidegate.model import BotId, Delivered
from tidegate.outbox.port import Outbox

IN_FLIGHT: Final = (1, 50)


async def turns(url: str, number: int) -> dict[str, Figures]:
    """A turn and its end, for each direct call; 1,000 chats."""
    outbox = outbox_at(url)
    await outbox.open()
    await outbox.start_sending()
    await call(outbox, 200, 1)
    found = {}
    for at_once in IN_FLIGHT:
        cpu, wall, theirs = time.process_time(), time.perf_counter(), await used_cpu(url)
        await call(outbox, number, at_once)
        spent = time.process_time() - cpu, time.perf_counter() - wall, await used_cpu(url) - theirs
        cpu_us, wall_us, redis_us = (1e6 * each / number for each in spent)
        found[f"{at_once} in flight"] = {"cpu_us": cpu_us, "wall_us": wall_us, "redis_cpu_us": redis_us}
    await outbox.close()
    return found


async def call(outbox: Outbox, number: int, at_once: int) -> None:
    chats = iter(range(number))

    async def one() -> None:
        for i in chats:
            turn = await outbox.turn(BotId(BOT), 1 + i % CHATS, "send", 1)
            await outbox.end_turn(turn, Delivered(RESULT))

    await asyncio.gather(*(one() for _ in range(at_once)))


async def used_cpu(url: str) -> float:
    async with redis.asyncio.Redis.from_url(url) as client:
        found: dict[str, Any] = await client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])
