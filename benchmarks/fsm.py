"""Measures the conversation steps a second of FSM storages: ours in a file, beside those of aiogram.

    python benchmarks/fsm.py [--json]

A step is what a handler does: it asks for the state, adds to the data, sets the next state. 64 conversations
at once, then one alone; the median of three rounds, in which they take turns. Redis is a server of its own on
this machine that writes nothing to disk; ours is on disk when a step is done (synchronous=FULL), and
aiogram's MemoryStorage is what is lost at the end of the process. Takes about 12 seconds.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aiogram.fsm.storage.base import BaseStorage, StorageKey
from aiogram.fsm.storage.memory import MemoryStorage
from aiogram.fsm.storage.redis import RedisStorage

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from servers import redis_server
from tidegate.adapters.aiogram.fsm_storage import SqliteStorage

SECONDS: Final = 0.5  # of a round
ROUNDS: Final = 3
AT_ONCE: Final = 64
PEOPLE: Final = 10_000

Figures = dict[str, dict[str, float]]


async def step(storage: BaseStorage, user: int) -> None:
    key = StorageKey(42, user, user)
    before = await storage.get_state(key)
    await storage.update_data(key, {"order": user, "name": "Alice", "sizes": [1, 2, 3]})
    await storage.set_state(key, "asked" if before == "paying" else "paying")


async def work(storage: BaseStorage, at_once: int) -> float:
    """Return steps a second."""
    made, users = 0, iter(range(10**9))
    started = time.perf_counter()

    async def talk(users: Iterator[int]) -> None:
        nonlocal made
        while time.perf_counter() - started < SECONDS:
            await step(storage, next(users) % PEOPLE)
            made += 1

    await asyncio.gather(*(talk(users) for _ in range(at_once)))
    return made / (time.perf_counter() - started)


async def compare(url: str, folder: str) -> Figures:
    storages: dict[str, BaseStorage] = {
        "Tidegate's, in a file": SqliteStorage.at(Path(folder, "conversations.db")),
        "aiogram's RedisStorage": RedisStorage.from_url(url),
        "aiogram's MemoryStorage": MemoryStorage(),
    }
    found: dict[str, dict[int, list[float]]] = {name: {AT_ONCE: [], 1: []} for name in storages}
    for at_once in (AT_ONCE, 1):
        for _ in range(ROUNDS):
            for name, storage in storages.items():
                found[name][at_once].append(await work(storage, at_once))
    for storage in storages.values():
        await storage.close()
    return {
        name: {f"{at_once}_at_once": round(statistics.median(rates)) for at_once, rates in one.items()}
        for name, one in found.items()
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, redis_server() as server:
        found = asyncio.run(compare(server.url, folder))
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    ours = next(iter(found.values()))
    for name, rates in found.items():
        told = (f"{rate:>9,.0f}/s {what} ({rate / ours[what]:.2f} of ours)" for what, rate in rates.items())
        print(f"{name:24}", *told)


if __name__ == "__main__":
    main()
