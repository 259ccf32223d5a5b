"""The simulated customers of the payment demo, with the Telegram and the NocoDB around them."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from tidegate.clock import Clock
from tidegate.flows import Flow
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.telegram import Faults, Latency, Limits, Person
from tidegate.sim.telegram.entities import Json
from tidegate.sim.telegram.http import TelegramServer
from tidegate.templates import fill

CustomerStage = Literal[
    "coming", "choosing", "ordering", "ordered", "paid", "cancelling", "confirmed", "cancelled"
]


class Cashier(NamedTuple):
    """Where customers pay, and the texts that confirm a payment or a cancellation of an order."""

    pay: Callable[[str], None]
    confirmation: Callable[[str], str]
    cancellation: Callable[[str], str]


ORDER: Final = re.compile(r"TG-\w{4}-\w{4}")
THINKS: Final = (0.5, 3.0)  # seconds before each step
READ_SECONDS: Final = 600.0  # longer than any run


class Customer:
    """A customer who orders, then pays or cancels. Times are monotonic."""

    def __init__(self, person: Person, clock: Clock, draw: random.Random, *, pays: bool) -> None:
        self.thinks = THINKS
        self.stage: CustomerStage = "coming"
        self.order: str | None = None
        self.paid_at: float | None = None
        self.told_at: float | None = None
        self.pays = pays
        self._person = person
        self._clock = clock
        self._draw = draw
        self._read: Counter[str] = Counter()

    async def live(self, begin: float, slowness: float, till: Cashier) -> None:
        """Order after `begin` seconds, and pay within `slowness` seconds after the order."""
        await self._clock.sleep(begin)
        self._person.says("/start")
        self._enter("choosing")
        await self._reads()
        await self._thinks()
        self._press(0)
        self._enter("ordering")
        self.order = await self._finds_order()
        self._enter("ordered")
        if self.pays:
            await self._clock.sleep(self._draw.uniform(0, slowness))
            await self._pay(self.order, till)
        else:
            await self._thinks()
            await self._cancel(till.cancellation(self.order))

    async def _pay(self, order: str, till: Cashier) -> None:
        till.pay(order)
        self.paid_at = self._clock.monotonic()
        self._enter("paid")
        await self._hears(till.confirmation(order))
        self.told_at = self._clock.monotonic()
        self._enter("confirmed")

    async def _cancel(self, answer: str) -> None:
        self._press(0)
        self._enter("cancelling")
        await self._hears(answer)
        self._enter("cancelled")

    @property
    def id(self) -> int:
        return self._person.id

    @property
    def heard(self) -> Counter[str]:
        """How often the customer got which text."""
        return self._read + Counter(str(message.get("text")) for message in self._person.heard)

    @property
    def doubled(self) -> int:
        """Messages that the customer had got before: no step says the same twice."""
        heard = self.heard
        return heard.total() - len(heard)

    async def _finds_order(self) -> str:
        while True:
            message = await self._reads()
            if (found := ORDER.search(str(message.get("text")))) is not None:
                return found[0]

    async def _hears(self, words: str) -> None:
        while (await self._reads()).get("text") != words:
            pass

    async def _reads(self) -> Json:
        message = await self._person.hears(READ_SECONDS)
        self._read[str(message.get("text"))] += 1
        return message

    async def _thinks(self) -> None:
        await self._clock.sleep(self._draw.uniform(*self.thinks))

    def _press(self, number: int) -> None:
        self._person.presses(self._person.buttons()[number])

    def _enter(self, stage: CustomerStage) -> None:
        self.stage = stage


LANGUAGE = "en"  # of all customers


class ExpectedTexts:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def confirmation(self, order: str) -> str:
        return self._say("confirmed", order)

    def cancellation(self, order: str) -> str:
        return self._say("cancelled", order)

    def _say(self, state: str, order: str) -> str:
        said = self._flow.by_name[state].say or ""
        return fill(self._flow.text(said, LANGUAGE), {"order_id": order}, self._flow.parse_mode)


TOKEN: Final = "42:demo"  # noqa: S105  (of a bot that exists in the simulator only)
BOOKS_TOKEN: Final = "demo"  # noqa: S105  (of a NocoDB that is simulated)
EACH_WAY: Final = Latency(5, 40)
FIRST: Final = 1_000_001
COMING: Final = 6.0  # customers in a second: with three messages each, below Telegram's 30
LEAST_COMING: Final = 5.0  # seconds in which they come, at least
SLOWNESS: Final = 20.0  # seconds from order to payment, at most
CANCELLING_SHARE: Final = 0.1  # of all customers
EARLIER: Final = 50  # older orders in the table


class PaymentWorld:
    """Counts at the other ends of the wires. The limits are those of the real services, unless others are
    given.
    """

    def __init__(
        self,
        users: int,
        columns: dict[str, str],
        *,
        seed: int,
        clock: Clock,
        telegram: TelegramServer | None = None,
        books: NocoDbServer | None = None,
    ) -> None:
        self.users = users
        self._clock = clock
        self._seed = seed
        faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
        self.telegram = telegram or TelegramServer(limits=Limits(), faults=faults, seed=seed)
        self.books = books or NocoDbServer(seed=seed)
        self.table = self.books.noco.create_table("orders", columns=columns)
        self.books.noco.insert(self.table, [_earlier(number) for number in range(EARLIER)])
        self.customers = [self._customer(number) for number in range(users)]

    async def live(
        self, words: ExpectedTexts, *, coming: float | None = None, slowness: float = SLOWNESS
    ) -> None:
        """Run until every order has ended. `coming` is the seconds within which the customers come."""
        till = Cashier(self._pay, words.confirmation, words.cancellation)
        spread = max(LEAST_COMING, self.users / COMING) if coming is None else coming
        draw = random.Random(self._seed)  # noqa: S311  (repeatable, not secret)
        async with asyncio.TaskGroup() as group:
            for customer in self.customers:
                group.create_task(customer.live(draw.uniform(0, spread), slowness, till))

    def stages(self) -> Counter[str]:
        """Count the customers by stage."""
        return Counter(customer.stage for customer in self.customers)

    def waits(self) -> list[float]:
        """Return the seconds from payment to confirmation of those confirmed, ascending."""
        told = ((one.paid_at, one.told_at) for one in self.customers)
        return sorted(then - paid for paid, then in told if paid is not None and then is not None)

    def orders(self) -> list[dict[str, Any]]:
        return self.books.noco.rows(self.table)

    def _customer(self, number: int) -> Customer:
        telegram = self.telegram.telegram
        bot = telegram.world.bot(TOKEN)
        assert bot is not None  # noqa: S101  (an open world takes any well-formed token)
        draw = random.Random(f"{self._seed} {number}")  # noqa: S311  (repeatable, not secret)
        person = Person(telegram, bot, FIRST + number)
        return Customer(person, self._clock, draw, pays=draw.random() >= CANCELLING_SHARE)

    def _pay(self, order: str) -> None:
        """Mark an order as paid in the table."""
        row = next(row for row in self.orders() if row["OrderId"] == order)
        self.books.noco.pay(self.table, int(str(row["Id"])))


def _earlier(number: int) -> dict[str, Any]:
    return {"OrderId": f"TG-0LD0-{number:04d}", "UserId": "0", "Status": "waiting", "Paid": number % 2 == 0}
