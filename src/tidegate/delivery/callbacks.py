"""Calls the application's `on_delivered` and `on_dead` functions, several at a time."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Message, Record, State
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate")

CALLBACKS_AT_ONCE: Final = 20
CALLBACK_GRACE: Final = 10.0  # seconds to wait for callbacks when the gate closes

OnDelivered = Callable[[Message, Any], Awaitable[None]]
OnDead = Callable[[Message, str], Awaitable[None]]
Callback = TypeVar("Callback", OnDelivered, OnDead)


class DeliveryCallbacks:
    """The application's callbacks, called beside delivery: a slow one delays neither it nor many others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._on_delivered: list[OnDelivered] = []
        self._on_dead: list[OnDead] = []
        self._ended: asyncio.Queue[Record] = asyncio.Queue()
        self._tasks = BackgroundTasks()

    def on_delivered(self, callback: OnDelivered) -> None:
        self._on_delivered.append(_checked(callback))

    def on_dead(self, callback: OnDead) -> None:
        self._on_dead.append(_checked(callback))

    def start(self) -> None:
        self._ended = asyncio.Queue()  # of this loop
        self._tasks.start(self._call_all(), "callbacks")

    async def stop(self) -> None:
        """Wait for running callbacks, for a while."""
        if not self._tasks:
            return
        try:
            async with self._clock.timeout(CALLBACK_GRACE):
                await self._ended.join()
        except TimeoutError:
            log.warning("some callbacks did not end within %s s and are cancelled", CALLBACK_GRACE)
        await self._tasks.stop()

    def note(self, record: Record) -> None:
        """A message has ended."""
        if (record.state == State.DELIVERED and self._on_delivered) or (
            record.state == State.DEAD and self._on_dead
        ):
            self._ended.put_nowait(record)

    async def _call_all(self) -> None:
        free = asyncio.Semaphore(CALLBACKS_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                record = await self._ended.get()
                await free.acquire()
                group.create_task(self._call_for(record, free))

    async def _call_for(self, record: Record, free: asyncio.Semaphore) -> None:
        try:
            await self._call(record)
        finally:
            free.release()
            self._ended.task_done()

    async def _call(self, record: Record) -> None:
        calls: list[Awaitable[None]] = (
            [callback(record.message, record.result) for callback in self._on_delivered]
            if record.state == State.DELIVERED
            else [callback(record.message, record.reason or "") for callback in self._on_dead]
        )
        for error in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(error, Exception):
                log.error("a callback failed for message %s", record.message.id, exc_info=error)


def _checked(callback: Callback) -> Callback:
    if not inspect.iscoroutinefunction(callback):
        raise BadInputError("a callback must be an async function: async def callback(message, …)")
    return callback
