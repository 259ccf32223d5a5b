"""A simulated NocoDB whose limit is out of the way, with one table that has columns of every kind."""

from typing import Any

import msgspec
import pytest

from tidegate.sim.nocodb import SimulatedNocoDb
from tidegate.sim.nocodb.nocodb import NocoWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.upstream.transport import UpstreamRequest, UpstreamResponse
from unit.sim.nocodb.noco_tables import COLUMNS, LOOSE, Ask


@pytest.fixture
async def noco(clock: VirtualClock) -> SimulatedNocoDb:
    return SimulatedNocoDb(clock, limits=LOOSE)


@pytest.fixture
async def table(noco: SimulatedNocoDb) -> str:
    return noco.create_table("orders", columns=COLUMNS)


@pytest.fixture
async def ask(noco: SimulatedNocoDb, table: str) -> Ask:
    """A request for the table's records; gives status and body."""
    wire = NocoWire(noco, token="any")

    async def request(
        method: str = "GET", path: str = "", *, body: object = None, of: str = table, **query: object
    ) -> tuple[int, Any]:
        asked = tuple((name, str(value)) for name, value in query.items())
        address = f"api/v2/tables/{of}/records{path}"
        answer = await wire.send(UpstreamRequest(method=method, path=address, query=asked, body=body))
        assert isinstance(answer, UpstreamResponse)
        return answer.status, msgspec.json.decode(answer.body)

    return request
