from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.post import Post
from restarts import Disk
from tidegate.sim.virtual_time import VirtualClock


@pytest.fixture
async def disk(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Disk]:
    disk = Disk(tmp_path / "store.db", clock)
    yield disk
    for outbox in disk.opened:
        await outbox.close()


@pytest.fixture
async def post(disk: Disk) -> Post:
    return await disk.sender()
