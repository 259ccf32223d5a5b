"""How a claim from Redis depends on how much waits, and what that takes there, for `redis_store.py`."""

import statistics
import time
from itertools import count
from typing import Any, Final

import redis.asyncio
from benchmarks.redis_load import BOT, TEXT
from benchmarks.redis_tidegate import BULK, RESULT, ROOM, message, outbox_at

from tidegate.model import Claim, Delivered, Message, Settlement
from tidegate.outbox.port import Outbox

LEVELS: Final = (1_000, 10_000, 100_000, 1_000_000)
CLAIMS: Final = 50  # at each level
Figures = dict[str, float]


def batch(numbers: "count[int]", size: int) -> list[Message]:
    """Each to a chat of its own."""
    params = {"bot": BOT, "method": "sendMessage", "text": TEXT}
    return [message(i, {**params, "chat_id": 1 + i}) for _, i in zip(range(size), numbers, strict=False)]


async def settle(outbox: Outbox, claims: list[Claim]) -> None:
    assert None not in await outbox.settle([Settlement(claim, Delivered(RESULT)) for claim in claims])


async def lines(url: str, most: int) -> dict[str, Figures]:
    """With one message in each of so many lines, which are kept as many: how long a claim of 100 takes."""
    outbox, numbers, found = outbox_at(url), count(), {}
    await outbox.open()
    waiting = 0
    for level in (each for each in LEVELS if each <= most):
        before, began = await used_memory(url), time.perf_counter()
        for _ in range(waiting, level, BULK):
            await outbox.put(batch(numbers, BULK))
        filling, grown = time.perf_counter() - began, await used_memory(url) - before
        times = [await claim_one(outbox, numbers) for _ in range(CLAIMS)]
        found[f"{level:,}"] = {
            "claim_ms": 1e3 * statistics.median(times),
            "worst_ms": 1e3 * max(times),
            "bytes_a_message": grown / (level - waiting),
            "puts_per_second": (level - waiting) / filling,
        }
        waiting = level
    await outbox.close()
    return found


async def claim_one(outbox: Outbox, numbers: "count[int]") -> float:
    began = time.perf_counter()
    claims = await outbox.claim(ROOM)
    taken = time.perf_counter() - began
    assert len(claims) == ROOM
    await settle(outbox, claims)
    await outbox.put(batch(numbers, ROOM))
    return taken


async def used_memory(url: str) -> int:
    async with redis.asyncio.Redis.from_url(url) as client:
        found: dict[str, Any] = await client.info("memory")
    return int(found["used_memory"])
