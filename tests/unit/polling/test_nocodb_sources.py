"""NocoDB's tables as sources: the requests, the values for callbacks, and the records that count."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.polling.batch import BatchPoller
from tidegate.polling.nocodb import RecordReader, changes, checks, fields_of, row_predicate, waiting
from tidegate.polling.subscriptions import MemorySubscriptions, Subscription
from tidegate.sim.virtual_time import EPOCH, VirtualClock
from tidegate.upstream.nocodb.where import all_of, any_of, checked, eq, like, negate
from unit.polling.delta_shop import Shop


@pytest.fixture
async def shop(clock: VirtualClock) -> Shop:
    return Shop(clock)


def targets(shop: Shop) -> list[str]:
    """Requests from now on, as the server gets them."""
    asked: list[str] = []
    handle = shop.noco.handle

    async def listen(method: str, target: str, headers: Mapping[str, str], body: bytes | None = None) -> Any:  # noqa: ANN401
        asked.append(target)
        return await handle(method, target, headers, body)

    shop.noco.handle = listen  # type: ignore[method-assign]
    return asked


async def test_checks_tell_which_of_the_keys_are_paid_with_the_fields_chosen(shop: Shop) -> None:
    first, second, third = shop.order(3)
    shop.pay(first)
    shop.pay(third)
    by_id = checks(shop.table)
    assert await by_id([str(first), str(second)]) == {str(first): {"Id": first, "Paid": 1}}
    by_order = checks(shop.table, key="OrderId", fields=("User", "OrderId"))
    assert await by_order(["A-2", "A-3", "A-77"]) == {"A-3": {"User": 3, "OrderId": "A-3"}}


async def test_checks_for_a_batch_poller_keep_within_the_length_of_an_address(shop: Shop) -> None:
    names = [f"{'long-order-number-' * 3}{n}" for n in range(300)]
    orders = [shop.order(1, OrderId=name)[0] for name in names]
    fetch = checks(shop.table, key="OrderId")
    assert 50 < fetch.most(names) < 300
    told = list[str]()
    poller = BatchPoller(
        fetch, 60, batch_size=300, clock=shop.clock, notify=lambda who, _: told.append(who.key)
    )
    async with poller:
        for name in names:
            await poller.subscribe(name)
        for order in orders[::2]:
            shop.pay(order)
        await shop.clock.sleep(70)
    assert sorted(told) == sorted(names[::2])
    assert set(shop.noco.report()["statuses"]) == {"200"}


async def test_a_delta_asks_for_what_was_written_or_created_since_and_is_true(shop: Shop) -> None:
    old, late, *_ = shop.order(3)
    shop.pay(old)
    await shop.clock.sleep(100)
    shop.pay(late)
    born, *_ = shop.order(1, Paid=True)
    shop.order(1)
    asked = targets(shop)
    page = await changes(shop.table, key="OrderId").changed(EPOCH + 50.7)
    assert [(row.id, row.key, row.changed) for row in page.rows] == [
        (str(late), "A-2", EPOCH + 100),
        (str(born), "A-4", EPOCH + 100),
    ]
    assert page.after is None
    assert "(UpdatedAt,gte,exactDate,2026-01-05%2009:00:50%2B00:00)" in asked[0]
    assert "~or(CreatedAt,gte,exactDate," in asked[0]
    assert "~and(Paid,checked)" in asked[0]
    assert "fields=Id,OrderId,UpdatedAt,CreatedAt,Paid&sort=Id&limit=1000" in asked[0]


async def test_more_than_a_thousand_changes_come_in_pages_by_id(shop: Shop) -> None:
    for order in shop.order(2_300):
        shop.pay(order)
    source = changes(shop.table)
    found, after, pages = list[str](), None, 0
    while after is not None or not pages:
        page = await source.changed(EPOCH, after)
        found += [row.id for row in page.rows]
        after, pages = page.after, pages + 1
    assert found == [str(order) for order in range(1, 2_301)]
    assert pages == 3


async def test_a_scan_shows_every_record_in_as_many_requests_as_pages(shop: Shop) -> None:
    for order in shop.order(1_200)[::2]:
        shop.pay(order)
    source = changes(shop.table)
    first = await source.scan()
    second = await source.scan(first.after)
    assert second.after is None
    assert [row.met for row in (*first.rows, *second.rows)] == [True, False] * 600
    assert shop.noco.report()["requests"] == first.requests + second.requests == 2


async def test_a_scan_by_a_text_asks_the_server_which_ones_hold(shop: Shop) -> None:
    orders = shop.order(1_200, Status="open")
    shop.noco.update(shop.table_id, [{"Id": order, "Status": "paid"} for order in orders[::3]])
    source = changes(shop.table, condition=eq("Status", "paid"))
    first = await source.scan()
    second = await source.scan(first.after)
    held = sorted(int(row.id) for row in (*first.rows, *second.rows) if row.met)
    assert held == orders[::3]
    assert len(first.rows) + len(second.rows) == 1_200
    assert shop.noco.report()["requests"] == first.requests + second.requests == 4


async def test_what_does_not_matter_is_not_read_but_found_by_its_key(shop: Shop) -> None:
    open_, *_ = shop.order(1, Status="open")
    archived, *_ = shop.order(1, Status="archived")
    source = changes(shop.table, among=negate(eq("Status", "archived")))
    assert [row.id for row in (await source.scan()).rows] == [str(open_)]
    assert [row.id for row in (await source.find([str(archived)])).rows] == [str(archived)]


async def test_a_record_without_a_key_or_without_times_concerns_nobody_or_says_no_time(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.order(1, OrderId=None)
    shop.order(1)
    page = await changes(shop.table, key="OrderId").scan()
    assert [row.key for row in page.rows] == ["", "A-2"]
    assert caplog.text == ""

    page = await changes(shop.table, updated="Status", created="Status").scan()

    assert [row.changed for row in page.rows] == [None, None]
    assert caplog.text.count("a record has neither Status nor Status: only scans see it") == 1


@pytest.mark.parametrize("odd", [1.5, True, {"a": 1}, [1]])
async def test_a_record_whose_key_is_no_key_is_left_out_with_one_warning(
    caplog: pytest.LogCaptureFixture, odd: object
) -> None:
    records = RecordReader("OrderId", ("UpdatedAt",))

    found = [records.key_of(row) for row in ({"OrderId": odd}, {"OrderId": "A-1"}, {"OrderId": odd})]

    assert found == [None, "A-1", None]
    assert caplog.text.count("give a key= whose values are texts or whole numbers") == 1
    assert records.changed({"UpdatedAt": "yesterday"}) is None


async def test_those_who_wait_are_restored_from_the_table_itself(shop: Shop) -> None:
    shop.order(45, Status="awaiting_payment")
    shop.order(5, Status="done")
    shop.order(1, Status="awaiting_payment", OrderId="")
    subscriptions = MemorySubscriptions(shop.clock)
    poller = BatchPoller(checks(shop.table, key="OrderId"), clock=shop.clock, subscriptions=subscriptions)
    who = waiting(shop.table, eq("Status", "awaiting_payment"), key="OrderId", data=("User",))
    restored = await poller.restore(who)
    assert restored.restored == 45
    kept = await subscriptions.after(0)
    assert [one.subscription.key for one in kept] == [f"A-{n}" for n in range(1, 46)]
    assert kept[6].subscription == Subscription("A-7", {"User": 7}, kept[6].subscription.since)


async def test_sources_let_others_go_first(shop: Shop) -> None:
    shop.order(3)
    sent: list[bool] = []
    take = shop.upstream._limiter.take  # noqa: SLF001  (who is let through first)

    async def listen(*, background: bool = False) -> float:
        sent.append(background)
        return await take(background=background)

    shop.upstream._limiter.take = listen  # type: ignore[method-assign]  # noqa: SLF001
    source = changes(shop.table)
    await source.changed(EPOCH)
    await source.scan()
    await source.find(["1"])
    await checks(shop.table)(["1"])
    assert [who async for who in waiting(shop.table)] == [Subscription(str(n)) for n in (1, 2, 3)]
    assert sent == [True] * 5


boxes = st.dictionaries(st.sampled_from(["A", "B"]), st.sampled_from([True, False, 0, 1, None]), min_size=2)


@given(boxes)
def test_checkboxes_are_judged_here_as_the_server_does(row: dict[str, Any]) -> None:
    a, b = bool(row["A"]), bool(row["B"])
    both = row_predicate(all_of(checked("A"), negate(checked("B"))))
    either = row_predicate(any_of(checked("A"), checked("B")))
    assert both is not None
    assert either is not None
    assert both(row) == (a and not b)
    assert either(row) == (a or b)


def test_what_only_the_database_can_compare_is_not_judged_here() -> None:
    assert row_predicate(eq("Status", "paid")) is None
    assert row_predicate(all_of(checked("Paid"), like("Status", "pa%"))) is None
    assert list(fields_of(all_of(checked("Paid"), eq("Status", "x")))) == ["Paid", "Status"]
