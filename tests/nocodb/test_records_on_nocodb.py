"""The typed client: what its methods promise, on a server."""

import pytest

from tidegate.clock import Clock
from tidegate.errors import PartlyDoneError, UpstreamRefusedError
from tidegate.upstream.nocodb.client import NocoDb
from tidegate.upstream.nocodb.table import Table
from tidegate.upstream.nocodb.values import instant, truth
from tidegate.upstream.nocodb.where import all_of, any_of, checked, gt, since


async def test_rows_are_created_read_updated_and_deleted(table: Table) -> None:
    (first, second) = await table.create([{"OrderId": "a"}, {"OrderId": "b", "Paid": True}])
    await table.update([{"Id": first, "Paid": True, "Amount": 7}])
    row = await table.read(first)
    assert row is not None
    assert (row["Amount"], truth(row["Paid"])) == (7, True)
    assert await table.read(second, fields=("OrderId",)) == {"OrderId": "b"}
    await table.delete([first])
    assert await table.read(first) is None
    assert await table.count() == 1


async def test_hundreds_of_rows_are_written_in_hundreds(table: Table) -> None:
    keys = await table.create([{"OrderId": f"o{number}"} for number in range(250)])
    assert len(set(keys)) == 250
    await table.update([{"Id": key, "Paid": True} for key in keys])
    assert await table.count(checked("Paid")) == 250
    before = table.upstream.totals.requests
    await table.delete(keys)
    assert table.upstream.totals.requests == before + 3
    assert await table.count() == 0


async def test_a_failure_in_the_middle_says_how_many_were_done(table: Table) -> None:
    keys = await table.create([{"OrderId": f"o{number}"} for number in range(150)])
    with pytest.raises(PartlyDoneError, match="100 of 151 rows") as caught:
        await table.update([{"Id": key, "Paid": True} for key in [*keys, 999_999]])
    assert caught.value.ids == keys[:100]
    assert isinstance(caught.value.__cause__, UpstreamRefusedError)
    assert await table.count(checked("Paid")) == 100


async def test_what_is_gone_already_does_not_hinder_a_deletion(table: Table) -> None:
    keys = await table.create([{"OrderId": "a"}, {"OrderId": "b"}, {"OrderId": "c"}])
    await table.delete(keys[:1])
    await table.delete([*keys, 999_999])
    assert await table.count() == 0
    await table.delete(keys)


async def test_pages_by_the_key_give_every_row_once_while_others_write(table: Table) -> None:
    keys = await table.create([{"OrderId": f"o{number}", "Paid": number % 2} for number in range(95)])
    seen: list[int] = []
    async for rows in table.pages(checked("Paid"), fields=("OrderId",), size=10):
        seen += [row["Id"] for row in rows]
        if len(seen) == 10:  # what an offset would stumble over
            await table.delete(keys[:20])
            await table.create([{"OrderId": "late", "Paid": True}])
    assert seen[:-1] == keys[1::2]
    assert len(seen) == 48


async def test_a_full_last_page_is_not_asked_beyond(table: Table) -> None:
    await table.create([{"OrderId": "a"}] * 20)
    before = table.upstream.totals.requests
    assert [len(rows) async for rows in table.pages(size=10)] == [10, 10]
    assert [rows async for rows in table.pages(gt("Id", 10_000))] == []
    assert table.upstream.totals.requests == before + 3


async def test_past_the_end_is_an_empty_page(table: Table) -> None:
    await table.create([{"OrderId": "a"}] * 3)
    page = await table.list(gt("Id", 1), offset=50)
    assert (page.rows, page.total, page.is_last) == ([], 2, True)


async def test_a_page_says_how_many_there_are(table: Table) -> None:
    await table.create([{"OrderId": "a"}] * 3)
    page = await table.list(fields=("Id",), sort=("-Id",), limit=2)
    assert (page.rows, page.total, page.is_last) == ([{"Id": 3}, {"Id": 2}], 3, False)


async def test_what_changed_lately_is_asked_for_in_one_request(table: Table) -> None:
    """UpdatedAt alone would miss a record that was created paid."""
    now = Clock().now()
    keys = await table.create([{"OrderId": "a"}, {"OrderId": "b", "Paid": True}, {"OrderId": "c"}])
    await table.update([{"Id": keys[0], "Paid": True}])
    lately = any_of(since("UpdatedAt", now - 5), since("CreatedAt", now - 5))
    page = await table.list(all_of(lately, checked("Paid")), sort=("Id",))
    assert [row["Id"] for row in page.rows] == keys[:2]
    assert page.rows[1]["UpdatedAt"] is None
    assert abs(instant(page.rows[0]["UpdatedAt"]) - now) < 10
    late = any_of(since("UpdatedAt", now + 60), since("CreatedAt", now + 60))
    assert (await table.list(all_of(late, checked("Paid")))).rows == []


async def test_a_missing_table_is_an_error_not_a_missing_record(nocodb: NocoDb) -> None:
    gone = nocodb.table("mxxxxxxxxxxxxxx")
    with pytest.raises(UpstreamRefusedError, match="TABLE_NOT_FOUND") as caught:
        await gone.read(1)
    assert caught.value.status == 404


async def test_a_field_that_does_not_exist_is_named(table: Table) -> None:
    with pytest.raises(UpstreamRefusedError, match="Piad"):
        await table.list(fields=("Piad",))
    with pytest.raises(UpstreamRefusedError, match="Piad"):
        await table.list(checked("Piad"))
