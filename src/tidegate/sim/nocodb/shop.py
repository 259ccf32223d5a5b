"""A table of orders that are paid one after another: something to poll in demonstrations."""

import random
from typing import Any

from tidegate.sim.nocodb.nocodb import SimulatedNocoDb

COLUMNS = {
    "OrderId": "SingleLineText",
    "Title": "SingleLineText",
    "Email": "Email",
    "Amount": "Number",
    "Total": "Number",
    "State": "SingleLineText",
    "Paid": "Checkbox",
    "PaidAt": "DateTime",
    "chat": "Number",
    "user_id": "Number",
    "username": "SingleLineText",
}
GOODS = ("Tea", "Coffee", "Cocoa")
FIRST_PERSON = 1_000  # order 1 is that of user 1001
BATCH = 1_000  # orders taken at once


def order(number: int) -> dict[str, Any]:
    """Return an unpaid order, with the fields that a bot would keep beside it."""
    amount, person = number % 90 + 10, FIRST_PERSON + number
    return {
        "OrderId": f"A-{number}",
        "Title": GOODS[number % len(GOODS)],
        "Email": f"user{number}@example.com",
        "Amount": amount,
        "Total": 10 * amount,
        "State": "awaiting_payment",
        "chat": person,
        "user_id": person,
        "username": f"user{number}",
    }


class Shop:
    def __init__(self, noco: SimulatedNocoDb, orders: int, *, seed: int = 0) -> None:
        self._noco = noco
        self._draw = random.Random(seed)  # noqa: S311  (repeatable, not secret)
        self.table = noco.create_table("orders", columns=COLUMNS)
        self._unpaid: list[int] = []
        for first in range(1, orders + 1, BATCH):
            numbers = range(first, min(first + BATCH, orders + 1))
            self._unpaid += noco.insert(self.table, [order(number) for number in numbers])
        self.paid = 0

    async def pay_every(self, seconds: float) -> None:
        """Pay one order after another, in random order, until all are paid."""
        self._draw.shuffle(self._unpaid)
        while self._unpaid:
            await self._noco.clock.sleep(seconds)
            self.pay_one()

    def pay_one(self) -> None:
        """Pay the next order, unless it was deleted."""
        order = self._unpaid.pop()
        if self._noco.tables.get(self.table) is not None and self._noco.tables[self.table].has(order):
            self._noco.pay(self.table, order)
            self.paid += 1
