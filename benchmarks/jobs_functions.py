"""Jobs of `jobs.py`, in a module that other processes import: its gate is that of the environment."""

import os

from celery import Celery

from tidegate import Tidegate

gate = Tidegate()
plain = Celery("plain", broker=os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:9/0"))
plain.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
    task_default_queue="plain",
    broker_connection_retry_on_startup=True,
)


def nothing(number: int) -> int:
    return number


@gate.job
def noop(number: int) -> int:
    return number


@plain.task(name="plain")
def plain_noop(number: int, key: str) -> None:
    """Say that it has run, as nobody could tell otherwise."""
    import redis  # noqa: PLC0415

    redis.Redis.from_url(plain.conf.broker_url).incr(key)
    del number
