"""arq, for `redis_store.py`: one producer or one worker, in an interpreter of its own (`peers/arq.lock`)."""

import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop
from arq import create_pool, func  # type: ignore[import-not-found]
from arq.connections import RedisSettings  # type: ignore[import-not-found]
from arq.worker import Worker  # type: ignore[import-not-found]
from benchmarks.redis_load import Tally, arguments, put_at_once

AT_ONCE: Final = 10  # puts
JOBS: Final = 10
POLL: Final = 0.001


async def put(url: str, number: int) -> None:
    pool = await create_pool(RedisSettings.from_dsn(url))

    async def one(**params: object) -> None:
        await pool.enqueue_job("deliver", **params)

    await put_at_once(number, AT_ONCE, one)


async def work(url: str, number: int) -> None:
    tally = Tally(number)

    async def deliver(_: object, **__: object) -> None:
        tally.add()

    worker = Worker(
        [func(deliver, name="deliver")],
        redis_settings=RedisSettings.from_dsn(url),
        max_jobs=JOBS,
        poll_delay=POLL,
        keep_result=0,
        log_results=False,
        handle_signals=False,
    )
    await worker.async_run()


if __name__ == "__main__":
    verb, url, number = arguments()
    uvloop.run({"put": put, "work": work}[verb](url, number))
