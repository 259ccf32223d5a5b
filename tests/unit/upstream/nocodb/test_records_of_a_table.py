"""The table against a scripted transport: checks of input, shapes, lost answers, failures half-way."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from tidegate.errors import (
    BadInputError,
    ClosedError,
    PartlyDoneError,
    UpstreamError,
    UpstreamGarbledError,
    UpstreamRefusedError,
    UpstreamUnknownError,
)
from tidegate.model import Rate
from tidegate.sim.nocodb import NocoLimits
from tidegate.sim.nocodb import SimulatedNocoDb as Simulator
from tidegate.sim.nocodb.nocodb import NocoWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.upstream.client import Upstream
from tidegate.upstream.limiter import MemoryLimiter
from tidegate.upstream.nocodb.client import NocoDb
from tidegate.upstream.nocodb.table import Table
from tidegate.upstream.nocodb.where import all_of, checked, one_of
from tidegate.upstream.request_log import Exchange
from tidegate.upstream.transport import NoResponse, UpstreamRequest, UpstreamResponse, UpstreamTransport

LAST = {"totalRows": 1, "isLastPage": True}
SILENCE = NoResponse(left=True, reason="timeout")
Said = UpstreamResponse | NoResponse


def said(body: object, status: int = 200) -> UpstreamResponse:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return UpstreamResponse(status, {"content-type": "application/json"}, raw)


class Scripted(UpstreamTransport):
    """Answers in turn; the last one for ever."""

    def __init__(self, answers: Iterable[Said]) -> None:
        self.answers = deque(answers)
        self.requests: list[UpstreamRequest] = []

    async def send(self, request: UpstreamRequest) -> Said:
        self.requests.append(request)
        return self.answers.popleft() if len(self.answers) > 1 else self.answers[0]

    async def close(self) -> None:
        """Nothing is open."""


class LosesAnswers(UpstreamTransport):
    """Of the methods given, the first answer each: the request is carried out all the same."""

    def __init__(self, wire: UpstreamTransport, methods: Iterable[str]) -> None:
        self._wire, self._methods = wire, set(methods)

    async def send(self, request: UpstreamRequest) -> Said:
        answer = await self._wire.send(request)
        if request.method not in self._methods:
            return answer
        self._methods.discard(request.method)
        return SILENCE

    async def close(self) -> None:
        await self._wire.close()


def tables(wire: UpstreamTransport, clock: VirtualClock) -> NocoDb:
    limiter = MemoryLimiter(Rate(1_000, 1), clock)
    return NocoDb(Upstream(wire, name="nocodb", limiter=limiter, clock=clock))


async def test_each_exchange_of_a_nocodb_is_told(clock: VirtualClock) -> None:
    noco = Simulator(clock)
    told: list[Exchange] = []
    nocodb = tables(NocoWire(noco, token="t", timeout=10), clock)
    nocodb.on_exchange(told.append)

    await nocodb.table(noco.create_table("orders")).list()

    assert [(one.method, one.status, one.records) for one in told] == [("GET", 200, 0)]


Scripting = Callable[..., Table]


@pytest.fixture
def scripted(clock: VirtualClock) -> Scripting:
    return lambda *answers: tables(Scripted(answers), clock).table("m1")


@pytest.fixture
def simulator(clock: VirtualClock) -> Simulator:
    return Simulator(clock, limits=NocoLimits(rate=Rate(1_000, 1)))


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b"{}", b'{"list":[1],"pageInfo":{}}', b'{"list":[]}', b"\xff"]
)
async def test_an_answer_of_another_shape_is_garbled(scripted: Scripting, body: bytes) -> None:
    with pytest.raises(UpstreamGarbledError, match="nocodb: GET api/v2/tables/m1/records"):
        await scripted(said(body)).list()


@pytest.mark.parametrize("body", [b"{", b'{"number":1}', b"5"])
async def test_a_count_of_another_shape_is_garbled(scripted: Scripting, body: bytes) -> None:
    with pytest.raises(UpstreamGarbledError):
        await scripted(said(body)).count()


async def test_counts_in_texts_are_read(scripted: Scripting) -> None:
    page = await scripted(
        said({"list": [{"Id": 1}], "pageInfo": {"totalRows": "7", "isLastPage": False}})
    ).list()
    assert (page.total, page.is_last) == (7, False)


async def test_keys_that_are_not_told_are_garbled_and_it_says_that_rows_were_created(
    scripted: Scripting,
) -> None:
    for answer in (said(b"{"), said([{"id": 5}]), said({"Id": 5})):
        with pytest.raises(UpstreamGarbledError, match=r"created|shape"):
            await scripted(answer).create([{"OrderId": "a"}])


async def test_pages_that_do_not_advance_end_with_an_error(scripted: Scripting) -> None:
    stuck = said({"list": [{"Id": 5}], "pageInfo": {"totalRows": 9, "isLastPage": False}})
    with pytest.raises(UpstreamGarbledError, match="ends with 5"):
        _ = [rows async for rows in scripted(stuck).pages()]


async def test_a_smaller_page_than_asked_for_is_not_the_last(scripted: Scripting) -> None:
    """A server with a smaller cap than it says."""
    first = said({"list": [{"Id": 5}], "pageInfo": {"totalRows": 2, "isLastPage": False}})
    second = said({"list": [{"Id": 6}], "pageInfo": {"totalRows": 1, "isLastPage": True}})
    assert [rows async for rows in scripted(first, second).pages()] == [[{"Id": 5}], [{"Id": 6}]]


@pytest.mark.parametrize(
    "record", ["", "a/b", "..", "count", "a b", "a?b", "a%2fb", "a#b", None, True, 1.5, "x" * 256]
)
async def test_no_id_of_a_record_is_refused_before_anything_is_sent(scripted: Scripting, record: Any) -> None:  # noqa: ANN401
    table = scripted(said({}))
    with pytest.raises(BadInputError, match="id of a record"):
        await table.read(record)
    with pytest.raises(BadInputError, match="id of a record"):
        await table.update([{"Id": record}])
    assert table.upstream.totals.requests == 0


@pytest.mark.parametrize("table", ["", "a/b", "orders table", "../x", "m" * 65, "m1?x"])
async def test_no_id_of_a_table_is_refused(clock: VirtualClock, table: str) -> None:
    with pytest.raises(BadInputError, match="id of a table"):
        tables(Scripted([]), clock).table(table)


async def test_bad_input_is_refused_before_anything_is_sent(scripted: Scripting) -> None:
    table = scripted(said({}))
    for call in (
        table.list(limit=0),
        table.list(limit=1_001),
        table.list(offset=-1),
        table.list(fields=("a,b",)),
        table.list(fields="Id"),
        table.list(sort=("-",)),
        table.update([{"Paid": True}]),
        table.update([{"Id": 1}, {"Id": "1"}]),
        table.delete([1, 1]),
        table.delete("12"),  # a text is a sequence too
        table.delete({1, 2}),  # type: ignore[arg-type]
        table.create({"Title": "x"}),  # type: ignore[arg-type]
        table.create({"Title": "x"} for _ in range(2)),  # type: ignore[arg-type]
        table.create([None]),  # type: ignore[list-item]
        table.create("x"),  # type: ignore[arg-type]
        table.update(["x"]),  # type: ignore[list-item]
        table.create([{"Title": "x"}] * 100 + [{"Title": object()}]),  # the first hundred is not sent either
        table.update([{"Id": number, "Title": object() if number == 100 else 1} for number in range(101)]),
    ):
        with pytest.raises(BadInputError):
            await call
    assert table.upstream.totals.requests == 0


async def test_nothing_to_write_asks_nothing(scripted: Scripting) -> None:
    table = scripted(said({}))
    assert await table.create([]) == []
    await table.update([])
    await table.delete([])
    assert table.upstream.totals.requests == 0


async def test_rows_that_may_have_been_created_are_not_created_again(
    clock: VirtualClock, simulator: Simulator
) -> None:
    orders = simulator.create_table("orders")
    table = tables(LosesAnswers(NocoWire(simulator), ["POST"]), clock).table(orders)
    with pytest.raises(UpstreamUnknownError):
        await table.create([{"OrderId": "a"}])
    assert len(simulator.rows(orders)) == 1


async def test_a_lost_answer_to_an_update_or_a_deletion_is_made_good(
    clock: VirtualClock, simulator: Simulator
) -> None:
    orders = simulator.create_table("orders")
    keys = simulator.insert(orders, [{"Paid": False}] * 3)
    table = tables(LosesAnswers(NocoWire(simulator), ["PATCH", "DELETE"]), clock).table(orders)
    await table.update([{"Id": key, "Paid": True} for key in keys])
    assert await table.count(checked("Paid")) == 3
    await table.delete(keys[:2])
    assert [row["Id"] for row in simulator.rows(orders)] == keys[2:]


async def test_a_failure_after_the_first_hundred_says_what_was_done_and_what_is_unknown(
    scripted: Scripting,
) -> None:
    table = scripted(said([{"Id": number} for number in range(100)]), SILENCE)
    with pytest.raises(PartlyDoneError, match="100 of 250 rows") as caught:
        await table.create([{"OrderId": "a"}] * 250)
    assert (caught.value.done, caught.value.ids) == (100, list(range(100)))
    assert isinstance(caught.value.__cause__, UpstreamUnknownError)
    assert isinstance(caught.value, UpstreamError)


async def test_a_client_closed_after_the_first_hundred_says_what_was_done(
    clock: VirtualClock, simulator: Simulator
) -> None:
    orders = simulator.create_table("orders")
    upstream = Upstream(NocoWire(simulator), clock=clock, limiter=MemoryLimiter(Rate(1, 60), clock))
    writing = asyncio.create_task(NocoDb(upstream).table(orders).create([{"Title": "y"}] * 300))
    await clock.sleep(10)
    await upstream.close()
    with pytest.raises(PartlyDoneError, match="100 of 300 rows") as caught:
        await writing
    assert (caught.value.done, len(simulator.rows(orders))) == (100, 100)
    assert isinstance(caught.value.__cause__, ClosedError)


async def test_a_text_is_no_list_of_values(scripted: Scripting) -> None:
    with pytest.raises(BadInputError, match="give a list"):
        one_of("OrderId", "A17")
    with pytest.raises(BadInputError, match="as a list"):
        scripted(said({})).most("OrderId", "A17")


async def test_rows_changed_while_they_wait_go_as_they_were_given(
    clock: VirtualClock, simulator: Simulator
) -> None:
    orders = simulator.create_table("orders")
    rows = [{"Title": "given"} for _ in range(150)]
    writing = asyncio.create_task(tables(NocoWire(simulator), clock).table(orders).create(rows))
    await asyncio.sleep(0)  # noqa: TID251  (no time passes)
    for row in rows:
        row["Title"] = "changed"
    await writing
    assert {row["Title"] for row in simulator.rows(orders)} == {"given"}


async def test_a_failure_of_the_first_hundred_is_raised_as_it_is(scripted: Scripting) -> None:
    with pytest.raises(UpstreamRefusedError):
        await scripted(said({"msg": "no"}, 422)).create([{"OrderId": "a"}] * 250)


async def test_a_deletion_that_the_server_keeps_refusing_ends(scripted: Scripting) -> None:
    gone = said({"error": "ERR_RECORD_NOT_FOUND", "message": "Record '1' not found"}, 404)
    there = said({"list": [{"Id": 1}], "pageInfo": LAST})
    with pytest.raises(UpstreamRefusedError, match="RECORD_NOT_FOUND"):
        await scripted(gone, there, gone).delete([1])


async def test_as_many_as_fit_an_address_and_not_one_more(clock: VirtualClock) -> None:
    wire = Scripted([said({"list": [], "pageInfo": LAST})])
    table = tables(wire, clock).table("m1")
    for texts in ([f"order-{number}" for number in range(2_000)], ["a,bcdefg"] * 2_000, ["Ключ"] * 900):
        most = table.most("OrderId", texts, and_=checked("Paid"), fields=("OrderId",))
        await table.list(all_of(one_of("OrderId", texts[:most]), checked("Paid")), fields=("OrderId",))
        assert 7_900 < len(wire.requests[-1].target) <= 8_000
    assert table.most("Id", range(5_000)) == 1_000
    assert table.most("Id", []) == 0
    assert table.most("Id", [1, 2]) == 2


async def test_a_condition_that_leaves_no_room_is_refused(clock: VirtualClock) -> None:
    table = tables(Scripted([]), clock).table("m1")
    with pytest.raises(BadInputError, match="shorter condition"):
        table.most("Id", [1, 2], and_=one_of("OrderId", ["x" * 100] * 100))


async def test_no_token_is_refused_without_being_repeated() -> None:
    given: list[Any] = ["", "two words", "ключ", "line\nbreak", None]
    for token in given:
        with pytest.raises(BadInputError) as caught:
            NocoDb.at("http://127.0.0.1:1", token)
        assert not token or token not in str(caught.value)


async def test_a_token_is_not_shown(clock: VirtualClock) -> None:
    nocodb = NocoDb.at("http://127.0.0.1:1/nocodb", "secret-token-123", clock=clock)
    assert "secret-token-123" not in repr(nocodb) + repr(nocodb.upstream) + repr(vars(nocodb))
    await nocodb.close()
