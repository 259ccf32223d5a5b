"""Shapes, caps and errors, asked past the client: what it relies on, and what the simulator plays."""

import asyncio
from typing import Any

import aiohttp
import pytest

from nocodb.conftest import Ask
from nocodb.places import Place

ROWS = [{"OrderId": f"o{number}", "Paid": number == 1, "Amount": number} for number in range(1, 6)]


@pytest.fixture
async def five(ask: Ask) -> None:
    status, made = await ask("POST", "", ROWS)
    assert (status, made) == (200, [{"Id": number} for number in range(1, 6)])


@pytest.mark.usefixtures("five")
async def test_a_listing_has_rows_and_says_where_it_ends(ask: Ask) -> None:
    status, page = await ask("GET", "?limit=2&sort=-Id")
    assert status == 200
    assert [row["Id"] for row in page["list"]] == [5, 4]
    info = page["pageInfo"]
    assert info == {"totalRows": 5, "page": 1, "pageSize": 2, "isFirstPage": True, "isLastPage": False}


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize(
    ("query", "ids", "info"),
    [
        ("limit=2&offset=4", [5], {"page": 3, "pageSize": 2, "isLastPage": True}),
        ("limit=3&offset=1", [2, 3, 4], {"offset": 1, "pageSize": 3, "isFirstPage": False}),
        ("limit=0", [1, 2, 3, 4, 5], {"pageSize": 25, "isLastPage": True}),
        ("limit=-1", [1, 2, 3, 4, 5], {"pageSize": 25}),
        ("limit=abc", [1, 2, 3, 4, 5], {"pageSize": 25}),
        ("limit=5000", [1, 2, 3, 4, 5], {"pageSize": 1000}),
        ("offset=-1", [1, 2, 3, 4, 5], {"page": 1}),
        ("where=(Id,gt,99)", [], {"totalRows": 0, "isFirstPage": True, "isLastPage": True, "page": 1}),
    ],
)
async def test_limits_and_offsets_at_their_edges(
    ask: Ask, query: str, ids: list[int], info: dict[str, Any]
) -> None:
    status, page = await ask("GET", f"?{query}")
    assert status == 200
    assert [row["Id"] for row in page["list"]] == ids
    assert page["pageInfo"] | info == page["pageInfo"]


@pytest.mark.usefixtures("five")
async def test_a_new_row_has_no_time_of_update_and_every_column(ask: Ask) -> None:
    _, row = await ask("GET", "/2")
    created = row.pop("CreatedAt")
    assert created[10] == " "
    assert created.endswith("+00:00")
    assert len(created) == len("2026-01-05 09:00:00+00:00")
    given = {"Id": 2, "OrderId": "o2", "Paid": 0, "Amount": 2}
    assert row == given | {"UpdatedAt": None, "Due": None, "Sum (USD)": None}


@pytest.mark.usefixtures("five")
async def test_an_update_sets_the_time_even_if_no_field_is_known(ask: Ask) -> None:
    assert await ask("PATCH", "", [{"Id": 1, "Piad": True}]) == (200, [{"Id": 1}])
    _, row = await ask("GET", "/1?fields=Id,CreatedAt,UpdatedAt")
    assert row["UpdatedAt"] >= row["CreatedAt"]


async def test_a_checkbox_that_is_not_given_is_0_or_null(place: Place, ask: Ask) -> None:
    await ask("POST", "", [{"OrderId": "a"}, {"Paid": True}, {"Paid": None}])
    _, page = await ask("GET", "?fields=Paid")
    untouched = None if place.postgres else 0
    assert page["list"] == [{"Paid": untouched}, {"Paid": 1}, {"Paid": None}]


async def test_one_row_is_answered_by_one_and_a_list_by_a_list(ask: Ask) -> None:
    assert await ask("POST", "", {"OrderId": "a"}) == (200, {"Id": 1})
    assert await ask("POST", "", []) == (200, [])
    assert await ask("POST", "", [{"OrderId": "b", "Id": 77, "Piad": 1}]) == (200, [{"Id": 2}])
    assert await ask("PATCH", "", {"Id": 1, "Amount": 1}) == (200, {"Id": 1})
    assert await ask("PATCH", "", []) == (200, [])
    assert await ask("DELETE", "", {"Id": 2}) == (200, {"Id": 2})
    assert await ask("DELETE", "", [{"Id": 1}]) == (200, [{"Id": 1}])
    assert await ask("GET", "/count") == (200, {"count": 0})


