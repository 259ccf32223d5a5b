"""Each payment is notified once: concurrent updates, records created as paid."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tidegate.clock import Clock
from tidegate.polling.batch import BatchPoller
from tidegate.polling.delta import DeltaPoller
from tidegate.polling.nocodb import changes, checks
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import News, Subscription
from tidegate.upstream.nocodb.table import Table

UPDATED = [f"update-{number}" for number in range(300)]
CREATED = [f"create, ({number})" for number in range(120)]  # a key that needs quotes
UNPAID = [f"never-{number}" for number in range(30)]
PATIENCE = 30.0  # seconds


class Bell:
    """Counts who was told, and rings when `expected` were."""

    def __init__(self, expected: int) -> None:
        self.told: Counter[str] = Counter()
        self.all_told = asyncio.Event()
        self._expected = expected

    async def ring(self, subscription: Subscription, news: News) -> None:
        assert news.kind == "met"
        self.told[subscription.key] += 1
        if len(self.told) >= self._expected:
            self.all_told.set()


def dealt(keys: Sequence[str], draw: random.Random) -> list[list[str]]:
    """All of them, in random order and handfuls."""
    left, hands = draw.sample(keys, len(keys)), []
    while left:
        size = draw.randint(1, 12)
        hands.append(left[:size])
        left = left[size:]
    return hands


async def pay(table: Table, ids: dict[str, int]) -> None:
    """Several at a time, as several people would."""
    draw, clock, turns = random.Random(420), Clock(), asyncio.Semaphore(6)

    async def update(keys: list[str]) -> None:
        async with turns:
            await clock.sleep(draw.uniform(0, 0.02))
            await table.update([{"Id": ids[key], "Paid": True} for key in keys])

    async def create(keys: list[str]) -> None:
        async with turns:
            await table.create([{"OrderId": key, "Paid": True} for key in keys])

    async with asyncio.TaskGroup() as people:
        for keys in dealt(UPDATED, draw):
            people.create_task(update(keys))
        for keys in dealt(CREATED, draw):
            people.create_task(create(keys))


def batch(table: Table, bell: Bell) -> Poller:
    return BatchPoller(checks(table, key="OrderId"), interval=0.2, batch_size=50, notify=bell.ring)


def delta(table: Table, bell: Bell) -> Poller:
    return DeltaPoller(changes(table, key="OrderId"), interval=0.1, full_scan=3_600.0, notify=bell.ring)


@pytest.mark.parametrize("kind", [batch, delta])
async def test_everyone_is_told_of_his_payment_once(
    kind: Callable[[Table, Bell], Poller], table: Table
) -> None:
    bell, orders = Bell(len(UPDATED) + len(CREATED)), [*UPDATED, *UNPAID]
    keys = await table.create([{"OrderId": order, "Paid": False} for order in orders])
    ids = dict(zip(orders, keys, strict=True))
    async with kind(table, bell) as poller:
        for order in [*orders, *CREATED]:
            await poller.subscribe(order)
        await pay(table, ids)
        async with Clock().timeout(PATIENCE):
            await bell.all_told.wait()
        await Clock().sleep(0.3)  # a cycle or two, in which nobody may be told again
        assert sorted(poller.waiting) == sorted(UNPAID)
    assert bell.told == Counter([*UPDATED, *CREATED])
