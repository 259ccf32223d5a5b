"""An office of its own for each test."""

from collections.abc import AsyncIterator

import pytest

from tidegate.sim.virtual_time import VirtualClock
from unit.broadcast.office import Office, office


@pytest.fixture
async def here(clock: VirtualClock) -> AsyncIterator[Office]:
    async with office(clock) as here:
        yield here
