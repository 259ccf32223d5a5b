"""The worker and direct calls around a wire that takes its time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.model import Record, Settlement
from tidegate.sim.virtual_time import VirtualClock


class SlowWire:
    """Answers each call after `seconds`, and remembers what was asked."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.seconds = 1.0
        self.calls: list[Mapping[str, Any]] = []
        self.deadlines: list[float] = []
        self.in_flight = self.most_in_flight = 0

    async def call(
        self,
        token: str,  # noqa: ARG002
        method: str,  # noqa: ARG002
        params: Mapping[str, Any],
        *,
        api_url: str,  # noqa: ARG002
        deadline: float,
        on_left: Callable[[], None] | None = None,  # noqa: ARG002
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,  # noqa: ARG002
    ) -> ApiAnswer | NoAnswer:
        self.calls.append(params)
        self.deadlines.append(deadline - self._clock.monotonic())
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        if on_written is not None:
            on_written()
        try:
            await self._clock.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        return ApiAnswer(200, {"ok": True, "result": {"message_id": len(self.calls)}})

    async def close(self) -> None:
        pass


@pytest.fixture
async def wire(clock: VirtualClock) -> SlowWire:
    return SlowWire(clock)


@pytest.fixture
async def gate(clock: VirtualClock, wire: SlowWire) -> Tidegate:
    gate = Tidegate("memory://", clock=clock, wire=wire)
    gate.add_bot(TOKEN)
    return gate


async def test_no_more_calls_are_in_flight_than_the_worker_may_have(gate: Tidegate, wire: SlowWire) -> None:
    async with gate, gate.worker(concurrency=3):
        await gate.send_many({"chat_id": 1 + i, "text": "x"} for i in range(10))
        await gate.drained()
    assert (len(wire.calls), wire.most_in_flight) == (10, 3)


async def test_a_call_that_outlasts_its_lease_is_not_made_twice(gate: Tidegate, wire: SlowWire) -> None:
    wire.seconds = 100  # a lease is 30
    async with gate, gate.worker():
        ticket = await gate.send(chat_id=7, text="x")
        await ticket.delivered()
        record = await gate.outbox.find(ticket.id)
    assert len(wire.calls) == 1
    assert record is not None
    assert record.crashes == 0


async def test_each_call_has_five_seconds_to_leave(gate: Tidegate, wire: SlowWire) -> None:
    async with gate, gate.worker():
        await (await gate.send(chat_id=7, text="x")).delivered()
        await gate.call("sendMessage", {"chat_id": 8, "text": "x"})
    assert wire.deadlines == pytest.approx([5, 5])


@pytest.mark.usefixtures("no_bursts")
async def test_a_slot_cools_from_the_answer_also_when_that_is_told_later(
    gate: Tidegate, wire: SlowWire, clock: VirtualClock
) -> None:
    async with gate:
        for _ in range(2):
            await gate.call("sendMessage", {"chat_id": 7, "text": "x"})
    assert clock.monotonic() == pytest.approx(3, abs=0.01)  # 1 s on the wire, 1 s to cool, 1 s on the wire
    assert wire.most_in_flight == 1


@pytest.mark.usefixtures("no_bursts")
@pytest.mark.parametrize("how", ["called", "queued"])
async def test_an_answer_after_eight_seconds_is_what_the_next_call_to_that_chat_waits_for(
    gate: Tidegate, wire: SlowWire, clock: VirtualClock, how: str
) -> None:
    wire.seconds = 8  # by 5 its slots cool
    async with gate, gate.worker():
        for _ in range(2):
            if how == "called":
                await gate.call("sendMessage", {"chat_id": 7, "text": "x"})
            else:
                await (await gate.send(chat_id=7, text="x")).delivered()
    assert clock.monotonic() == pytest.approx(17, abs=0.1)  # 8 s on the wire, 1 s to cool, 8 s on the wire


async def test_a_cancelled_call_gives_its_turn_back(
    gate: Tidegate, wire: SlowWire, clock: VirtualClock
) -> None:
    async with gate:
        for after in (0.0, 0.5):  # before it is on the wire, and while it is
            call = asyncio.create_task(gate.call("sendMessage", {"chat_id": 7, "text": "x"}))
            await clock.sleep(after)
            call.cancel()
            await asyncio.wait([call])
        async with clock.timeout(5):
            await gate.call("sendMessage", {"chat_id": 7, "text": "x"})
    assert wire.in_flight == 0


async def test_a_store_that_fails_for_a_moment_is_told_again(
    gate: Tidegate, wire: SlowWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, failures = gate.outbox.settle, [OSError("disk full"), OSError("disk full")]

    async def failing(settlements: Sequence[Settlement]) -> list[Record | None]:
        if failures:
            raise failures.pop()
        return await settle(settlements)

    monkeypatch.setattr(gate.outbox, "settle", failing)
    async with gate, gate.worker():
        await gate.send_many({"chat_id": 1 + i, "text": "x"} for i in range(5))
        await gate.drained()
    assert (len(wire.calls), (await gate.stats()).delivered) == (5, 5)
