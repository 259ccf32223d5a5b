"""The stores under contract. A new one is one more line in `STORES`."""

import atexit
import functools
import os
import shutil
import tempfile
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

from contract.inline_redis import InlineConnection
from servers import redis_server
from tidegate.clock import Clock
from tidegate.events import EventStream
from tidegate.outbox.event_log import EventLog
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules
from tidegate.stores.memory.outbox import MemoryOutbox
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.sqlite.outbox import SqliteOutbox


def _in_memory() -> str | None:
    """A folder in memory with room for the largest store of a test; a container may have 64 MB."""
    folder = "/dev/shm"  # noqa: S108
    return folder if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2**30 else None


# What the disk keeps is tested elsewhere; here it would only be waited for.
FAST: Final = _in_memory()


class Store(Protocol):
    """How a store is made: not opened yet, empty, with time from `clock`."""

    def __call__(self, clock: Clock, rules: Rules, *, lease: float, keep: float) -> Outbox: ...


class OnlySender(SqliteOutbox):
    """Sends from the start, and is alone: nothing has to be looked for in virtual years of waiting."""

    async def open(self) -> None:
        await super().open()
        await self.start_sending()


def logged_events(clock: Clock) -> EventStream:
    """The events of a store, written to the log as a gate does."""
    events = EventStream()
    EventLog(events, clock)
    return events


def memory(clock: Clock, rules: Rules, *, lease: float, keep: float) -> Outbox:
    return MemoryOutbox(clock, rules, lease=lease, keep=keep, events=logged_events(clock))


def sqlite(clock: Clock, rules: Rules, *, lease: float, keep: float) -> Outbox:
    folder = tempfile.TemporaryDirectory(dir=FAST)
    path, events = Path(folder.name, "store.db"), logged_events(clock)
    outbox = OnlySender(path, clock, rules, lease=lease, keep=keep, poll=3600.0, events=events)
    weakref.finalize(outbox, folder.cleanup)
    return outbox


def redis(clock: Clock, rules: Rules, *, lease: float, keep: float) -> Outbox:
    link, events = InlineConnection(redis_url(), clock), logged_events(clock)
    return RedisOutbox(link, clock, rules, lease=lease, keep=keep, events=events)


@functools.cache
def redis_url() -> str:
    """One for all tests of a process, until that ends."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(redis_server()).url


STORES: Final[dict[str, Store]] = {"memory": memory, "sqlite": sqlite, "redis": redis}
SLOW: Final = {"redis": 4}  # each step is a round trip: a fourth of the examples
