"""One behavioural suite for every inbox, in virtual time."""

from collections.abc import AsyncIterator

import pytest

from contract.inbox.inboxes import INBOXES, House
from contract.inbox.porch import Porch
from tidegate.sim.virtual_time import VirtualClock


@pytest.fixture(params=INBOXES)
def house(request: pytest.FixtureRequest, clock: VirtualClock) -> House:
    return INBOXES[request.param](clock)


@pytest.fixture
async def porch(house: House, clock: VirtualClock) -> AsyncIterator[Porch]:
    await house.open()
    yield Porch(house.inbox, clock)
    await house.close()
