"""The records API: shapes, caps, and how it says no, as measured on NocoDB 0.301.3."""

from typing import Any

import pytest

from tidegate.errors import BadInputError
from tidegate.sim.nocodb import SimulatedNocoDb
from tidegate.sim.nocodb.nocodb import NocoWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.upstream.transport import UpstreamRequest, UpstreamResponse
from unit.sim.nocodb.noco_tables import COLUMNS, Ask


def ids(page: dict[str, Any]) -> list[int]:
    return [row["Id"] for row in page["list"]]


async def test_a_new_row_has_every_column_and_was_never_updated(ask: Ask) -> None:
    assert await ask("POST", body={"OrderId": "A-1", "Amount": 5, "Nonsense": 1, "Id": 77}) == (
        200,
        {"Id": 1},
    )

    assert await ask(path="/1") == (
        200,
        {
            "Id": 1,
            "CreatedAt": "2026-01-05 09:00:00+00:00",
            "UpdatedAt": None,
            "OrderId": "A-1",
            "Amount": 5,
            "Paid": 0,
            "Due": None,
        },
    )


async def test_one_row_is_answered_with_one_key_and_many_with_many(ask: Ask) -> None:
    assert await ask("POST", body=[{}, {"Amount": 2}]) == (200, [{"Id": 1}, {"Id": 2}])
    assert await ask("POST", body=[]) == (200, [])
    assert await ask("PATCH", body={"Id": 1, "Amount": 9}) == (200, {"Id": 1})
    assert await ask("PATCH", body=[{"Id": 1}, {"Id": "2"}]) == (200, [{"Id": 1}, {"Id": 2}])
    assert await ask("DELETE", body=[{"Id": 1}]) == (200, [{"Id": 1}])
    assert await ask("DELETE", body={"Id": 2}) == (200, {"Id": 2})
    assert await ask(path="/count") == (200, {"count": 0})


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_a_hundred_rows_are_the_most(ask: Ask, noco: SimulatedNocoDb, table: str, method: str) -> None:
    noco.insert(table, [{}] * 101)
    rows = [{"Id": number} for number in range(1, 102)]
    assert (await ask(method, body=rows[:100]))[0] == 200
    status, said = await ask(method, body=rows)
    assert (status, said["error"]) == (422, "ERR_MAX_PAYLOAD_LIMIT_EXCEEDED")


@pytest.mark.parametrize(
    ("method", "rows", "status", "word"),
    [
        ("PATCH", [{"Id": 1, "Amount": 9}, {"Id": 99}], 404, "Record '99' not found"),
        ("PATCH", [{"Id": 1, "Amount": 9}, {"Amount": 9}], 404, "Record 'unknown' not found"),
        ("PATCH", [{"Id": 1, "Amount": 9}, {"Id": 1}], 422, "Duplicate record with id 1"),
        ("PATCH", [{"Id": 1, "Amount": 9}, {"Id": "abc"}], 422, "Primary key value 'abc' is invalid"),
        ("DELETE", [{"Id": 1}, {"Id": 99}], 404, "Record '99' not found"),
        ("DELETE", [{"Id": 1}, {}], 422, "Field 'Id' is required"),
        ("DELETE", [{"Id": 1}, {"Id": 1}], 422, "Duplicate record with id 1"),
    ],
)
async def test_a_write_happens_to_all_of_its_rows_or_to_none(
    ask: Ask, noco: SimulatedNocoDb, table: str, method: str, rows: list[object], status: int, word: str
) -> None:
    noco.insert(table, [{"Amount": 1}])
    before = noco.rows(table)
    answered, said = await ask(method, body=rows)
    assert answered == status
    assert word in said.get("message", said.get("msg"))
    assert noco.rows(table) == before


@pytest.mark.parametrize("body", ["text", [1], [[]], 5])
async def test_what_is_no_row_is_a_bad_request(ask: Ask, body: object) -> None:
    status, said = await ask("POST", body=body)
    assert (status, said["error"]) == (400, "ERR_INVALID_JSON")


