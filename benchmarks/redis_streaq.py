"""streaq, for `redis_store.py`: one producer or one worker, in an interpreter of its own.

The newest (`peers/newest.lock`) keeps functions in Redis, which came with Redis 7; where Redis is older, the
last one that does not (`peers/streaq5.lock`).
"""

import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop
from benchmarks.redis_load import Tally, arguments, chunks
from streaq import Worker  # type: ignore[import-not-found]

BULK: Final = 2_500
TASKS: Final = 32


def queue(url: str, tally: Tally) -> tuple[Any, Any]:
    async def deliver(**_: object) -> None:
        tally.add()

    worker = Worker(redis_url=url, concurrency=TASKS, prefetch=TASKS, handle_signals=False)
    return worker, worker.task(name="deliver", ttl=0, silent=True)(deliver)


async def put(url: str, number: int) -> None:
    tally = Tally(number)
    worker, task = queue(url, tally)
    async with worker:
        for chunk in chunks(tally, BULK):
            await worker.enqueue_many([task.enqueue(**params) for params in chunk])
            tally.add(len(chunk))


async def work(url: str, number: int) -> None:
    worker, _ = queue(url, Tally(number))
    await worker.run_async()


if __name__ == "__main__":
    verb, url, number = arguments()
    uvloop.run({"put": put, "work": work}[verb](url, number))
