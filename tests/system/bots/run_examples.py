"""How a loaded example runs inside a test: in its event loop, until somebody has talked to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from socket import socket
from types import ModuleType
from typing import Protocol

import pytest


class Run(Protocol):
    def __call__(
        self, module: ModuleType, patch: pytest.MonkeyPatch
    ) -> AbstractAsyncContextManager[None]: ...


@asynccontextmanager
async def ended_by_itself(main: Awaitable[None]) -> AsyncIterator[None]:
    """The body asks it to end; what it raised is raised."""
    running = asyncio.ensure_future(main)
    try:
        yield
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def forever(module: ModuleType, patch: pytest.MonkeyPatch) -> AsyncIterator[None]:  # noqa: ARG001  (as the others)
    """An example with a loop of its own, which somebody has to end."""
    running = asyncio.ensure_future(module.main())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def listening() -> tuple[socket, str]:
    """A socket on a free port of loopback, and its address."""
    bound = socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    bound.setblocking(False)  # noqa: FBT003  (its only form)
    return bound, f"http://127.0.0.1:{bound.getsockname()[1]}"
