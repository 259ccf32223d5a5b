"""Cached reads, and reads shared by callers that ask the same."""

import asyncio

import pytest

from tidegate.errors import ClosedError, UpstreamRefusedError
from tidegate.model import Rate
from tidegate.sim.virtual_time import VirtualClock
from tidegate.upstream import cache
from tidegate.upstream.client import Upstream
from tidegate.upstream.limiter import MemoryLimiter
from unit.upstream.scripted import ScriptedTransport, answer


@pytest.fixture
async def wire(clock: VirtualClock) -> ScriptedTransport:
    return ScriptedTransport(clock)


@pytest.fixture
async def api(wire: ScriptedTransport, clock: VirtualClock) -> Upstream:
    return Upstream(wire, clock=clock, limiter=MemoryLimiter(Rate(10_000, 1), clock))


async def test_an_answer_is_used_again_while_it_is_fresh(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock
) -> None:
    wire.outcomes = [answer(body={"n": 1}), answer(body={"n": 2})]
    assert await api.read("a", fresh_for=10) == {"n": 1}
    await clock.sleep(9)
    assert await api.read("a", fresh_for=10) == {"n": 1}
    await clock.sleep(1)
    assert await api.read("a", fresh_for=10) == {"n": 2}
    assert (len(wire.asked), api.totals.cached) == (2, 1)


async def test_without_fresh_for_each_asks_for_himself(api: Upstream, wire: ScriptedTransport) -> None:
    await asyncio.gather(api.read("a"), api.read("a"))
    assert len(wire.asked) == 2


async def test_who_asks_the_same_at_once_shares_one_request_and_gets_objects_of_his_own(
    api: Upstream, wire: ScriptedTransport
) -> None:
    one, other = await asyncio.gather(*(api.read("a", query=[("x", "1")], fresh_for=5) for _ in range(2)))
    one["changed"] = True
    assert other == {}
    assert len(wire.asked) == 1
    await api.read("a", query=[("x", "2")], fresh_for=5)
    assert len(wire.asked) == 2


async def test_one_who_leaves_does_not_end_it_for_the_others_and_the_last_one_does(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock
) -> None:
    first, second = (asyncio.create_task(api.read("a", fresh_for=5)) for _ in range(2))
    await clock.sleep(0.05)
    first.cancel()
    assert await second == {}

    alone = asyncio.create_task(api.read("b", fresh_for=5))
    await clock.sleep(0.05)
    alone.cancel()
    await asyncio.gather(alone, return_exceptions=True)
    await api.read("b", fresh_for=5)
    assert [request.path for request in wire.asked] == ["a", "b", "b"]


async def test_a_hurried_reader_does_not_wait_for_one_in_the_background(
    clock: VirtualClock, wire: ScriptedTransport
) -> None:
    api = Upstream(wire, clock=clock)
    for _ in range(4):
        await api.read("other")
    slow = asyncio.create_task(api.read("a", fresh_for=5, background=True))
    await clock.sleep(0)
    began = clock.monotonic()
    await api.read("a", fresh_for=5)
    assert clock.monotonic() - began == pytest.approx(0.1)
    await slow


async def test_errors_are_told_to_all_and_not_kept(api: Upstream, wire: ScriptedTransport) -> None:
    wire.outcomes = [answer(404)]
    ended = await asyncio.gather(*(api.read("a", fresh_for=9) for _ in range(2)), return_exceptions=True)
    assert [type(one) for one in ended] == [UpstreamRefusedError] * 2
    assert await api.read("a", fresh_for=9) == {}


@pytest.mark.parametrize(
    ("written", "dropped"),
    [
        ("t/m1/records", {"t/m1/records", "t/m1/records/7", "t/m1/records/count"}),
        ("t/m1/records/7", {"t/m1/records", "t/m1/records/7"}),
        ("t/m1", {"t/m1/records", "t/m1/records/7", "t/m1/records/count"}),
    ],
)
async def test_a_write_drops_what_it_may_have_changed(
    api: Upstream, wire: ScriptedTransport, written: str, dropped: set[str]
) -> None:
    paths = ["t/m1/records", "t/m1/records/7", "t/m1/records/count", "t/m10/records"]
    for path in paths:
        await api.read(path, fresh_for=99)
    await api.request("POST", written, body={})
    wire.asked.clear()
    for path in paths:
        await api.read(path, fresh_for=99)
    assert {request.path for request in wire.asked} == dropped


async def test_a_read_under_way_during_a_write_is_not_kept(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock
) -> None:
    wire.outcomes = [answer(body="old"), answer(), answer(body="new")]
    wire.latency = 1.0
    early = asyncio.create_task(api.read("a", fresh_for=99))
    await clock.sleep(0.5)
    wire.latency = 0.1
    await api.request("PATCH", "a", body={})
    assert await api.read("a", fresh_for=99) == "new"  # it does not join the early one
    assert await early == "old"
    assert await api.read("a", fresh_for=99) == "new"
    assert [request.method for request in wire.asked] == ["GET", "PATCH", "GET"]


async def test_it_keeps_no_more_than_it_may(
    api: Upstream, wire: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_ANSWERS", 3)
    for name in ("a", "b", "c", "a", "d"):
        await api.read(name, fresh_for=99)
    wire.asked.clear()
    for name in ("a", "c", "d"):
        await api.read(name, fresh_for=99)
    assert wire.asked == []
    await api.read("b", fresh_for=99)
    assert len(wire.asked) == 1


async def test_it_keeps_no_more_bytes_than_it_may(
    api: Upstream, wire: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_BYTES", 100)
    wire.judge = lambda _: answer(body="x" * 58)
    for name in ("a", "b"):
        await api.read(name, fresh_for=99)
    wire.asked.clear()
    for name in ("b", "a"):
        await api.read(name, fresh_for=99)
    assert [request.path for request in wire.asked] == ["a"]


async def test_closing_ends_reads_under_way(api: Upstream, clock: VirtualClock) -> None:
    reading = asyncio.create_task(api.read("a", fresh_for=99))
    await clock.sleep(0.05)
    await api.close()
    with pytest.raises(ClosedError):
        await reading


async def test_a_closed_client_answers_nothing_not_even_what_it_keeps(
    wire: ScriptedTransport, clock: VirtualClock
) -> None:
    api = Upstream(wire, clock=clock)
    await api.read("a", fresh_for=60)
    await api.close()
    with pytest.raises(ClosedError):
        await api.read("a", fresh_for=60)


async def test_a_path_spelled_with_more_slashes_is_the_same(
    wire: ScriptedTransport, clock: VirtualClock
) -> None:
    api = Upstream(wire, clock=clock)
    await api.read("a//b", fresh_for=60)
    await api.request("PATCH", "a/b", body={})
    await api.read("a//b", fresh_for=60)
    assert [request.path for request in wire.asked] == ["a/b"] * 3
