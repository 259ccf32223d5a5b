"""Unit tests live in virtual time: sleeping costs nothing, and a deadlock is an error."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.stores import FAST
from simulated import TOKEN
from tidegate import Tidegate
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock, VirtualLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock(asyncio.get_running_loop())


@pytest.fixture
def no_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which a reply has to wait for its turn."""
    monkeypatch.setenv("TIDEGATE_REPLY_BURST", "1")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: files that survive a crash of the machine are not a matter of unit tests."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        yield Path(folder)


@pytest.fixture
async def telegram(clock: VirtualClock) -> SimulatedTelegram:
    return SimulatedTelegram(clock)


@pytest.fixture
async def gate(clock: VirtualClock, telegram: SimulatedTelegram) -> AsyncIterator[Tidegate]:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    async with gate:
        yield gate