@pytest.mark.parametrize(
    ("limit", "size"), [(None, 25), (1, 1), (999, 999), (5000, 1000), (0, 25), (-1, 25), ("abc", 25)]
)
async def test_a_page_has_25_rows_unless_asked_and_1000_at_most(
    ask: Ask, noco: SimulatedNocoDb, table: str, limit: object, size: int
) -> None:
    noco.insert(table, [{}] * 1_100)
    status, page = await ask(**({} if limit is None else {"limit": limit}))
    assert (status, len(page["list"]), page["pageInfo"]["pageSize"]) == (200, size, size)
    assert page["pageInfo"]["totalRows"] == 1_100


async def test_page_info_says_where_one_is(ask: Ask, noco: SimulatedNocoDb, table: str) -> None:
    noco.insert(table, [{}] * 5)
    info = {"totalRows": 5, "page": 2, "pageSize": 2, "isFirstPage": False, "isLastPage": False}
    assert (await ask(limit=2, offset=2))[1]["pageInfo"] == info
    odd = {"totalRows": 5, "offset": 4, "pageSize": 25, "isFirstPage": False, "isLastPage": True}
    assert (await ask(offset=4))[1]["pageInfo"] == odd


async def test_an_offset_at_or_behind_the_end_is_refused(ask: Ask, noco: SimulatedNocoDb, table: str) -> None:
    assert (await ask())[1]["list"] == []
    assert (await ask(offset=1))[0] == 422
    noco.insert(table, [{}] * 3)
    assert ids((await ask(offset=2))[1]) == [3]
    assert ids((await ask(offset=-1))[1]) == [1, 2, 3]
    status, said = await ask(offset=3)
    assert (status, said["error"]) == (422, "ERR_INVALID_OFFSET_VALUE")


async def test_rows_are_sorted_by_several_fields_with_nulls_first(
    ask: Ask, noco: SimulatedNocoDb, table: str
) -> None:
    noco.insert(table, [{"Amount": 2, "OrderId": "b"}, {"OrderId": "c"}, {"Amount": 2, "OrderId": "a"}])
    assert ids((await ask(sort="Amount,OrderId"))[1]) == [2, 3, 1]
    assert ids((await ask(sort="-Amount,-Id"))[1]) == [3, 1, 2]


async def test_only_the_fields_that_are_asked_for_come(ask: Ask, noco: SimulatedNocoDb, table: str) -> None:
    noco.insert(table, [{"Amount": 2}])
    assert (await ask(fields="Amount"))[1]["list"] == [{"Amount": 2}]
    assert (await ask(path="/1", fields="Id,Paid"))[1] == {"Id": 1, "Paid": 0}
    assert len((await ask(fields=""))[1]["list"][0]) == 7


@pytest.mark.parametrize("query", [{"fields": "Id,Piad"}, {"sort": "-Piad"}])
async def test_an_unknown_field_is_not_found(ask: Ask, query: dict[str, str]) -> None:
    status, said = await ask(**query)
    assert (status, said) == (404, {"error": "ERR_FIELD_NOT_FOUND", "message": "Field 'Piad' not found"})


async def test_what_is_not_there_is_not_found(ask: Ask, noco: SimulatedNocoDb, table: str) -> None:
    assert (await ask(path="/9999"))[1]["error"] == "ERR_RECORD_NOT_FOUND"
    assert (await ask(path="/abc"))[0] == 422
    noco.drop_table(table)
    status, said = await ask()
    assert (status, said["error"]) == (404, "ERR_TABLE_NOT_FOUND")
    with pytest.raises(BadInputError, match="there is no table"):
        noco.rows(table)


