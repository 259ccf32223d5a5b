"""Calls the application's `on_delivered` and `on_dead` functions, each apart from the others."""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.events import Ended, EventStream
from tidegate.model import Message, State
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate")

CALLS_AT_ONCE: Final = 20  # of one callback
CALL_TIMEOUT: Final = 30.0  # seconds after which a call of a callback is cancelled
MOST_WAITING: Final = 10_000  # calls of one callback that wait; more are dropped
CALLBACK_GRACE: Final = 10.0  # seconds to wait for callbacks when the gate closes

OnDelivered = Callable[[Message, Any], Awaitable[None]]
OnDead = Callable[[Message, str], Awaitable[None]]
Callback = TypeVar("Callback", OnDelivered, OnDead)


class DeliveryCallbacks:
    """The application's callbacks, called beside delivery: a slow one delays neither it nor another one."""

    def __init__(self, clock: Clock, events: EventStream) -> None:
        self._clock = clock
        events.subscribe(Ended, self._note)
        self._on_delivered: list[CallbackQueue] = []
        self._on_dead: list[CallbackQueue] = []

    def on_delivered(self, callback: OnDelivered) -> None:
        self._on_delivered.append(CallbackQueue(_checked(callback, "result"), self._clock))

    def on_dead(self, callback: OnDead) -> None:
        self._on_dead.append(CallbackQueue(_checked(callback, "reason"), self._clock))

    def _note(self, event: Ended) -> None:
        record = event.record
        if record.state == State.DELIVERED:
            for queue in self._on_delivered:
                queue.add(record.message, record.result)
        elif record.state == State.DEAD:
            for queue in self._on_dead:
                queue.add(record.message, record.reason or "")

    @property
    def dropped(self) -> int:
        """How many calls were not made because too many waited."""
        return sum(queue.dropped for queue in (*self._on_delivered, *self._on_dead))

    async def stop(self) -> None:
        """Wait for the calls that are due, for a while, and cancel the rest."""
        queues = [queue for queue in (*self._on_delivered, *self._on_dead) if queue.is_busy]
        try:
            async with self._clock.timeout(CALLBACK_GRACE):
                for queue in queues:
                    await queue.join()
        except TimeoutError:
            pass
        finally:
            for queue in queues:
                await queue.stop()


class CallbackQueue:
    """The calls of one callback: some at a time, each with a time limit, a bounded number that wait."""

    def __init__(self, callback: Callable[[Message, Any], Awaitable[None]], clock: Clock) -> None:
        self._callback = callback
        self._name = getattr(callback, "__qualname__", None) or type(callback).__qualname__
        self._clock = clock
        self._waiting: deque[tuple[Message, Any]] = deque()
        self._tasks = BackgroundTasks()
        self._dropped_since = 0  # since the queue was full
        self.dropped = 0

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def add(self, message: Message, told: object) -> None:
        if len(self._waiting) >= MOST_WAITING:
            if not self._dropped_since:
                log.error(
                    "the callback %s is too slow: %d calls wait, further ones are dropped",
                    self._name,
                    MOST_WAITING,
                )
            self._dropped_since += 1
            self.dropped += 1
            return
        self._waiting.append((message, told))
        if len(self._tasks) < CALLS_AT_ONCE:
            self._tasks.start(self._call_all(), f"callback {self._name}")

    async def join(self) -> None:
        await self._tasks.join()

    async def stop(self) -> None:
        """Cancel running calls and give up those that wait."""
        unfinished = len(self._waiting) + len(self._tasks)
        if unfinished:
            log.warning(
                "the callback %s did not end for %d messages within %g s: given up",
                self._name,
                unfinished,
                CALLBACK_GRACE,
            )
        self._waiting.clear()
        await self._tasks.stop()

    async def _call_all(self) -> None:
        while self._waiting:
            message, told = self._waiting.popleft()
            if self._dropped_since and len(self._waiting) < MOST_WAITING // 2:
                log.error("the callback %s was not called for %d messages", self._name, self._dropped_since)
                self._dropped_since = 0
            await self._call(message, told)

    async def _call(self, message: Message, told: object) -> None:
        limit = self._clock.timeout(CALL_TIMEOUT)
        try:
            async with limit:
                await self._callback(message, told)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            log.exception("the callback %s was cancelled for message %s", self._name, message.id)
        except Exception:
            if not limit.expired():
                log.exception("the callback %s failed for message %s", self._name, message.id)
                return
            text = "the callback %s did not end within %g s for message %s: cancelled"
            log.error(text, self._name, CALL_TIMEOUT, message.id)  # noqa: TRY400  (the traceback is ours)


def _checked(callback: Callback, second: str) -> Callback:
    if not inspect.iscoroutinefunction(callback) and not inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004  (of an object, whose method may be async)
    ):
        raise BadInputError(
            f"a callback must be an async function: async def callback(message, {second}), not {callback!r}"
        )
    try:
        inspect.signature(callback).bind(None, None)
    except TypeError:
        raise BadInputError(
            f"the callback {callback!r} is called with two arguments: async def callback(message, {second})"
        ) from None
    return callback
