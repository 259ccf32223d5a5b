"""A table of orders, some of which are paid now and then: something to poll, for whoever has nothing yet."""

import random

from tidegate.sim.nocodb.nocodb import NocoDb

COLUMNS = {"OrderId": "SingleLineText", "Amount": "Number", "Paid": "Checkbox", "PaidAt": "DateTime"}
BATCH = 1_000  # orders taken at once


class Shop:
    def __init__(self, noco: NocoDb, orders: int, *, seed: int = 0) -> None:
        self._noco = noco
        self._draw = random.Random(seed)  # noqa: S311  (repeatable, not secret)
        self.table = noco.create_table("orders", columns=COLUMNS)
        self._unpaid: list[int] = []
        for first in range(1, orders + 1, BATCH):
            numbers = range(first, min(first + BATCH, orders + 1))
            rows = [{"OrderId": f"A-{number}", "Amount": number % 90 + 10} for number in numbers]
            self._unpaid += noco.insert(self.table, rows)
        self.paid = 0

    async def pay_every(self, seconds: float) -> None:
        """Pay one order after the other, in no order, until all are paid."""
        self._draw.shuffle(self._unpaid)
        while self._unpaid:
            await self._noco.clock.sleep(seconds)
            self.pay_one()

    def pay_one(self) -> None:
        """One that somebody has deleted meanwhile is passed over."""
        order = self._unpaid.pop()
        if self._noco.tables.get(self.table) is not None and self._noco.tables[self.table].has(order):
            self._noco.pay(self.table, order)
            self.paid += 1
