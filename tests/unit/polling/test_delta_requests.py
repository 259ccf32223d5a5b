"""With its default interval, delta polling makes no more requests than asking for each would."""

from collections.abc import Sequence

import pytest

from tidegate.errors import UpstreamRefusedError
from tidegate.polling.nocodb import NocoDbChanges
from tidegate.polling.source import SourcePage
from tidegate.polling.subscriptions import MemorySubscriptions
from tidegate.sim.virtual_time import VirtualClock
from unit.polling.delta_shop import Shop

MINUTE = 60.0
HOUR = 3_600.0


@pytest.fixture
async def shop(clock: VirtualClock) -> Shop:
    return Shop(clock)


def requests(shop: Shop) -> int:
    return int(shop.noco.report()["requests"])


@pytest.mark.parametrize("people", [1, 2, 3, 4, 5])
async def test_few_people_cost_no_more_than_one_request_each_a_minute_however_long_the_table_is(
    shop: Shop, people: int
) -> None:
    orders = shop.order(3_500)
    async with shop.poller(interval=None) as poller:
        for order in orders[:people]:
            await poller.subscribe(str(order))
        await shop.clock.sleep(MINUTE)  # the first scan sets the watermark
        before = requests(shop)
        await shop.clock.sleep(HOUR)
        assert HOUR / MINUTE <= requests(shop) - before <= people * HOUR / MINUTE
        avoided = poller.stats().requests_avoided
        assert avoided >= -4, "the first scan, of four pages, is all that was not avoided"


async def test_one_person_who_waits_for_the_first_row_of_a_table_costs_one_request_a_minute(
    shop: Shop,
) -> None:
    subscriptions = MemorySubscriptions(shop.clock)
    async with shop.poller(interval=None, subscriptions=subscriptions) as poller:
        await poller.subscribe("1")
        await shop.clock.sleep(HOUR)
        assert requests(shop) <= HOUR / MINUTE + 1
        [order] = shop.order(1)
        await shop.clock.sleep(MINUTE + 1)
        assert await subscriptions.watermark() is not None
        shop.pay(order)
        await shop.until(lambda: shop.heard(1) == ["met"], within=MINUTE + 1)


async def test_the_first_delta_for_an_old_order_does_not_read_all_that_was_paid_since(shop: Shop) -> None:
    old, *_ = shop.order(1_500)
    await shop.clock.sleep(HOUR)
    for order in shop.order(3_000):
        shop.pay(order)
    await shop.clock.sleep(HOUR)
    shop.order(1)
    async with shop.poller(interval=None) as poller:
        await poller.subscribe(str(old))
        await shop.clock.sleep(5 * MINUTE)
        assert requests(shop) <= 5 + 1 + 5, "five pages of a scan, a search, and a delta each minute"


async def test_deltas_come_faster_when_people_join_and_slower_when_they_leave(shop: Shop) -> None:
    first, *orders = shop.order(300)
    async with shop.poller(interval=None) as poller:
        await poller.subscribe(str(first))
        await shop.clock.sleep(10)
        for order in orders:
            await poller.subscribe(str(order))
        await shop.clock.sleep(10)
        before = requests(shop)
        shop.pay(orders.pop())
        await shop.until(lambda: len(shop.told) == 1, within=2)
        await shop.clock.sleep(MINUTE)
        assert 40 < requests(shop) - before < MINUTE
        for order in orders:
            await poller.unsubscribe(str(order))
        await shop.clock.sleep(1)
        before = requests(shop)
        await shop.clock.sleep(10 * MINUTE)
        assert requests(shop) - before == 10
        await poller.unsubscribe(str(first))
        await shop.clock.sleep(1)
        before = requests(shop)
        await shop.clock.sleep(HOUR)
        assert requests(shop) == before


async def test_people_who_come_and_go_all_the_time_cost_no_more_than_asking_for_each(shop: Shop) -> None:
    orders = shop.order(400)
    async with shop.poller(interval=None) as poller:
        for number, order in enumerate(orders):
            await poller.subscribe(str(order))
            if number >= 40:
                await poller.unsubscribe(str(orders[number - 40]))
            await shop.clock.sleep(0.5)
        assert poller.stats().requests_avoided >= 0
        assert poller.stats().requests == requests(shop)


