"""Unit tests live in virtual time: sleeping costs nothing, and a deadlock is an error."""

import asyncio
from typing import Any

import pytest

from tidegate.sim.virtual_time import VirtualClock, VirtualLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock(asyncio.get_running_loop())
