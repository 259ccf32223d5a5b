"""Where the payment bot is shown: a Telegram, a NocoDB with its books, and people who order."""

import asyncio
import random
from collections import Counter
from typing import Any, Final

from tidegate.cli.demo.payment.customer import Customer, Till
from tidegate.cli.demo.payment.words import Words
from tidegate.clock import Clock
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.telegram import Faults, Latency, Limits, Person
from tidegate.sim.telegram.http import TelegramServer

TOKEN: Final = "42:demo"  # noqa: S105  (of a bot that exists in the simulator only)
BOOKS_TOKEN: Final = "demo"  # noqa: S105  (of a NocoDB that is simulated)
EACH_WAY: Final = Latency(5, 40)
FIRST: Final = 1_000_001
COMING: Final = 6.0  # people in a second: three messages each leave room below Telegram's 30
LEAST_COMING: Final = 5.0  # seconds in which they come, however few
SLOWNESS: Final = 20.0  # seconds that one may take to pay
CANCELS: Final = 0.1  # of all people
EARLIER: Final = 50  # orders of other days, in the books already


class Town:
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

    async def live(self, words: Words, *, coming: float | None = None, slowness: float = SLOWNESS) -> None:
        """Until everybody has been told how his order ended. `coming`: seconds in which they come."""
        till = Till(self._pay, words.confirmation, words.cancellation)
        spread = max(LEAST_COMING, self.users / COMING) if coming is None else coming
        draw = random.Random(self._seed)  # noqa: S311  (repeatable, not secret)
        async with asyncio.TaskGroup() as group:
            for customer in self.customers:
                group.create_task(customer.live(draw.uniform(0, spread), slowness, till))

    def stages(self) -> Counter[str]:
        """How many people are how far."""
        return Counter(customer.stage for customer in self.customers)

    def waits(self) -> list[float]:
        """Seconds from paying to being told, of those who were, ascending."""
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
        return Customer(person, self._clock, draw, pays=draw.random() >= CANCELS)

    def _pay(self, order: str) -> None:
        """The cashier ticks it in the books."""
        row = next(row for row in self.orders() if row["OrderId"] == order)
        self.books.noco.pay(self.table, int(str(row["Id"])))


def _earlier(number: int) -> dict[str, Any]:
    return {"OrderId": f"TG-0LD0-{number:04d}", "UserId": "0", "Status": "waiting", "Paid": number % 2 == 0}
