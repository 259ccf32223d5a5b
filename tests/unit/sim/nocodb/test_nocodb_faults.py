"""The network around the simulated NocoDB, as a client sees it through a wire."""

import asyncio

import msgspec
import pytest

from tidegate.sim.faults import Latency
from tidegate.sim.nocodb import Faults, SimulatedNocoDb
from tidegate.sim.nocodb.nocodb import NocoWire
from tidegate.sim.nocodb.shop import Shop
from tidegate.sim.virtual_time import VirtualClock
from tidegate.upstream.transport import NoResponse, UpstreamRequest, UpstreamResponse
from unit.sim.nocodb.noco_tables import LOOSE

TABLE = "m00000000000001"
CREATE = UpstreamRequest(method="POST", path=f"api/v2/tables/{TABLE}/records", body={"Amount": 1})


def server(clock: VirtualClock, *, seed: int = 0, **faults: object) -> SimulatedNocoDb:
    weather = Faults(**faults)  # type: ignore[arg-type]  # as the test writes them
    noco = SimulatedNocoDb(clock, limits=LOOSE, faults=weather, seed=seed)
    noco.create_table("orders")
    return noco


async def test_latency_lies_on_both_ways(clock: VirtualClock) -> None:
    noco = server(clock, latency_in=Latency.parse("200"), latency_out=Latency.parse("300"))
    asked = asyncio.create_task(NocoWire(noco).send(CREATE))
    await clock.sleep(0.25)
    assert len(noco.rows(TABLE)) == 1
    assert isinstance(await asked, UpstreamResponse)
    assert clock.monotonic() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("fault", "reason", "happened"),
    [
        ("lost_request", "disconnected", 0),
        ("lost_answer", "disconnected", 1),
        ("silent", "timeout", 1),
    ],
)
async def test_without_an_answer_nobody_knows_whether_it_happened(
    clock: VirtualClock, fault: str, reason: str, happened: int
) -> None:
    noco = server(clock)
    noco.faults = Faults(**{fault: 1.0})  # type: ignore[arg-type]  # a share
    assert await NocoWire(noco, timeout=10).send(CREATE) == NoResponse(left=True, reason=reason)
    assert len(noco.rows(TABLE)) == happened
    assert noco.report()["faults"] == {fault: 1}
    assert noco.report()["requests"] == happened


async def test_a_server_error_comes_from_nocodb_or_from_a_proxy_and_does_nothing(clock: VirtualClock) -> None:
    noco = server(clock, server_error=1.0)
    statuses = set()
    for _ in range(40):
        answer = await NocoWire(noco).send(CREATE)
        assert isinstance(answer, UpstreamResponse)
        statuses.add((answer.status, answer.headers["content-type"].partition(";")[0]))
    assert statuses == {(500, "application/json"), (502, "text/html"), (503, "text/html")}
    assert noco.rows(TABLE) == []


async def test_malformed_json_cannot_be_read(clock: VirtualClock) -> None:
    noco = server(clock, malformed=1.0)
    answer = await NocoWire(noco).send(CREATE)
    assert isinstance(answer, UpstreamResponse)
    assert answer.status == 200
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(answer.body)
    assert len(noco.rows(TABLE)) == 1


async def test_while_it_is_down_connections_are_refused(clock: VirtualClock) -> None:
    noco = server(clock)
    noco.stop()
    assert await NocoWire(noco).send(CREATE) == NoResponse(left=False, reason="connect")
    assert noco.report()["requests"] == 0
    noco.start()
    assert isinstance(await NocoWire(noco).send(CREATE), UpstreamResponse)


async def test_a_stop_cuts_what_is_under_way_even_if_it_starts_again_at_once(clock: VirtualClock) -> None:
    noco = server(clock, latency_in=Latency.parse("100"), latency_out=Latency.parse("100"))
    arriving, answered = (asyncio.create_task(NocoWire(noco).send(CREATE)) for _ in range(2))
    await clock.sleep(0.15)
    late = asyncio.create_task(NocoWire(noco).send(CREATE))
    await clock.sleep(0.01)
    noco.stop()
    noco.start()
    cut = NoResponse(left=True, reason="disconnected")
    assert [await task for task in (arriving, answered, late)] == [cut] * 3
    assert len(noco.rows(TABLE)) == 2  # the last one had not arrived


async def fates(clock: VirtualClock, seed: int) -> list[object]:
    noco = server(clock, seed=seed, server_error=0.3, lost_answer=0.3, malformed=0.1)
    return [await NocoWire(noco).send(CREATE) for _ in range(30)]


async def test_the_same_seed_draws_the_same_faults(clock: VirtualClock) -> None:
    assert await fates(clock, 1) == await fates(clock, 1)
    assert await fates(clock, 1) != await fates(clock, 2)


async def test_a_shop_pays_each_of_its_orders_once(clock: VirtualClock) -> None:
    noco = SimulatedNocoDb(clock)
    shop = Shop(noco, 2_500)
    noco.delete(shop.table, [7])
    await shop.pay_every(0.5)
    assert clock.monotonic() == pytest.approx(1_250)
    assert shop.paid == 2_499
    assert all(row["Paid"] for row in noco.rows(shop.table))


async def test_the_orders_of_a_shop_have_what_the_how_tos_ask_for(clock: VirtualClock) -> None:
    noco = SimulatedNocoDb(clock)
    [row] = noco.rows(Shop(noco, 1).table)
    assert (row["OrderId"], row["Email"], row["State"]) == ("A-1", "user1@example.com", "awaiting_payment")
    assert (row["chat"], row["user_id"], row["username"]) == (1001, 1001, "user1")
    assert {"Title", "Amount", "Total", "Paid"} <= row.keys()
