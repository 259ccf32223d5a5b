"""The table of orders in NocoDB. The cashier ticks Paid there."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from payment_bot.order_ids import order_id
from payment_bot.together import Together
from tidegate import Clock, Subscription, Table
from tidegate.nocodb import all_of, checked, eq, negate, one_of, since, truth

COLUMNS: Final = {
    "OrderId": "SingleLineText",
    "Cause": "SingleLineText",
    "UserId": "SingleLineText",
    "Price": "SingleLineText",
    "Status": "SingleLineText",
    "Paid": "Checkbox",
}
MOST: Final = 100  # records that NocoDB takes in one request
FRESH: Final = 5.0  # seconds: the most that figures for admins may be old
PAID: Final = checked("Paid")
CANCELLED: Final = eq("Status", "cancelled")


class Wish(NamedTuple):
    """An order to create. A repeated wish has the same `cause`, and gets the same order."""

    cause: str
    user: int
    taken: int = 0

    @property
    def order_id(self) -> str:
        return order_id(self.cause, self.taken)


class Counts(NamedTuple):
    waiting: int
    paid: int
    cancelled: int
    paid_after_all: int  # cancelled orders: to be refunded


class Orders:
    """Creates and cancels orders. Simultaneous ones share requests: of NocoDB's five a second they use two,
    at most one and a half of them for cancellations. The rest is for polling.
    """

    def __init__(self, table: Table, price: str, clock: Clock) -> None:
        self.table = table
        self._price = price
        self._clock = clock
        self._create = Together(self._create_all, most=MOST, every=1.0, clock=clock)
        self._cancel = Together(self._cancel_all, most=MOST, every=2.0, clock=clock)

    async def create(self, cause: str, user: int) -> str:
        """Create an order and return its unique number. The same cause gives the same number."""
        wish = Wish(cause, user)
        while await self._create(wish) != cause:  # the number belongs to another order
            wish = wish._replace(taken=wish.taken + 1)
        return wish.order_id

    async def cancel(self, order: str) -> bool:
        """Cancel an order; returns False if it is paid, and then changes nothing."""
        return await self._cancel(order)

    async def open(self, lifetime: float) -> AsyncIterator[Subscription]:
        """Yield who waits for the payment of an order of the last `lifetime` seconds."""
        new = since("CreatedAt", self._clock.now() - lifetime)
        unpaid = all_of(eq("Status", "waiting"), negate(PAID), new)
        async for rows in self.table.pages(unpaid, fields=("Id", "OrderId", "UserId"), background=True):
            for row in rows:
                if user := int(row["UserId"] or 0):  # a row made by hand may have none
                    yield Subscription(str(row["OrderId"]), {"user_id": user, "chat_id": user})

    async def count(self) -> Counts:
        paid_after_all = await self._count(PAID, CANCELLED)
        paid = await self._count(PAID) - paid_after_all
        cancelled = await self._count(CANCELLED)
        waiting = await self._count() - paid - cancelled
        return Counts(waiting, paid, cancelled, paid_after_all)

    async def _count(self, *parts: Any) -> int:  # noqa: ANN401  (conditions)
        return await self.table.count(all_of(*parts) if parts else None, fresh_for=FRESH)

    async def _create_all(self, wishes: Sequence[Wish]) -> Mapping[Wish, str]:
        """Return the cause of each number. Orders are looked up first: a process that died, or a request
        whose answer was lost, may have created them.
        """
        causes = await self._causes(wish.order_id for wish in wishes)
        new = {wish.order_id: wish for wish in wishes if wish.order_id not in causes}
        if new:
            await self.table.create([self._row(wish) for wish in new.values()])
        return {wish: causes.get(wish.order_id) or new[wish.order_id].cause for wish in wishes}

    async def _causes(self, ids: Iterable[str]) -> dict[str, str]:
        asked = one_of("OrderId", dict.fromkeys(ids))
        page = await self.table.list(asked, fields=("Id", "OrderId", "Cause"), limit=10 * MOST)
        return {str(row["OrderId"]): str(row["Cause"]) for row in page.rows}

    def _row(self, wish: Wish) -> dict[str, Any]:
        return {
            "OrderId": wish.order_id,
            "Cause": wish.cause,
            "UserId": str(wish.user),
            "Price": self._price,
            "Status": "waiting",
            "Paid": False,
        }

    async def _cancel_all(self, orders: Sequence[str]) -> Mapping[str, bool]:
        """Write first, then read: a payment in between is not overlooked."""
        asked = all_of(one_of("OrderId", orders), negate(PAID))
        open_ = await self.table.list(asked, fields=("Id", "OrderId"), limit=10 * MOST)
        if open_.rows:
            await self.table.update([{"Id": row["Id"], "Status": "cancelled"} for row in open_.rows])
        rows = (await self.table.list(one_of("OrderId", orders), limit=10 * MOST)).rows
        paid = {str(row["OrderId"]) for row in rows if truth(row.get("Paid"))}
        return {order: order not in paid for order in orders}
