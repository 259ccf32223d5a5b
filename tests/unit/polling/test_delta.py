"""Delta polling tells what the source's own times show, and by scans what they do not show."""

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from tidegate.errors import BadInputError, StoreAwayError
from tidegate.polling.catch_up import CatchUp
from tidegate.polling.delta import DeltaPoller
from tidegate.polling.nocodb import changes
from tidegate.polling.subscriptions import MemorySubscriptions, Subscription
from tidegate.sim.nocodb import Faults
from tidegate.sim.virtual_time import VirtualClock
from tidegate.upstream.nocodb.where import eq
from unit.polling.delta_shop import Shop


@pytest.fixture
async def shop(clock: VirtualClock) -> Shop:
    return Shop(clock)


@pytest.fixture(params=["one search", "scans"])
def look(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How all subscribers are looked at: with one search, as few are, or with scans, as many are."""
    if request.param == "scans":
        monkeypatch.setattr(CatchUp, "_can_search_all", lambda _: False)


async def test_a_payment_is_told_within_a_second_and_once(shop: Shop) -> None:
    first, second, _ = shop.order(3)
    async with shop.poller(full_scan=30) as poller:
        await poller.subscribe(str(first), {"chat": 7})
        await poller.subscribe(str(second))
        await shop.clock.sleep(20)
        assert shop.told == []
        shop.pay(first)
        assert await shop.until(lambda: shop.heard(first) == ["met"], within=1) < 1
        await shop.clock.sleep(70)  # two scans later
    assert [told.key for told in shop.told] == [str(first)]
    assert shop.told[0].value == {"Id": first, "Paid": 1}


async def test_one_who_comes_long_after_the_payment_is_told_at_once(shop: Shop) -> None:
    order, *_ = shop.order(3)
    shop.pay(order)
    async with shop.poller() as poller:
        await shop.clock.sleep(60)
        await poller.subscribe(str(order))
        await shop.until(lambda: shop.heard(order) == ["met"], within=2)


async def test_a_record_that_appears_after_it_is_waited_for_and_is_paid_already(shop: Shop) -> None:
    shop.order(3)
    async with shop.poller(key="OrderId", full_scan=30) as poller:
        await poller.subscribe("A-100")
        await shop.clock.sleep(70)  # it is not there, and nobody says that it is gone
        assert shop.told == []
        shop.order(1, OrderId="A-100", Paid=True)
        await shop.until(lambda: shop.heard("A-100") == ["met"], within=1)


async def test_a_first_row_in_an_empty_table_is_seen(shop: Shop) -> None:
    async with shop.poller() as poller:
        await poller.subscribe("1")
        await shop.clock.sleep(5)
        shop.order(1, Paid=True)
        await shop.until(lambda: shop.heard(1) == ["met"], within=2)


async def test_a_cycle_is_one_request_and_takes_half_of_the_limit(shop: Shop) -> None:
    waits, *orders = shop.order(50)
    for order in orders:
        shop.pay(order)
    async with shop.poller() as poller:
        await poller.subscribe(str(waits))
        await shop.clock.sleep(10)
        before, cycles = shop.noco.report()["requests"], poller.stats().cycles
        await shop.clock.sleep(60)
        requests = shop.noco.report()["requests"] - before
        assert requests == poller.stats().cycles - cycles
        assert requests == pytest.approx(150, abs=2)


async def test_a_burst_of_thousands_is_read_in_pages_and_not_again_and_again(shop: Shop) -> None:
    orders = shop.order(1_500)
    subscriptions = MemorySubscriptions(shop.clock)
    async with shop.poller(subscriptions=subscriptions) as poller:
        for order in orders:
            await poller.subscribe(str(order))
        await shop.clock.sleep(20)
        for order in orders:
            shop.pay(order)
        await shop.until(lambda: len(shop.told) == 1_500, within=5)
        await shop.clock.sleep(35)
        requests, cycles = shop.noco.report()["requests"], poller.stats().cycles
        await shop.clock.sleep(20)
        assert shop.noco.report()["requests"] - requests == poller.stats().cycles - cycles
    assert shop.noco.report()["refused"] == 0
    assert len({told.key for told in shop.told}) == len(shop.told) == 1_500


@pytest.mark.usefixtures("look")
async def test_what_direct_sql_changed_is_found_by_the_scan(shop: Shop) -> None:
    order, *_ = shop.order(3)
    async with shop.poller(full_scan=60) as poller:
        await poller.subscribe(str(order))
        await shop.clock.sleep(40)  # deltas do not reach back to its creation
        shop.noco.direct(shop.table_id, order, Paid=True)
        assert await shop.until(lambda: shop.heard(order) == ["met"], within=25) > 15


@pytest.mark.usefixtures("look")
async def test_a_reversal_is_told_to_those_who_are_watched_and_they_wait_again(shop: Shop) -> None:
    order, *_ = shop.order(3)
    async with shop.poller(full_scan=20, watch=600) as poller:
        await poller.subscribe(str(order))
        await shop.clock.sleep(5)
        shop.pay(order)
        await shop.clock.sleep(5)
        shop.noco.update(shop.table_id, [{"Id": order, "Paid": False}])
        await shop.until(lambda: shop.heard(order) == ["met", "reversed"], within=22)
        shop.pay(order)
        await shop.until(lambda: shop.heard(order) == ["met", "reversed", "met"], within=1)
        await shop.clock.sleep(50)
    assert shop.heard(order) == ["met", "reversed", "met"]


@pytest.mark.usefixtures("look")
async def test_a_deleted_record_is_gone_for_who_waits_and_for_who_was_told(shop: Shop) -> None:
    paid, unpaid, other = shop.order(3)
    async with shop.poller(full_scan=20, watch=600) as poller:
        for order in (paid, unpaid, other):
            await poller.subscribe(str(order))
        await shop.clock.sleep(5)
        shop.pay(paid)
        await shop.clock.sleep(5)
        shop.noco.delete(shop.table_id, [paid, unpaid])
        await shop.until(lambda: len(shop.told) == 3, within=22)
        await shop.clock.sleep(50)
        assert set(poller.waiting) == {str(other)}
        assert not poller.watched
    assert shop.heard(paid) == ["met", "gone"]
    assert shop.heard(unpaid) == ["gone"]
    assert shop.heard(other) == []


async def test_nobody_is_watched_longer_than_asked_nor_at_all_by_default(shop: Shop) -> None:
    first, second = shop.order(2)
    subscriptions = MemorySubscriptions(shop.clock)
    async with shop.poller(watch=30, subscriptions=subscriptions) as poller:
        await poller.subscribe(str(first))
        shop.pay(first)
        await shop.clock.sleep(28)
        assert set(poller.watched) == {str(first)}
        await shop.clock.sleep(14)
        assert not poller.watched
        assert await subscriptions.count() == 0
    async with shop.poller(subscriptions=subscriptions) as poller:
        await poller.subscribe(str(second))
        shop.pay(second)
        await shop.clock.sleep(5)
        assert await subscriptions.count() == 0


@pytest.mark.usefixtures("look")
async def test_a_record_that_never_appears_is_gone_after_a_while(shop: Shop) -> None:
    shop.order(1)
    async with shop.poller(appear_within=500, full_scan=100, interval=5) as poller:
        await poller.subscribe("77")
        await shop.clock.sleep(490)
        assert shop.told == []
        await shop.until(lambda: shop.heard(77) == ["gone"], within=120)


@pytest.mark.usefixtures("look")
async def test_of_several_records_of_a_key_one_is_enough(shop: Shop) -> None:
    shop.order(1, OrderId="B")
    again, *_ = shop.order(1, OrderId="B")
    async with shop.poller(key="OrderId", full_scan=30, watch=600) as poller:
        await poller.subscribe("B")
        await shop.clock.sleep(2)
        shop.pay(again)
        await shop.clock.sleep(70)
        assert shop.heard("B") == ["met"]
        shop.noco.delete(shop.table_id, [again])
        await shop.until(lambda: shop.heard("B") == ["met", "reversed"], within=32)


@pytest.mark.usefixtures("look")
async def test_a_clock_that_was_set_back_far_is_noticed_by_the_scan_and_deltas_work_again(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third, *_ = shop.order(5)
    shop.noco.skew = 3_600
    async with shop.poller(full_scan=60) as poller:
        for order in (first, second, third):
            await poller.subscribe(str(order))
        await shop.clock.sleep(70)
        shop.pay(first)
        await shop.until(lambda: shop.heard(first) == ["met"], within=1)
        shop.noco.skew = 0
        shop.pay(second)
        await shop.until(lambda: shop.heard(second) == ["met"], within=61)
        await shop.clock.sleep(5)
        shop.pay(third)
        await shop.until(lambda: shop.heard(third) == ["met"], within=1)
    assert "clock was set back" in caplog.text
    assert poller.catch_up_totals.late == 1


async def test_another_run_goes_on_from_the_kept_mark_and_tells_what_came_meanwhile(shop: Shop) -> None:
    orders = shop.order(20)
    subscriptions = MemorySubscriptions(shop.clock)
    async with shop.poller(subscriptions=subscriptions) as poller:
        for order in orders:
            await poller.subscribe(str(order))
        await shop.clock.sleep(5)
        shop.pay(orders[0])
        await shop.clock.sleep(10)
    mark = await subscriptions.watermark()
    assert mark is not None
    assert float(mark) == math.floor(shop.clock.epoch + 5)  # the time of a row
    shop.pay(orders[1])
    await shop.clock.sleep(1_000)
    async with shop.poller(subscriptions=subscriptions) as poller:
        await shop.until(lambda: shop.heard(orders[1]) == ["met"], within=1)
        await shop.clock.sleep(20)
        assert len(poller.waiting) == 18
    assert len(shop.told) == 2


async def test_the_mark_is_not_written_in_every_cycle(shop: Shop) -> None:
    marks = list[str]()

    class Counting(MemorySubscriptions):
        async def save_watermark(self, mark: str) -> None:
            marks.append(mark)
            await super().save_watermark(mark)

    waits, *orders = shop.order(41)
    async with shop.poller(subscriptions=Counting(shop.clock)) as poller:
        await poller.subscribe(str(waits))
        for order in orders:
            shop.pay(order)
            await shop.clock.sleep(1)
        await shop.clock.sleep(40)
    assert 5 < len(marks) <= 10
    assert marks == sorted(marks)


@pytest.mark.usefixtures("look")
async def test_a_store_that_fails_when_the_scan_has_found_something_does_not_lose_it(shop: Shop) -> None:
    class Failing(MemorySubscriptions):
        is_away = False

        async def note_news(self, news: Any) -> Any:  # noqa: ANN401
            if self.is_away:
                raise StoreAwayError("away")
            return await super().note_news(news)

    order, *_ = shop.order(2)
    subscriptions = Failing(shop.clock)
    async with shop.poller(subscriptions=subscriptions, full_scan=100) as poller:
        await poller.subscribe(str(order))
        await shop.clock.sleep(40)
        subscriptions.is_away = True
        shop.noco.direct(shop.table_id, order, Paid=True)
        await shop.clock.sleep(65)
        assert shop.told == []
        assert poller.catch_up_totals.scans + poller.catch_up_totals.searches == 2
        subscriptions.is_away = False
        await shop.until(lambda: shop.heard(order) == ["met"], within=31)


async def test_who_writes_goes_first_and_cycles_give_way(shop: Shop) -> None:
    orders = shop.order(60)
    async with shop.poller() as poller:
        await shop.clock.sleep(10)
        cycles = poller.stats().cycles
        began = shop.clock.monotonic()
        for order in orders:  # as fast as the limit lets it
            await shop.table.read(order)
        took = shop.clock.monotonic() - began
        assert poller.stats().cycles - cycles < took / 0.4
        assert took < 30
    assert shop.noco.report()["refused"] == 0


@pytest.mark.usefixtures("look")
async def test_a_condition_on_a_text_is_judged_by_the_server(shop: Shop) -> None:
    first, second, *_ = shop.order(3, Status="open")
    async with shop.poller(eq("Status", "paid"), full_scan=60, watch=900) as poller:
        for order in (first, second):
            await poller.subscribe(str(order))
        await shop.clock.sleep(5)
        shop.noco.update(shop.table_id, [{"Id": first, "Status": "paid"}])
        await shop.until(lambda: shop.heard(first) == ["met"], within=1)
        await shop.clock.sleep(40)
        shop.noco.direct(shop.table_id, second, Status="paid")
        await shop.until(lambda: shop.heard(second) == ["met"], within=62)
        shop.noco.direct(shop.table_id, first, Status="open")
        await shop.until(lambda: shop.heard(first) == ["met", "reversed"], within=62)
    assert shop.noco.report()["refused"] == 0


@pytest.mark.usefixtures("look")
async def test_newcomers_do_not_hold_up_a_scan_nor_it_them(shop: Shop) -> None:
    orders = shop.order(4_500)
    for order in orders[:60]:
        shop.pay(order)
    async with shop.poller(full_scan=60) as poller:
        await poller.subscribe(str(orders[-1]))
        await shop.clock.sleep(58)
        shop.noco.direct(shop.table_id, orders[-1], Paid=True)
        for order in orders[:60]:
            await poller.subscribe(str(order))
            await shop.clock.sleep(0.2)
            assert len(poller.waiting) < 12
        assert shop.heard(orders[-1]) == ["met"]
    assert shop.noco.report()["refused"] == 0


async def test_many_newcomers_at_once_are_found_by_a_scan(shop: Shop) -> None:
    orders = shop.order(1_500)
    for order in orders:
        shop.pay(order)
    subscriptions = MemorySubscriptions(shop.clock)
    async with shop.poller(subscriptions=subscriptions) as poller:
        await shop.clock.sleep(40)
        await subscriptions.add([Subscription(str(order)) for order in orders])
        await shop.until(lambda: len(shop.told) == 1_500, within=4)
        assert poller.catch_up_totals.searches == 0


async def test_something_else_than_a_source_is_refused(shop: Shop) -> None:
    with pytest.raises(BadInputError, match="a Table is not a source of changes"):
        DeltaPoller(shop.table)  # type: ignore[arg-type]


async def test_a_given_interval_is_kept_but_the_first_scan_does_not_wait_for_it(shop: Shop) -> None:
    orders = shop.order(2_500)
    shop.noco.direct(shop.table_id, orders[-1], Paid=True)
    async with shop.poller(interval=50) as poller:
        await poller.subscribe(str(orders[-1]))
        await poller.subscribe(str(orders[0]))
        await shop.until(lambda: len(shop.told) == 1, within=3)
        await shop.clock.sleep(10)
        before = shop.noco.report()["requests"]
        await shop.clock.sleep(200)
        assert shop.noco.report()["requests"] - before == 4


async def test_a_key_that_cannot_be_asked_for_does_not_hold_up_the_others(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    strange = "both ' and \" (quotes)"
    shop.order(1, OrderId=strange, Paid=True)
    for order in shop.order(20):
        shop.pay(order)
    shop.order(1, OrderId="nobody pays it")
    async with shop.poller(key="OrderId", full_scan=90) as poller:
        await poller.subscribe("nobody pays it")
        await shop.clock.sleep(60)
        for key in (*(f"A-{n}" for n in range(2, 11)), strange, *(f"A-{n}" for n in range(11, 22))):
            await poller.subscribe(key)
        await shop.until(lambda: len(shop.told) == 20, within=10)
        await shop.until(lambda: shop.heard(strange) == ["met"], within=35)  # by the scan
    assert caplog.text.count("cannot be searched for") == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"overlap": -1}, "overlap is -1"),
        ({"overlap": math.nan}, "overlap is nan"),
        ({"full_scan": 0}, "full_scan is 0: give seconds, above 0"),
        ({"watch": -5}, "watch is -5"),
        ({"watch": math.inf}, "watch is inf"),
        ({"appear_within": -1}, "appear_within is -1"),
        ({"interval": -1}, "interval is -1"),
        ({"interval": 0}, "interval is 0"),
        ({"interval": "10"}, "interval is '10'"),
        ({"share": 0}, "share is 0"),
        ({"name": ""}, "the name of a poller is empty"),
    ],
)
async def test_bad_input_is_refused_with_what_to_give(shop: Shop, options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInputError, match=text):
        DeltaPoller(changes(shop.table), **options)


def break_it(shop: Shop, trouble: str) -> Callable[[], None]:
    """Returns what mends it."""
    noco = shop.noco
    if trouble == "401":
        noco._tokens = {"another"}  # noqa: SLF001  (the token is revoked)
        return lambda: setattr(noco, "_tokens", None)
    if trouble == "table gone":
        table = noco.tables.pop(shop.table_id)
        return lambda: noco.tables.update({shop.table_id: table})
    noco.faults = Faults(malformed=1.0)
    return lambda: setattr(noco, "faults", Faults())


@pytest.mark.parametrize("trouble", ["401", "table gone", "malformed"])
async def test_an_api_that_refuses_is_told_once_and_nobody_is_lost(
    shop: Shop, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    caplog.set_level(logging.INFO, "tidegate.polling")
    order, *_ = shop.order(3)
    async with shop.poller() as poller:
        await poller.subscribe(str(order))
        await shop.clock.sleep(5)
        mend = break_it(shop, trouble)
        await shop.clock.sleep(600)
        assert set(poller.waiting) == {str(order)}
        mend()
        shop.pay(order)
        await shop.until(lambda: shop.heard(order) == ["met"], within=35)
    said = [record.message for record in caplog.records if record.name == "tidegate.polling"]
    assert len([text for text in said if "cannot poll" in text]) == 1
    assert len([text for text in said if "can poll again" in text]) == 1


@pytest.mark.usefixtures("look")
async def test_a_record_without_times_stops_nobody_and_is_found_by_the_scan(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    by_sql, waits, other = shop.order(3)
    row = shop.noco.tables[shop.table_id].rows[by_sql]
    row.fields, row.created = {**row.fields, "CreatedAt": None}, 0.0  # an INSERT that sets no times
    async with shop.poller(full_scan=60) as poller:
        await poller.subscribe(str(by_sql))
        await poller.subscribe(str(waits))
        await poller.subscribe(str(other))
        await shop.clock.sleep(5)
        shop.pay(waits)
        await shop.until(lambda: shop.heard(waits) == ["met"], within=1)
        shop.noco.direct(shop.table_id, by_sql, Paid=True)
        await shop.until(lambda: shop.heard(by_sql) == ["met"], within=61)
    assert caplog.text.count("neither UpdatedAt nor CreatedAt") == 1


async def test_who_subscribes_anew_when_his_watch_ends_is_told_again(shop: Shop) -> None:
    order, *_ = shop.order(2)
    subscriptions = MemorySubscriptions(shop.clock)
    async with shop.poller(watch=20, subscriptions=subscriptions) as poller:
        await poller.subscribe(str(order))
        shop.pay(order)
        await shop.clock.sleep(10)
        real = subscriptions.remove

        async def remove(refs: Any) -> int:  # noqa: ANN401
            await poller.subscribe(str(order), {"again": True})  # a moment before
            return await real(refs)

        subscriptions.remove = remove  # type: ignore[method-assign]
        await shop.until(lambda: shop.heard(order) == ["met", "met"], within=30)


async def test_with_nobody_there_nothing_is_asked_and_the_first_comer_is_searched_for(shop: Shop) -> None:
    paid, pays = shop.order(2)
    shop.order(5_000)
    async with shop.poller() as poller:
        await shop.clock.sleep(3_600)
        assert shop.noco.report()["requests"] == 0
        shop.pay(paid)
        await poller.subscribe(str(paid))
        await shop.until(lambda: shop.heard(paid) == ["met"], within=1)
        await poller.subscribe(str(pays))
        await shop.clock.sleep(60)
        await poller.unsubscribe(str(pays))
        await shop.clock.sleep(1)
        before = shop.noco.report()["requests"]
        for order in shop.order(3_000):
            shop.pay(order)
        await shop.clock.sleep(3_600)
        assert shop.noco.report()["requests"] == before
        await poller.subscribe(str(pays))
        await shop.clock.sleep(2)
        assert poller.stats().batches <= poller.stats().cycles, "what nobody waited for is not read"
        shop.pay(pays)
        await shop.until(lambda: shop.heard(pays) == ["met"], within=1)


@pytest.mark.usefixtures("look")
async def test_a_row_of_tomorrow_does_not_slow_down_the_next_run(shop: Shop) -> None:
    first, second, wrong, waits = shop.order(4)
    subscriptions = MemorySubscriptions(shop.clock)
    async with shop.poller(subscriptions=subscriptions, full_scan=60) as poller:
        for order in (first, second, waits):
            await poller.subscribe(str(order))
        await shop.clock.sleep(100)
        shop.noco.skew = 86_400
        shop.pay(wrong)
        await shop.clock.sleep(5)
        shop.noco.skew = 0
        shop.pay(first)
        await shop.until(lambda: shop.heard(first) == ["met"], within=70)
        await shop.clock.sleep(10)
    async with shop.poller(subscriptions=subscriptions, full_scan=60):
        await shop.clock.sleep(10)
        shop.pay(second)
        await shop.until(lambda: shop.heard(second) == ["met"], within=1)


@pytest.mark.usefixtures("look")
async def test_an_old_record_of_a_key_with_two_does_not_set_the_mark_back(shop: Shop) -> None:
    old, *_ = shop.order(1, OrderId="K")
    await shop.clock.sleep(86_400)
    shop.order(1, OrderId="K")
    async with shop.poller(key="OrderId", full_scan=60) as poller:
        await poller.subscribe("K")
        await shop.clock.sleep(90)
        shop.noco.direct(shop.table_id, old, Paid=True)
        await shop.until(lambda: shop.heard("K") == ["met"], within=61)
        assert poller.catch_up_totals.late == 0


@pytest.mark.usefixtures("look")
async def test_one_who_comes_back_after_a_payment_does_not_set_the_mark_back(shop: Shop) -> None:
    stays, comes_back = map(str, shop.order(2))
    async with shop.poller(full_scan=60) as poller:
        await poller.subscribe(stays)
        await poller.subscribe(comes_back)
        await shop.clock.sleep(5)
        await poller.unsubscribe(comes_back)
        shop.pay(int(comes_back))
        await shop.clock.sleep(55.3)
        await poller.subscribe(comes_back)  # just before all are looked at
        await shop.until(lambda: shop.heard(comes_back) == ["met"], within=2)
        await shop.clock.sleep(60)
        assert poller.catch_up_totals.late == 0
