"""Where a scenario is played: a NocoDB with a row for each person, and a way to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidegate.clock import Clock
from tidegate.sim.nocodb import NocoDb, NocoFaults
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.nocodb.wire import NocoWire
from tidegate.sim.polling.scenario import Scenario
from tidegate.sim.telegram.faults import Latency
from tidegate.upstream.http import HttpWire
from tidegate.upstream.wire import Wire

TOKEN = "demo"  # noqa: S105  (of a server that is simulated)
TIMEOUT = 10.0  # seconds
WAITING = "awaiting_payment"


class Place:
    """The table's rows are numbered from 1; a row's number, as text, is the key of the person."""

    def __init__(self, noco: NocoDb, wire: Wire, users: int) -> None:
        self.noco, self.wire = noco, wire
        self.table = noco.create_table("orders", key="Id")
        self.keys = [str(number) for number in range(1, users + 1)]
        noco.insert(
            self.table, [{"Order": f"order-{key}", "State": WAITING, "Paid": False} for key in self.keys]
        )


@asynccontextmanager
async def virtual_place(scenario: Scenario, clock: Clock) -> AsyncIterator[Place]:
    """In this process, without HTTP."""
    noco = NocoDb(clock, limits=scenario.limits, faults=_faults(scenario), seed=scenario.seed)
    yield Place(noco, NocoWire(noco, token=TOKEN, timeout=TIMEOUT), scenario.users)


@asynccontextmanager
async def real_place(scenario: Scenario, clock: Clock) -> AsyncIterator[Place]:
    """Behind real HTTP on the loopback interface."""
    async with NocoDbServer(limits=scenario.limits, faults=_faults(scenario), seed=scenario.seed) as server:
        wire = HttpWire(server.url, headers={"xc-token": TOKEN}, clock=clock, timeout=TIMEOUT)
        try:
            yield Place(server.noco, wire, scenario.users)
        finally:
            await wire.close()


def _faults(scenario: Scenario) -> NocoFaults:
    low, high = scenario.latency
    each_way = Latency(low / 2, high / 2)
    return NocoFaults(latency_in=each_way, latency_out=each_way)
