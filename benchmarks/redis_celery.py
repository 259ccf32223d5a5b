"""Celery, for `redis_store.py`: a producer or a worker, in an interpreter of its own (`peers/newest.lock`).

A fourth argument names the pool of the worker: `prefork` (its own choice), `threads` or `solo`.
"""

import sys
import time
from collections.abc import Callable
from multiprocessing import Value
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.redis_load import SECONDS, WARM_UP, Tally, arguments, params, report
from celery import Celery

PREFETCH: Final = 1_000
POOLS: Final = {"prefork": 2, "threads": 10, "solo": 1}


class SharedTally:
    """A tally of several processes or threads."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._count, self._began = Value("i", 0), Value("d", 0.0)

    def add(self) -> None:
        with self._count.get_lock():
            self._count.value += 1
            count, now = self._count.value, time.perf_counter()
            if count == WARM_UP:
                self._began.value = now
            elif count == self._number or (count % 100 == 0 and self._late(now)):
                report(per_second=(count - WARM_UP) / (now - self._began.value), count=count)

    def _late(self, now: float) -> bool:
        return bool(self._began.value) and now > float(self._began.value) + SECONDS


def app_at(url: str) -> Any:  # noqa: ANN401  (it has no types)
    app = Celery("redis_celery", broker=url)
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=PREFETCH,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        worker_redirect_stdouts=False,  # where the report goes
    )
    return app


def deliver_with(count: Callable[[], None]) -> Callable[..., None]:
    """A handler with the arguments spelled out, for Celery checks them."""

    def deliver(bot: int, method: str, chat_id: int, text: str) -> None:  # noqa: ARG001
        count()

    return deliver


def put(url: str, number: int) -> None:
    app = app_at(url)
    tally = Tally(number)
    task = app.task(name="deliver")(deliver_with(lambda: None))
    with app.producer_or_acquire() as producer:
        for each in params(number):
            task.apply_async(kwargs=each, producer=producer)
            tally.add()
            if tally.over:
                return


def work(url: str, number: int, pool: str) -> None:
    app = app_at(url)
    tally = SharedTally(number)
    app.task(name="deliver")(deliver_with(tally.add))
    flags = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    app.worker_main(["--quiet", "worker", "--pool", pool, "--concurrency", str(POOLS[pool]), *flags])


if __name__ == "__main__":
    verb, url, number = arguments()
    if verb == "put":
        put(url, number)
    else:
        work(url, number, sys.argv[4])
