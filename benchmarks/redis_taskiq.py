"""taskiq, for `redis_store.py`: a producer or a worker, in an interpreter of its own (`peers/newest.lock`).

A fourth argument names the broker: `list`, which forgets a message when it is fetched, or `stream`, which has
it acknowledged.
"""

import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop
from benchmarks.redis_load import Tally, arguments, put_at_once
from taskiq.api import run_receiver_task  # type: ignore[import-not-found]
from taskiq_redis import ListQueueBroker, RedisStreamBroker  # type: ignore[import-not-found]

AT_ONCE: Final = 10  # puts
TASKS: Final = 100
BROKERS: Final = {"list": ListQueueBroker, "stream": RedisStreamBroker}


async def put(broker: Any, number: int) -> None:  # noqa: ANN401  (it has no types here)
    async def deliver(**_: object) -> None: ...

    task = broker.register_task(deliver, task_name="deliver")
    await broker.startup()  # makes the consumer group, without which a stream's workers see new messages only
    await put_at_once(number, AT_ONCE, task.kiq)


async def work(broker: Any, number: int) -> None:  # noqa: ANN401  (it has no types here)
    tally = Tally(number)

    async def deliver(**_: object) -> None:
        tally.add()

    broker.register_task(deliver, task_name="deliver")
    await run_receiver_task(
        broker, max_async_tasks=TASKS, max_prefetch=TASKS, validate_params=False, run_startup=True
    )


if __name__ == "__main__":
    verb, url, number = arguments()
    uvloop.run({"put": put, "work": work}[verb](BROKERS[sys.argv[4]](url), number))
