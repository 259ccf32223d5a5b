"""The handler that runs now: how long it waited for the gate itself, and whether it may be run again."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from tidegate.errors import BadInputError

Handler = TypeVar("Handler", bound=Callable[..., Coroutine[Any, Any, Any]])


class HandlerRun:
    """One run of a handler, also as seen by the tasks that it starts."""

    def __init__(self) -> None:
        self.is_repeatable = False  # set by the handler: it may be run again after it was cut off
        self._began = _loop_time()
        self._waits = 0  # tasks that wait for the gate now
        self._waiting_since = 0.0
        self._waited = 0.0  # seconds

    def own_seconds(self) -> float:
        """Return how long it runs, without its waits for the gate: those have bounds of their own."""
        now = _loop_time()
        waiting = now - self._waiting_since if self._waits else 0.0
        return now - self._began - self._waited - waiting

    def begin_wait(self) -> None:
        if not self._waits:
            self._waiting_since = _loop_time()
        self._waits += 1

    def end_wait(self) -> None:
        self._waits -= 1
        if not self._waits:
            self._waited += _loop_time() - self._waiting_since


_running: ContextVar[HandlerRun | None] = ContextVar("tidegate_handler_run", default=None)


def current_run() -> HandlerRun | None:
    """Return the run that this task is part of."""
    return _running.get()


@contextmanager
def running(run: HandlerRun) -> Iterator[None]:
    """Make it the run of everything that is awaited or started within."""
    before = _running.set(run)
    try:
        yield
    finally:
        _running.reset(before)


@contextmanager
def waiting_for_gate() -> Iterator[None]:
    """While the body runs, the gate itself works, as on a turn: no deadline of a handler counts that."""
    run = _running.get()
    if run is None:
        yield
        return
    run.begin_wait()
    try:
        yield
    finally:
        run.end_wait()


def mark_repeatable() -> None:
    """The handler that runs now may be run again, from its start, if it is cut off."""
    run = _running.get()
    if run is not None:
        run.is_repeatable = True


def repeatable(handler: Handler) -> Handler:
    """Mark a handler that may be run again. Its signature stays: libraries look at it."""
    if not inspect.iscoroutinefunction(handler):
        raise BadInputError(f"repeatable is for an async handler, not {handler!r}")

    @functools.wraps(handler)
    async def marked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (the handler's)
        mark_repeatable()
        return await handler(*args, **kwargs)

    return cast("Handler", marked)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
