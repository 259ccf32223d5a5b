"""How a claim waits for Redis: how soon it wakes, and what it costs meanwhile, for `redis_store.py`.

Monotonic time is the same in all processes of a Linux machine.
"""

import asyncio
import json
import random
import statistics
import sys
import time
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.redis_lines import Figures, batch, settle
from benchmarks.redis_tidegate import ROOM, outbox_at
from benchmarks.redis_turns import used_cpu

BETWEEN: Final = (0.01, 0.12)  # seconds between two puts, at random
SCRIPT: Final = Path(__file__).with_name("redis_alone.py")


async def wake(url: str, number: int) -> dict[str, Figures]:
    """How long after a put was called, and had returned, a claim in another process has the message."""
    outbox, numbers, draw = outbox_at(url), count(), random.Random(1)
    await outbox.open()
    other = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), "claims", url, str(number), stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    await other.stdout.readline()  # it claims
    called: list[float] = []
    returned: list[float] = []
    for _ in range(number):
        await asyncio.sleep(draw.uniform(*BETWEEN))
        called.append(time.monotonic())
        await outbox.put(batch(numbers, 1))
        returned.append(time.monotonic())
    output, _ = await other.communicate()
    claimed = json.loads(output)
    await outbox.close()
    after = sorted(1e3 * (at - was) for at, was in zip(claimed, called, strict=True))
    return {
        "in another process": {
            "p50_ms": statistics.median(after),
            "p99_ms": after[int(0.99 * (number - 1))],
            "worst_ms": after[-1],
            "p50_after_return_ms": 1e3
            * statistics.median(c - r for c, r in zip(claimed, returned, strict=True)),
        }
    }


async def claims(url: str, number: int) -> list[float]:
    """When each message was claimed: they are put, and come, one after the other."""
    outbox = outbox_at(url)
    await outbox.open()
    await outbox.start_sending()
    found: list[float] = []
    print("ready", flush=True)
    while len(found) < number:
        taken = await outbox.claim(ROOM)
        found += [time.monotonic()] * len(taken)
        await settle(outbox, taken)
    await outbox.close()
    return found


async def idle(url: str, seconds: int) -> dict[str, Figures]:
    """Processor time while a claim waits, of this process and of Redis (which asks itself a little)."""
    outbox = outbox_at(url)
    await outbox.open()
    await outbox.start_sending()
    waiting = asyncio.create_task(outbox.claim(ROOM))
    await asyncio.sleep(1)
    theirs, own = await used_cpu(url), time.process_time()
    await asyncio.sleep(seconds)
    own, theirs = time.process_time() - own, await used_cpu(url) - theirs
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await outbox.close()
    return {f"{seconds} s": {"cpu_percent": 100 * own / seconds, "redis_cpu_percent": 100 * theirs / seconds}}