async def test_a_table_tells_of_itself_until_it_is_dropped(noco: SimulatedNocoDb, table: str) -> None:
    wire = NocoWire(noco)
    request = UpstreamRequest(method="GET", path=f"api/v2/meta/tables/{table}")
    answer = await wire.send(request)
    assert isinstance(answer, UpstreamResponse)
    assert (answer.status, b'"title":"orders"' in answer.body) == (200, True)
    noco.drop_table(table)
    gone = await wire.send(request)
    assert isinstance(gone, UpstreamResponse)
    assert gone.status == 404


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_wrong_token_is_unauthorized_and_does_not_count(clock: VirtualClock, token: str) -> None:
    noco = SimulatedNocoDb(clock, tokens={"right"})
    table = noco.create_table("orders")
    request = UpstreamRequest(method="GET", path=f"api/v2/tables/{table}/records")
    for _ in range(10):
        answer = await NocoWire(noco, token=token).send(request)
        assert isinstance(answer, UpstreamResponse)
        assert answer.status == 401
    answer = await NocoWire(noco, token="right").send(request)
    assert isinstance(answer, UpstreamResponse)
    assert answer.status == 200


async def test_an_address_that_is_none_is_not_found(noco: SimulatedNocoDb) -> None:
    for method, path in (("GET", "api/v3/x"), ("PUT", "api/v2/tables/m1/records"), ("GET", "")):
        answer = await NocoWire(noco).send(UpstreamRequest(method=method, path=path))
        assert isinstance(answer, UpstreamResponse)
        assert answer.status == 404


async def test_path_and_headers_beyond_16_kib_are_refused_before_they_count(
    noco: SimulatedNocoDb, table: str
) -> None:
    headers = {"xc-token": "any"}
    start = f"/api/v2/tables/{table}/records?where="
    room = 16_383 - len("xc-token") - len("any")
    fits = await noco.handle("GET", start + "(Id,in," + "1" * (room - len(start) - 8) + ")", headers)
    assert fits.status == 200
    large = await noco.handle("GET", start + "(Id,in," + "1" * (room - len(start) - 7) + ")", headers)
    assert (large.status, large.body, large.headers["connection"]) == (431, b"", "close")


async def test_the_number_of_a_deleted_last_row_is_given_again(noco: SimulatedNocoDb, table: str) -> None:
    noco.insert(table, [{}] * 3)
    noco.delete(table, [3])
    assert noco.insert(table, [{}]) == [3]
    postgres = SimulatedNocoDb(noco.clock, postgres=True)
    other = postgres.create_table("orders")
    postgres.insert(other, [{}] * 3)
    postgres.delete(other, [3])
    assert postgres.insert(other, [{}]) == [4]


async def test_postgres_leaves_a_checkbox_that_was_not_given_null(clock: VirtualClock) -> None:
    noco = SimulatedNocoDb(clock, postgres=True)
    table = noco.create_table("orders", columns=COLUMNS)
    noco.insert(table, [{}, {"Paid": False}, {"Paid": 1}])
    assert [row["Paid"] for row in noco.rows(table)] == [None, False, True]


async def test_a_free_table_takes_any_field(noco: SimulatedNocoDb, ask: Ask) -> None:
    free = noco.create_table("free", key="Nr")
    noco.insert(free, [{"Paid": True, "Tags": ["a"], "Name": "x"}])
    noco.insert(free, [{"Other": 1.5}])
    page = (await ask(of=free, where="(Paid,checked)"))[1]
    assert page["list"][0] | {"CreatedAt": ""} == {
        "Nr": 1,
        "CreatedAt": "",
        "UpdatedAt": None,
        "Paid": 1,
        "Tags": '["a"]',
        "Name": "x",
        "Other": None,
    }
    assert (await ask(of=free, where="(Unheard,eq,1)"))[1]["list"] == []


async def test_what_edits_a_row_that_is_not_there_says_so(noco: SimulatedNocoDb, table: str) -> None:
    with pytest.raises(BadInputError, match="no record 5 in 'orders'"):
        noco.pay(table, 5)
    with pytest.raises(BadInputError, match="ids are whole numbers"):
        noco.update(table, [{"Paid": True}])