@pytest.mark.usefixtures("five")
async def test_one_missing_row_and_none_of_its_request_is_written(ask: Ask) -> None:
    status, _ = await ask("PATCH", "", [{"Id": 1, "Amount": 99}, {"Id": 999, "Amount": 99}])
    assert status == 404
    status, _ = await ask("DELETE", "", [{"Id": 1}, {"Id": 999}])
    assert status == 404
    assert (await ask("GET", "/1?fields=Amount"))[1]["Amount"] == 1


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize(
    ("method", "rest", "body", "status", "error"),
    [
        ("GET", "/999", None, 404, "ERR_RECORD_NOT_FOUND"),
        ("GET", "/abc", None, 422, "ERR_INVALID_PK_VALUE"),
        ("GET", "?offset=6", None, 422, "ERR_INVALID_OFFSET_VALUE"),
        ("GET", "?where=(Id,gt,99)&offset=1", None, 422, "ERR_INVALID_OFFSET_VALUE"),
        ("GET", "?fields=Id,Piad", None, 404, "ERR_FIELD_NOT_FOUND"),
        ("GET", "?sort=Piad", None, 404, "ERR_FIELD_NOT_FOUND"),
        ("GET", "?where=(Piad,checked)", None, 422, None),
        ("GET", "/count?where=(Piad,checked)", None, 422, None),
        ("GET", "?where=@(Piad,checked)", None, 422, "ERR_INVALID_FILTER"),
        ("GET", "?where=(Amount,foo,1)", None, 422, None),
        ("GET", "?where=(Amount,eq,1", None, 422, None),
        ("GET", "?where=(Amount,checked)", None, 422, "ERR_FILTER_VERIFICATION_FAILED"),
        ("GET", "?where=(Amount,eq,abc)", None, 422, "ERR_FILTER_VERIFICATION_FAILED"),
        ("GET", "?where=(Paid,in,1)", None, 422, "ERR_FILTER_VERIFICATION_FAILED"),
        ("POST", "", [{"OrderId": "x"}] * 101, 422, "ERR_MAX_PAYLOAD_LIMIT_EXCEEDED"),
        ("PATCH", "", [{"Id": number} for number in range(101)], 422, "ERR_MAX_PAYLOAD_LIMIT_EXCEEDED"),
        ("DELETE", "", [{"Id": number} for number in range(101)], 422, "ERR_MAX_PAYLOAD_LIMIT_EXCEEDED"),
        ("PATCH", "", [{"Amount": 1}], 404, "ERR_RECORD_NOT_FOUND"),
        ("PATCH", "", [{"Id": 1}, {"Id": 1}], 422, None),
        ("PATCH", "", [{"Id": "abc"}], 422, "ERR_INVALID_PK_VALUE"),
        ("DELETE", "", [{"Id": 1}, {"Id": 1}], 422, None),
        ("DELETE", "", [{}], 422, "ERR_REQUIRED_FIELD_MISSING"),
    ],
)
async def test_errors_come_in_two_shapes(
    ask: Ask, method: str, rest: str, body: object, status: int, error: str | None
) -> None:
    got, said = await ask(method, rest, body)
    assert got == status
    assert said.get("error") == error
    assert isinstance(said["message" if error else "msg"], str)


@pytest.mark.parametrize("rest", ["", "/1", "/count"])
async def test_a_table_that_is_gone_is_404_with_another_word(ask: Ask, rest: str) -> None:
    path = f"/api/v2/tables/mxxxxxxxxxxxxxx/records{rest}"
    status, said = await ask("GET", path=path)
    assert (status, said["error"]) == (404, "ERR_TABLE_NOT_FOUND")


async def test_a_wrong_token_is_401(ask: Ask) -> None:
    status, said = await ask("GET", headers={"xc-token": "wrong"})
    assert (status, said["error"]) == (401, "ERR_AUTHENTICATION_REQUIRED")


async def test_path_and_headers_may_have_16383_bytes_together(place: Place, table_id: str) -> None:
    host = place.url.removeprefix("http://")
    headers = {"Host": host, "xc-token": place.token}
    start = f"/api/v2/tables/{table_id}/records?limit=1&x="
    room = 16_383 - sum(len(name) + len(value) for name, value in headers.items()) - len(start)

    async def status(filling: int) -> bytes:
        name, port = host.split(":")
        reader, writer = await asyncio.open_connection(name, int(port))
        lines = [f"GET {start}{'a' * filling} HTTP/1.1", *(f"{key}: {headers[key]}" for key in headers)]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        line = await reader.readline()
        writer.close()
        return line.split()[1]

    assert await status(room) == b"200"
    assert await status(room + 1) == b"431"


async def test_the_token_goes_by_a_header(place: Place, table_id: str) -> None:
    url = f"{place.url}/api/v2/tables/{table_id}/records"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 401
