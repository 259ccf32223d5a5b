"""Calls the application's `on_delivered` and `on_dead` functions, several at a time."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Message, Record, State

log = logging.getLogger("tidegate")

CALLBACKS_AT_ONCE: Final = 20
CALLBACK_GRACE: Final = 10.0  # seconds to wait for hooks when the gate closes

OnDelivered = Callable[[Message, Any], Awaitable[None]]
OnDead = Callable[[Message, str], Awaitable[None]]
Callback = TypeVar("Callback", OnDelivered, OnDead)


class DeliveryCallbacks:
    """A slow hook holds up neither delivery nor many others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._on_delivered: list[OnDelivered] = []
        self._on_dead: list[OnDead] = []
        self._ended: asyncio.Queue[Record] = asyncio.Queue()
        self._telling: asyncio.Task[None] | None = None

    def on_delivered(self, hook: OnDelivered) -> None:
        self._on_delivered.append(_checked(hook))

    def on_dead(self, hook: OnDead) -> None:
        self._on_dead.append(_checked(hook))

    def start(self) -> None:
        self._ended = asyncio.Queue()  # of this loop
        self._telling = asyncio.create_task(self._tell(), name="tidegate: hooks")

    async def stop(self) -> None:
        """Wait for those that run, for a while."""
        if self._telling is None:
            return
        try:
            async with self._clock.timeout(CALLBACK_GRACE):
                await self._ended.join()
        except TimeoutError:
            log.warning("some hooks did not end within %s s and are cancelled", CALLBACK_GRACE)
        self._telling.cancel()
        await asyncio.gather(self._telling, return_exceptions=True)
        self._telling = None

    def note(self, record: Record) -> None:
        """A message has ended."""
        if (record.state == State.DELIVERED and self._on_delivered) or (
            record.state == State.DEAD and self._on_dead
        ):
            self._ended.put_nowait(record)

    async def _tell(self) -> None:
        free = asyncio.Semaphore(CALLBACKS_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                record = await self._ended.get()
                await free.acquire()
                group.create_task(self._tell_one(record, free))

    async def _tell_one(self, record: Record, free: asyncio.Semaphore) -> None:
        try:
            await self._call(record)
        finally:
            free.release()
            self._ended.task_done()

    async def _call(self, record: Record) -> None:
        told: list[Awaitable[None]] = (
            [hook(record.message, record.result) for hook in self._on_delivered]
            if record.state == State.DELIVERED
            else [hook(record.message, record.reason or "") for hook in self._on_dead]
        )
        for error in await asyncio.gather(*told, return_exceptions=True):
            if isinstance(error, Exception):
                log.error("a hook failed for message %s", record.message.id, exc_info=error)


def _checked(hook: Callback) -> Callback:
    if not inspect.iscoroutinefunction(hook):
        raise BadInputError("a hook must be an async function: async def hook(message, …)")
    return hook
