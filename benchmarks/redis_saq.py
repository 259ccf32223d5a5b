"""SAQ, for `redis_store.py`: a producer or a worker, in an interpreter of its own (`peers/newest.lock`)."""

import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop
from benchmarks.redis_load import Tally, arguments, put_at_once
from saq import Worker  # type: ignore[import-not-found]
from saq.queue.redis import RedisQueue  # type: ignore[import-not-found]

AT_ONCE: Final = 10  # puts
JOBS: Final = 20
NO_RESULT: Final = -1  # a job is deleted as soon as it has ended


async def put(url: str, number: int) -> None:
    queue = RedisQueue.from_url(url, max_concurrent_ops=AT_ONCE)

    async def one(**params: object) -> None:
        await queue.enqueue("deliver", ttl=NO_RESULT, **params)

    await put_at_once(number, AT_ONCE, one)


async def work(url: str, number: int) -> None:
    tally = Tally(number)

    async def deliver(_: object, **__: object) -> None:
        tally.add()

    queue = RedisQueue.from_url(url, max_concurrent_ops=JOBS)
    await Worker(queue, [("deliver", deliver)], concurrency=JOBS).start()


if __name__ == "__main__":
    verb, url, number = arguments()
    uvloop.run({"put": put, "work": work}[verb](url, number))
