"""The simulated NocoDB over HTTP: the API, faults on a real connection, the control API."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tidegate.model import Rate
from tidegate.sim.nocodb import NocoLimits
from tidegate.sim.nocodb.http import NocoDbServer

TOKEN = {"xc-token": "SECRET"}
LOOSE = NocoLimits(rate=Rate(1_000, 1))


@pytest.fixture
async def server() -> AsyncIterator[NocoDbServer]:
    async with NocoDbServer(limits=LOOSE) as running:
        yield running


@pytest.fixture
async def http(server: NocoDbServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url, headers=TOKEN) as session:
        yield session


async def control(http: aiohttp.ClientSession, verb: str, path: str, **body: object) -> Any:  # noqa: ANN401  (JSON)
    async with http.request(verb, f"/sim/{path}", json=body or None) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def read(http: aiohttp.ClientSession, address: str) -> tuple[int, Any]:
    async with http.get(URL(address, encoded=True)) as answer:
        return answer.status, await answer.json()


async def test_rows_are_written_and_read_as_with_the_real_one(http: aiohttp.ClientSession) -> None:
    table = (await control(http, "POST", "table", title="orders", columns={"Name": "SingleLineText"}))[
        "table"
    ]
    address = f"/api/v2/tables/{table}/records"
    async with http.post(address, json=[{"Name": "Grüße, (1) & more"}, {"Name": "x"}]) as answer:
        assert (answer.status, await answer.json()) == (200, [{"Id": 1}, {"Id": 2}])
    async with http.patch(address, json={"Id": 2, "Name": "y"}) as answer:
        assert answer.status == 200
    status, page = await read(
        http, f"{address}?where=(Name,eq,Gr%C3%BC%C3%9Fe,%20(1)%20%26%20more)&fields=Id"
    )
    assert (status, page["list"]) == (200, [{"Id": 1}])
    async with http.delete(address, json=[{"Id": 1}]) as answer:
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert await read(http, f"{address}/count") == (200, {"count": 1})
    assert (await read(http, f"{address}/1"))[0] == 404


async def test_others_edit_through_the_control_api_and_nothing_of_it_counts(
    server: NocoDbServer, http: aiohttp.ClientSession
) -> None:
    table = (await control(http, "POST", "table", title="orders"))["table"]
    assert await control(http, "POST", "insert", table=table, rows=[{"Name": "a"}] * 3) == {"ids": [1, 2, 3]}
    await control(http, "POST", "skew", seconds=-3600)
    await control(http, "POST", "pay", table=table, id=1)
    await control(http, "POST", "pay", table=table, id=2, commit_after=600)
    await control(http, "POST", "update", table=table, rows=[{"Id": 2, "Name": "b"}])
    await control(http, "POST", "direct", table=table, id=2, fields={"Name": "c"})
    await control(http, "POST", "delete", table=table, ids=[3])
    rows = (await control(http, "GET", f"rows?table={table}"))["rows"]
    assert [(row["Id"], row["Name"], row["Paid"]) for row in rows] == [(1, "a", 1), (2, "c", None)]
    assert rows[0]["UpdatedAt"] < rows[0]["CreatedAt"]
    assert (await control(http, "GET", "tables"))["tables"] == [{"id": table, "title": "orders", "rows": 2}]
    assert (await control(http, "GET", "report"))["requests"] == 0
    await control(http, "POST", "drop", table=table)
    assert (await read(http, f"/api/v2/tables/{table}/records"))[0] == 404
    assert [entry["status"] for entry in (await control(http, "GET", "log"))["log"]] == [404]
    await control(http, "POST", "reset")
    assert server.noco.report()["requests"] == 0


async def test_limits_and_faults_are_changed_while_it_runs(http: aiohttp.ClientSession) -> None:
    changed = await control(http, "PATCH", "limits", rate="2/60", retry_after="date")
    assert changed == {"rate": "2/60", "block": 30.0, "retry_after": "date"}
    assert await control(http, "GET", "limits") == changed
    for _ in range(2):
        assert (await read(http, "/api/v2/tables/none/records"))[0] == 404
    async with http.get("/api/v2/tables/none/records") as refused:
        assert refused.status == 429
        assert refused.headers["Retry-After"].endswith(" GMT")
        assert "Date" in refused.headers
    await control(http, "PATCH", "limits", rate="1000/1")
    await control(http, "PATCH", "faults", malformed=1.0, latency_in="1-2")
    async with http.get("/api/v2/tables/none/records") as answer:
        with pytest.raises(ValueError, match=r"JSON|Expecting|Invalid|Unterminated"):
            await answer.json()
    assert (await control(http, "GET", "faults"))["latency_in"] == "1-2"


@pytest.mark.parametrize("cause", ["down", "lost"])
async def test_a_connection_that_is_cut_is_seen_as_one(http: aiohttp.ClientSession, cause: str) -> None:
    if cause == "down":
        await control(http, "POST", "stop")
    else:
        await control(http, "PATCH", "faults", lost_answer=1.0)
    with pytest.raises(aiohttp.ClientConnectionError):
        await http.get("/api/v2/tables/none/records")
    await control(http, "POST", "start")
    await control(http, "PATCH", "faults", lost_answer=0.0)
    assert (await read(http, "/api/v2/tables/none/records"))[0] == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("pay", b'{"table": "none", "id": 1}'),
        ("pay", b'{"id": 1}'),
        ("pay", b"{"),
        ("insert", b'{"table": "none", "rows": [1]}'),
        ("skew", b'{"seconds": "x"}'),
        ("table", b'{"title": ""}'),
        ("nothing", b"{}"),
    ],
)
async def test_what_is_asked_wrongly_is_a_400_with_one_line(
    http: aiohttp.ClientSession, path: str, body: bytes
) -> None:
    async with http.post(f"/sim/{path}", data=body) as answer:
        assert answer.status == 400
        assert "\n" not in (await answer.json())["error"]


async def test_a_table_that_is_not_there_is_told_where_they_are_listed(http: aiohttp.ClientSession) -> None:
    async with http.post("/sim/pay", json={"table": "orders", "id": 1}) as answer:
        assert "GET /sim/tables" in (await answer.json())["error"]


@pytest.mark.parametrize(
    "option", [{"rate": "0/1"}, {"block": -1}, {"nonsense": 1}, {"retry_after": "never"}]
)
async def test_limits_that_cannot_be_are_refused(
    http: aiohttp.ClientSession, option: dict[str, object]
) -> None:
    async with http.patch("/sim/limits", json=option) as answer:
        assert answer.status == 400


@pytest.mark.parametrize("length", [17_000, 1_000_000])
async def test_an_address_that_is_too_long_is_refused_as_node_does(
    server: NocoDbServer, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    writer.write(
        b"GET /api/v2/tables/x/records?where=%b HTTP/1.1\r\nHost: x\r\nxc-token: SECRET\r\n\r\n"
        % (b"a" * length)
    )
    answer = await reader.read()
    writer.close()
    assert b" 431 " in answer.splitlines()[0]
    assert b"SECRET" not in answer
    assert "SECRET" not in caplog.text


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open(server: NocoDbServer) -> None:
    with pytest.raises(OSError, match="address already in use"):
        async with NocoDbServer(port=int(server.url.rsplit(":", 1)[1])):
            pass
