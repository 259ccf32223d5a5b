"""The event loop of a command, and how Ctrl-C and SIGTERM stop it."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from tidegate.clock import Clock

Result = TypeVar("Result")
FRAME = 0.25  # seconds between two pictures


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine, on uvloop if it is installed."""
    try:
        import uvloop  # noqa: PLC0415  (not on every platform)
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def stop_signal() -> asyncio.Event:
    """Return an event that Ctrl-C and SIGTERM set. Ctrl-C after that ends the process at once.

    Even then all tasks are cancelled, so that calls in flight are settled as interrupted, and stores closed.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        if stop.is_set() and number == signal.SIGINT:
            # The pool of SQLAlchemy would print a traceback for each connection that is cut off now.
            logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
            raise SystemExit(128 + number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows, Ctrl-C stays a KeyboardInterrupt
            loop.add_signal_handler(number, handle, number)
    return stop


async def frames(stop: asyncio.Event, clock: Clock) -> AsyncIterator[None]:
    """Yield a few times a second until `stop` is set."""
    while not stop.is_set():
        yield
        with suppress(TimeoutError):
            async with clock.timeout(FRAME):
                await stop.wait()


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run `work` while the body runs, and cancel it after that."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()
