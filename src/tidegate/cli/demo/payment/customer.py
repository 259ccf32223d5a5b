"""Somebody who orders, and pays or thinks again. Looks at his own chat only, as people do."""

import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from tidegate.clock import Clock
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.world import Json

Stage = Literal["coming", "choosing", "ordering", "ordered", "paid", "cancelling", "confirmed", "cancelled"]


class Till(NamedTuple):
    """Where he pays, and what he is told then: of an order, the words."""

    pay: Callable[[str], None]
    confirmation: Callable[[str], str]
    cancellation: Callable[[str], str]


ORDER: Final = re.compile(r"TG-\w{4}-\w{4}")
THINKS: Final = (0.5, 3.0)  # seconds before each step
PATIENCE: Final = 600.0  # seconds: longer than any run


class Customer:
    """`pays`: in the end, or else he cancels. `paid_at` and `told_at` are monotonic."""

    def __init__(self, person: Person, clock: Clock, draw: random.Random, *, pays: bool) -> None:
        self.thinks = THINKS
        self.stage: Stage = "coming"
        self.order: str | None = None
        self.paid_at: float | None = None
        self.told_at: float | None = None
        self.pays = pays
        self._person = person
        self._clock = clock
        self._draw = draw
        self._read: Counter[str] = Counter()

    async def live(self, begin: float, slowness: float, till: Till) -> None:
        """From `begin` seconds on; pays up to `slowness` seconds after he could."""
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

    async def _pay(self, order: str, till: Till) -> None:
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
        """How often he has got which text."""
        return self._read + Counter(str(message.get("text")) for message in self._person.heard)

    @property
    def doubled(self) -> int:
        """Messages that he had got before, word for word: no step says the same twice."""
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
        message = await self._person.hears(PATIENCE)
        self._read[str(message.get("text"))] += 1
        return message

    async def _thinks(self) -> None:
        await self._clock.sleep(self._draw.uniform(*self.thinks))

    def _press(self, number: int) -> None:
        self._person.presses(self._person.buttons()[number])

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
