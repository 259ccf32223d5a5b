"""One behavioural suite for every inbox, in virtual time."""

from collections.abc import AsyncIterator

import pytest

from contract.inbox.inbox_driver import InboxDriver
from contract.inbox.inboxes import INBOXES, StoredInbox
from tidegate.sim.virtual_time import VirtualClock


@pytest.fixture(params=INBOXES)
def stored(request: pytest.FixtureRequest, clock: VirtualClock) -> StoredInbox:
    return INBOXES[request.param](clock)


@pytest.fixture
async def driver(stored: StoredInbox, clock: VirtualClock) -> AsyncIterator[InboxDriver]:
    await stored.open()
    yield InboxDriver(stored.inbox, clock)
    await stored.close()
