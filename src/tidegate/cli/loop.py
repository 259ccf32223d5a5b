"""How a command runs its event loop, and how Ctrl-C and SIGTERM end it."""

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from tidegate.clock import Clock

Result = TypeVar("Result")
FRAME = 0.25  # seconds between two looks at something that runs


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """On uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415  (not on every platform)
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def stop_signal() -> asyncio.Event:
    """Set by Ctrl-C and by SIGTERM, which from now on do nothing else."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows, Ctrl-C stays a KeyboardInterrupt
            loop.add_signal_handler(number, stop.set)
    return stop


async def frames(stop: asyncio.Event, clock: Clock) -> AsyncIterator[None]:
    """A few times a second until `stop`, and at once when it comes."""
    while not stop.is_set():
        yield
        with suppress(TimeoutError):
            async with clock.timeout(FRAME):
                await stop.wait()


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """`work` goes on while the body runs, and is cancelled after it."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()
