"""Ten thousand subscribers, and everything that makes deltas miss payments: each is notified once."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import msgspec

from tidegate.polling.delta import DeltaPoller
from tidegate.polling.subscriptions import MemorySubscriptions, Subscription
from tidegate.sim.faults import Latency
from tidegate.sim.nocodb import Faults
from tidegate.sim.virtual_time import VirtualClock
from unit.polling.delta_shop import Shop, Told

WAITING = 10_000
BORN_PAID = 60
PAYMENTS = 420
DOWN, UP = 90.0, 100.0  # seconds after the first payment
SCAN = 60.0  # seconds
FIRE = Faults(
    latency_in=Latency(10, 50),
    latency_out=Latency(10, 50),
    server_error=0.02,
    lost_request=0.01,
    lost_answer=0.02,
)


class Payment(msgspec.Struct, frozen=True):
    at: float  # monotonic
    late: float  # seconds until it is committed
    key: str


def draw_payments(draw: random.Random, began: float) -> list[Payment]:
    """Over two minutes, but for the seconds in which the server is down; every third is committed late."""
    keys = [f"A-{n}" for n in draw.sample(range(1, WAITING + 1), PAYMENTS)]
    keys += [f"born-{n}" for n in range(BORN_PAID)]
    times = [draw.uniform(0, 120 - (UP - DOWN)) for _ in keys]
    shifted = [time if time < DOWN else time + UP - DOWN for time in times]
    lates = [draw.choice((0, 0, draw.uniform(1, 10))) for _ in keys]
    payments = [Payment(began + at, late, key) for at, late, key in zip(shifted, lates, keys, strict=True)]
    return sorted(payments, key=lambda payment: payment.at)


class Day:
    """The events in the shop, second by second."""

    def __init__(self, clock: VirtualClock) -> None:
        self.shop = Shop(clock, faults=FIRE)
        self.clock = clock
        self.subscriptions = MemorySubscriptions(clock)
        self.order_of = {f"A-{n}": order for n, order in enumerate(self.shop.order(WAITING), 1)}
        self.payments: list[Payment] = []
        self.began = 0.0

    async def everybody_subscribes(self) -> None:
        keys = [*self.order_of, *(f"born-{n}" for n in range(BORN_PAID))]
        await self.subscriptions.add([Subscription(key, {}, self.clock.now()) for key in keys])

    def open(self) -> DeltaPoller:
        return self.shop.poller(key="OrderId", subscriptions=self.subscriptions, full_scan=SCAN, watch=3_600)

    async def of_payments(self) -> None:
        noco, self.began = self.shop.noco, self.clock.monotonic()
        self.payments = draw_payments(random.Random(8), self.began)
        happens: list[tuple[float, Callable[[], None]]] = [
            (self.began + 30, lambda: setattr(noco, "skew", 20.0)),
            (self.began + 60, lambda: setattr(noco, "skew", 0.0)),
            (self.began + DOWN, noco.stop),
            (self.began + UP, noco.start),
        ]
        happens += [(payment.at, partial(self.pay, payment)) for payment in self.payments]
        for at, happen in sorted(happens, key=lambda event: event[0]):
            await self.clock.sleep(at - self.clock.monotonic())
            happen()

    def pay(self, payment: Payment) -> None:
        shop, key = self.shop, payment.key
        if key in self.order_of:
            shop.pay(self.order_of[key], commit_after=payment.late)
            return
        row = {"OrderId": key, "Paid": True}
        shop.noco.insert(shop.table_id, [row], commit_after=payment.late)

    def of_regrets(self) -> tuple[list[str], list[str], list[str]]:
        """Some payments are reversed, some orders deleted, paid and unpaid."""
        keys = {payment.key: None for payment in self.payments}
        paid = [key for key in keys if key in self.order_of]
        unpaid = [key for key in self.order_of if key not in keys]
        reversed_, deleted, dropped = paid[:40], paid[40:60], unpaid[:30]
        table, noco = self.shop.table_id, self.shop.noco
        noco.update(table, [{"Id": self.order_of[key], "Paid": False} for key in reversed_])
        noco.delete(table, [self.order_of[key] for key in deleted + dropped])
        return reversed_, deleted, dropped


async def test_under_fire_nobody_is_missed_or_told_twice(clock: VirtualClock) -> None:
    day = Day(clock)
    shop = day.shop
    await day.everybody_subscribes()
    async with day.open() as poller:
        await clock.sleep(20)
        assert poller.catch_up_totals.scans == 1
        await day.of_payments()
        await clock.sleep(SCAN)
        told_by_then = {told.key: told for told in shop.told}
        assert set(told_by_then) == {payment.key for payment in day.payments}
        assert len(shop.told) == PAYMENTS + BORN_PAID

        reversed_, deleted, dropped = day.of_regrets()
        await clock.sleep(2 * SCAN)
        stats = poller.stats()

    expected = {payment.key: ["met"] for payment in day.payments}
    expected |= {key: ["met", "reversed"] for key in reversed_}
    expected |= {key: ["met", "gone"] for key in deleted} | {key: ["gone"] for key in dropped}
    heard: dict[str, list[str]] = {}
    for told in shop.told:
        heard.setdefault(told.key, []).append(told.kind)
    assert heard == expected

    delays = [told_by_then[payment.key].at - payment.at for payment in day.payments]
    assert median(delays) < 2
    assert max(after_commit(day, told_by_then)) < 3  # by deltas, without waiting for a scan
    assert shop.noco.report()["refused"] == 0
    looks, tried = poller.catch_up_totals, stats.cycles + stats.failed_batches
    assert stats.requests - looks.scan_requests - looks.searches == tried, "one request for each cycle"
    print(  # noqa: T201  (for who asks with -s)
        f"{len(day.payments)} payments, {len(day.order_of)} subscribers: told after {median(delays):.2f} s"
        f" (median), {max(delays):.1f} s at most; {stats.cycles} cycles, {stats.requests} requests"
    )


def after_commit(day: Day, told: dict[str, Told]) -> Iterator[float]:
    """Seconds until it was told, of all but those who had to wait for the server to come back."""
    for payment in day.payments:
        committed = payment.at + payment.late
        if not day.began + DOWN - 3 < committed < day.began + UP + 5:
            yield told[payment.key].at - committed
