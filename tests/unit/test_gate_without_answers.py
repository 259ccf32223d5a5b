"""The facade while its store cannot say how things stand, or takes long to: in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from simulated import TOKEN
from tidegate import LiveTicket, Tidegate
from tidegate.errors import ClosedError, LimitedError, StoreError
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

Answer = Callable[..., Awaitable[object]]


@pytest.fixture
async def gate(clock: VirtualClock) -> AsyncIterator[Tidegate]:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(SimulatedTelegram(clock), clock))
    gate.add_bot(TOKEN)
    async with gate:
        yield gate


async def fails(*_: object) -> object:
    raise StoreError("the server is away")


async def hangs(*_: object) -> object:
    return await asyncio.Event().wait()


@pytest.mark.parametrize("answer", [fails, hangs])
@pytest.mark.parametrize(("max_wait", "retry_after"), [(0.3, 1), (4, 4)])
async def test_a_call_that_would_wait_too_long_says_so_all_the_same(
    gate: Tidegate, monkeypatch: pytest.MonkeyPatch, answer: Answer, max_wait: float, retry_after: float
) -> None:
    for _ in range(20):
        await gate.call("sendMessage", {"chat_id": -7, "text": "x"})  # a group: no more for a minute
    monkeypatch.setattr(gate.outbox, "wait_for", answer)
    asked = gate.clock.monotonic()

    with pytest.raises(LimitedError) as caught:
        await gate.call("sendMessage", {"chat_id": -7, "text": "x"}, max_wait=max_wait)

    assert caught.value.retry_after == retry_after
    assert gate.clock.monotonic() - asked <= max_wait + 1


async def test_send_or_queue_queues(gate: Tidegate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate.outbox, "wait_for", fails)
    assert isinstance(await gate.send_or_queue(chat_id=7, text="x"), LiveTicket)
    assert (await gate.stats()).normal == 1


async def test_closing_does_not_ask_a_store_that_keeps_what_waits(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Tidegate(tmp_path / "tidegate.db", clock=clock)
    gate.add_bot(TOKEN)
    async with gate:
        await gate.send(chat_id=7, text="x")
        monkeypatch.setattr(gate.outbox, "stats", hangs)
    assert not caplog.records
    async with gate:
        assert (await gate.stats()).waiting == 1


async def test_a_failure_to_count_what_is_lost_leaves_nothing_open(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, closed = Tidegate("memory://", clock=clock), False

    async def close() -> None:
        nonlocal closed
        closed = True

    await gate.start()
    monkeypatch.setattr(gate.outbox, "stats", fails)
    monkeypatch.setattr(gate.outbox, "close", close)
    with pytest.raises(StoreError, match="away"):
        await gate.stop()
    assert closed
    assert not gate.is_open


async def test_a_broadcast_begins_under_the_limit_of_the_rules(
    gate: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate.outbox, "learned", fails)
    async with gate.worker():
        assert (await (await gate.broadcast("sale", [1, 2], "Hello")).finished()).delivered == 2


async def test_a_gate_that_closes_while_the_limit_is_asked_for_begins_no_broadcast(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, answer = Tidegate("memory://", clock=clock), asyncio.Event()
    gate.add_bot(TOKEN)
    read: list[int] = []

    async def audience() -> AsyncIterator[int]:
        read.append(1)
        yield 1

    async def learned() -> dict[object, object]:
        await answer.wait()
        return {}

    async with gate:
        monkeypatch.setattr(gate.outbox, "learned", learned)
        asked = asyncio.create_task(gate.broadcast("sale", audience(), "Hello"))
        await clock.sleep(1)
    answer.set()
    with pytest.raises(ClosedError):
        await asked
    assert not read