@pytest.mark.parametrize("interval", [None, 200.0])
async def test_a_newcomer_who_has_paid_is_told_at_once_though_the_next_delta_is_far(
    shop: Shop, interval: float | None
) -> None:
    waits, paid, other = shop.order(3)
    shop.pay(paid)
    shop.pay(other)
    async with shop.poller(interval=interval) as poller:
        await poller.subscribe(str(waits))
        await shop.clock.sleep(100)
        await poller.subscribe(str(paid))
        await shop.until(lambda: shop.heard(paid) == ["met"], within=1)
        await poller.subscribe(str(other))
        await shop.until(lambda: shop.heard(other) == ["met"], within=6)


async def test_those_who_are_only_watched_cost_a_request_every_full_scan(shop: Shop) -> None:
    order, *others = shop.order(1_500)
    async with shop.poller(interval=None, full_scan=300, watch=HOUR) as poller:
        await poller.subscribe(str(order))
        shop.pay(order)
        await shop.until(lambda: shop.heard(order) == ["met"], within=MINUTE + 1)
        await shop.clock.sleep(5)  # the first scan has two pages
        before = requests(shop)
        await shop.clock.sleep(1_500)
        assert requests(shop) - before == 5
        shop.noco.update(shop.table_id, [{"Id": order, "Paid": False}])
        await shop.until(lambda: shop.heard(order) == ["met", "reversed"], within=306)
        shop.pay(order)
        await shop.until(lambda: shop.heard(order) == ["met", "reversed", "met"], within=MINUTE + 1)
        for other in others:
            shop.pay(other)
        await shop.clock.sleep(100)
        await poller.subscribe(str(*shop.order(1)))
        await shop.clock.sleep(2 * MINUTE)
        assert poller.stats().batches == poller.stats().cycles, "what nobody waited for is not read"


@pytest.mark.parametrize("paid_after", [0.0, 5.0, 40.0, 59.0, 61.0])
async def test_a_payment_that_is_committed_29_seconds_late_is_seen_by_the_next_delta_of_one_person(
    shop: Shop, paid_after: float
) -> None:
    order, *_ = shop.order(2)
    async with shop.poller(interval=None, full_scan=HOUR) as poller:
        await poller.subscribe(str(order))
        await shop.clock.sleep(MINUTE + paid_after)
        shop.pay(order, commit_after=29)
        await shop.until(lambda: shop.heard(order) == ["met"], within=29 + MINUTE + 1)
        assert poller.catch_up_totals.late == 0


async def test_what_was_paid_while_the_poller_was_down_is_told_to_one_person_at_once(shop: Shop) -> None:
    order, *_ = shop.order(2_500)
    subscriptions = MemorySubscriptions(shop.clock)
    async with shop.poller(interval=None, subscriptions=subscriptions) as poller:
        await poller.subscribe(str(order))
        await shop.clock.sleep(10)
    shop.pay(order)
    await shop.clock.sleep(HOUR)
    before = requests(shop)
    async with shop.poller(interval=None, subscriptions=subscriptions):
        await shop.until(lambda: shop.heard(order) == ["met"], within=1)
        await shop.clock.sleep(MINUTE)
    assert requests(shop) - before == 1


@pytest.mark.parametrize("key", ["both ' and \" (quotes)", "refused"])
async def test_a_key_that_cannot_be_searched_for_is_found_by_scans_for_few_people_too(
    shop: Shop, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = NocoDbChanges.find

    async def refusing(source: NocoDbChanges, keys: Sequence[str]) -> SourcePage:
        if "refused" in keys:
            raise UpstreamRefusedError("no", api="nocodb", method="GET", endpoint="records", status=400)
        return await find(source, keys)

    monkeypatch.setattr(NocoDbChanges, "find", refusing)
    first, order = shop.order(1, OrderId="first") + shop.order(1, OrderId=key)
    async with shop.poller(key="OrderId", interval=None, full_scan=300) as poller:
        await poller.subscribe("first")
        await shop.clock.sleep(10)
        await poller.subscribe(key)
        await shop.clock.sleep(100)
        shop.pay(first)
        shop.noco.direct(shop.table_id, order, Paid=True)
        await shop.until(lambda: shop.heard(key) == ["met"], within=206)
        assert poller.stats().requests < 20
