"""A shop with orders in a simulated NocoDB and subscribers that wait for payments, in virtual time."""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from tidegate.model import Rate
from tidegate.polling.delta import DeltaPoller
from tidegate.polling.nocodb import changes
from tidegate.polling.subscriptions import News, Subscription
from tidegate.sim.nocodb import Faults, SimulatedNocoDb
from tidegate.sim.nocodb.nocodb import NocoWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.upstream.client import Upstream
from tidegate.upstream.limiter import MemoryLimiter
from tidegate.upstream.nocodb.client import NocoDb as Client
from tidegate.upstream.nocodb.table import Table
from tidegate.upstream.nocodb.where import Where, checked

COLUMNS = {"OrderId": "SingleLineText", "Paid": "Checkbox", "Status": "SingleLineText", "User": "Number"}


class Told(msgspec.Struct, frozen=True):
    at: float
    key: str
    kind: str
    value: Any


class Shop:
    """`told` is what subscribers heard, in order, with the virtual second."""

    def __init__(self, clock: VirtualClock, *, faults: Faults | None = None, seed: int = 0) -> None:
        self.clock = clock
        self.noco = SimulatedNocoDb(clock, faults=faults, seed=seed)
        self.table_id = self.noco.create_table("orders", columns=COLUMNS)
        limiter = MemoryLimiter(Rate(5, 1), clock)
        self.upstream = Upstream(NocoWire(self.noco), name="nocodb", limiter=limiter, clock=clock)
        self.table: Table = Client(self.upstream).table(self.table_id)
        self.upstream._requester._draw = random.Random(seed)  # noqa: SLF001  (the same run each time)
        self.told: list[Told] = []

    def order(self, count: int, **fields: object) -> list[int]:
        """New orders, not paid; their ids."""
        there = len(self.noco.tables[self.table_id].rows)
        rows = [{"OrderId": f"A-{there + n}", "User": n, **fields} for n in range(1, count + 1)]
        return self.noco.insert(self.table_id, rows)

    def pay(self, order: int, commit_after: float = 0.0) -> None:
        self.noco.pay(self.table_id, order, commit_after=commit_after)

    def poller(self, condition: Where = checked("Paid"), key: str = "Id", **options: Any) -> DeltaPoller:  # noqa: ANN401, B008
        """A poller whose deltas come as fast as half of the limit allows, unless `interval` is given."""
        source, options = changes(self.table, key=key, condition=condition), {"interval": 0.4, **options}
        return DeltaPoller(source, notify=self.notify, clock=self.clock, **options)

    def notify(self, subscription: Subscription, news: News) -> None:
        self.told.append(Told(self.clock.monotonic(), subscription.key, news.kind, news.value))

    def heard(self, key: int | str) -> list[str]:
        return [told.kind for told in self.told if told.key == str(key)]

    async def until(self, is_so: Callable[[], bool], within: float) -> float:
        """Wait for it in steps of a tenth; the seconds that it took."""
        began = self.clock.monotonic()
        while not is_so():
            took = self.clock.monotonic() - began
            assert took < within, f"not within {within} s; told so far: {self.told[-5:]}"
            await self.clock.sleep(0.1)
        return self.clock.monotonic() - began
