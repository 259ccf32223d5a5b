"""Who is measured beside the store in Redis, with which settings and why, for `redis_store.py`.

All: one producer process, one worker process; defaults where nothing is said. What was tried
was tried in two or three short runs each, on two busy cores: differences below a fifth mean nothing.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

HERE: Final = Path(__file__).resolve().parent
PYTHONS: Final = HERE.parent / ".venv-peers"


class Peer(msgspec.Struct, frozen=True):
    """`left` says by its commands, added up, how many messages are not acknowledged."""

    label: str
    script: str
    package: str
    settings: str
    why: str
    lock: str = "newest"  # of `peers/`; "" for Tidegate's own environment
    lock_before_7: str = ""  # where Redis is older than 7, if that is another one
    option: str = ""
    left: tuple[tuple[str, ...], ...] = ()

    def python(self, redis_version: tuple[int, ...]) -> Path:
        if not self.lock:
            return Path(sys.executable)
        older = self.lock_before_7 if redis_version < (7,) else ""
        return PYTHONS / (older or self.lock) / "bin" / "python"


def _taskiq(broker: str, settings: str, why: str, left: tuple[str, ...]) -> Peer:
    return Peer(
        f"taskiq, {broker}",
        "redis_taskiq.py",
        "taskiq",
        f"10 puts at once; max_async_tasks 100, max_prefetch 100, arguments not parsed, uvloop; {settings}",
        f"no verb for many, 10 puts no slower than 50; 100 tasks are its default, as fast as 10; {why}",
        option=broker,
        left=(left,),
    )


def _celery(pool: str, settings: str, why: str) -> Peer:
    return Peer(
        f"Celery, {pool}",
        "redis_celery.py",
        "celery",
        f"one producer; {settings}, prefetch multiplier 1,000, acks_late, ignore_result, no gossip",
        f"no verb for many; acks_late is its at-least-once; {why}",
        option=pool,
        left=(("HLEN", "unacked"), ("LLEN", "celery")),
    )


OURS: Final[Mapping[str, Peer]] = {
    "tidegate": Peer(
        "Tidegate, the store",
        "redis_tidegate.py",
        "tidegate",
        "1,000 messages in a put; claims of 100, four at once, each settled with a result that is kept",
        "a worker claims while others are settled; all limits checked, none binds",
        lock="",
    ),
    "facade": Peer(
        "Tidegate, send_many and its worker",
        "redis_tidegate.py",
        "tidegate",
        "the whole of it: a task for each call, a wire that answers at once",
        "what an application calls",
        lock="",
        option="facade",
    ),
}
PEERS: Final[Mapping[str, Peer]] = {
    "arq": Peer(
        "arq",
        "redis_arq.py",
        "arq",
        "10 puts at once; max_jobs 10, poll_delay 1 ms, keep_result 0, uvloop",
        "no verb for many, 10 puts as fast as 50; 10 jobs are its default, and 50 to 1,000 no faster, for it"
        " starts them one by one; with its own poll_delay, 0.5 s, it would wait",
        lock="arq",
        left=(("ZCARD", "arq:queue"),),
    ),
    "taskiq-list": _taskiq(
        "list",
        "ListQueueBroker",
        "a crash loses what it fetched: nothing is acknowledged",
        ("LLEN", "taskiq"),
    ),
    "taskiq-stream": _taskiq(
        "stream",
        "RedisStreamBroker",
        "at least once; 100 a read are its default",
        ("XPENDING", "taskiq", "taskiq"),
    ),
    "saq": Peer(
        "SAQ",
        "redis_saq.py",
        "saq",
        "10 puts at once; concurrency 20, ttl -1 (no result), uvloop",
        "its verbs for many wait for results; 10 puts as fast as 50; 20 jobs no slower than 50 or 90",
        left=(("ZCARD", "saq:default:incomplete"),),
    ),
    "streaq": Peer(
        "streaq",
        "redis_streaq.py",
        "streaq",
        "enqueue_many of 2,500; concurrency 32, prefetch 32, ttl 0 (no result), silent, uvloop",
        "its pipeline, faster than with 250 or 1,000; 16 to 128 tasks are alike;"
        " the newest needs Redis 7, version 5 does not",
        lock_before_7="streaq5",
        left=(("XLEN", "streaq:default:queues:normal"),),
    ),
    "celery-prefork": _celery("prefork", "two processes", "its default pool, a process for each core"),
    "celery-threads": _celery("threads", "ten threads", "for handlers that wait, as those of a bot do"),
    "celery-solo": _celery("solo", "no pool", "least work for each message"),
}
