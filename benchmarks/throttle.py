"""How many updates a second the throttle decides about, and what a user costs it.

    python benchmarks/throttle.py [--json]

One update each of 100,000 users (20,000 with Redis); then a flood of one user. Beside it what is written by
hand: a dictionary of aiolimiter's limiters, which has no pause, no answer and no limit for chats, and forgets
nobody. With Redis (a server of its own, on this machine) 64 updates wait at a time. A second is one of CPU
time in memory, of the clock with Redis; bytes are the growth of resident memory (RSS), for Redis of what it
says that it uses. Each figure comes from a fresh process: the median of three.
"""

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import uvloop
from aiolimiter import AsyncLimiter

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from servers import redis_server
from tidegate.clock import Clock
from tidegate.inbound.throttle import Throttle, ThrottleRules
from tidegate.inbound.updates import UpdateInfo
from tidegate.stores.memory.throttle import MemoryThrottle
from tidegate.stores.redis.connection import RedisPyConnection
from tidegate.stores.redis.throttle import RedisThrottle

USERS: Final = 100_000
FEW: Final = 20_000  # in Redis, where each is a round trip
FLOOD: Final = 100_000
AT_ONCE: Final = 64
ROUNDS: Final = 3
RULES: Final = ThrottleRules()

Check = Callable[[UpdateInfo], Awaitable[object]]
Figures = dict[str, float]


def rss() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def about(user: int) -> UpdateInfo:
    return UpdateInfo("message", user, user, is_private=True)


async def ask(check: Check, users: int) -> Figures:
    """One task, in CPU time."""
    everybody = [about(user) for user in range(users)]
    before, started = rss(), time.process_time()
    for one in everybody:
        await check(one)
    seconds, size = time.process_time() - started, (rss() - before) / users
    flooder, started = about(-1), time.process_time()
    for _ in range(FLOOD):
        await check(flooder)
    flood = FLOOD / (time.process_time() - started)
    return {"per_second": users / seconds, "flood_per_second": flood, "bytes_per_user": size}


async def in_memory() -> Figures:
    throttle = Throttle(RULES, MemoryThrottle(RULES, Clock()))
    return await ask(lambda one: throttle.check(one, 42), USERS)


async def by_hand() -> Figures:
    limiters: dict[int | None, AsyncLimiter] = {}

    async def check(one: UpdateInfo) -> bool:
        limiter = limiters.setdefault(one.user, AsyncLimiter(30, 60))
        if not limiter.has_capacity():
            return False
        await limiter.acquire()
        return True

    return await ask(check, USERS)


async def in_redis() -> Figures:
    with redis_server() as server:
        link = RedisPyConnection(server.url, Clock(), "benchmark")
        await link.open(b"")
        throttle = Throttle(RULES, RedisThrottle(RULES, link, Clock()))
        used = (await link.command("INFO", "memory"))["used_memory"]
        rate = await side_by_side(throttle, iter(range(FEW)), FEW)
        size = ((await link.command("INFO", "memory"))["used_memory"] - used) / FEW
        flood = await side_by_side(throttle, iter([-1] * FEW), FEW)
        await link.close()
    return {"per_second": rate, "flood_per_second": flood, "bytes_per_user": size}


async def side_by_side(throttle: Throttle, users: object, count: int) -> float:
    async def work() -> None:
        for user in users:  # type: ignore[attr-defined]  # one iterator for all
            await throttle.check(about(user), 42)

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return count / (time.perf_counter() - started)


SUBJECTS: Final = {"memory": in_memory, "redis": in_redis, "aiolimiter by hand": by_hand}


def measure(subject: str) -> Figures:
    found: list[Figures] = []
    for _ in range(ROUNDS):
        command = [sys.executable, __file__, "--one", subject]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))  # noqa: S603
    return {name: round(statistics.median(one[name] for one in found)) for name in found[0]}


def main() -> None:
    results = {subject: measure(subject) for subject in SUBJECTS}
    if "--json" in sys.argv:
        print(json.dumps(results))
        return
    print(f"{'':<20}{'updates a second':>18}{'of a flooder':>14}{'bytes a user':>14}")
    for subject, figures in results.items():
        rate, flood, size = figures.values()
        print(f"{subject:<20}{rate:>18,}{flood:>14,}{size:>14,}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(uvloop.run(SUBJECTS[sys.argv[2]]())))
    else:
        main()
