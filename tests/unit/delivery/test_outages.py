"""During an outage no attempt of any message is counted, and the log is not flooded."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.delivery.sender import LONGEST_OUTAGE_WAIT
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.errors import DeadError
from tidegate.model import State
from tidegate.sim.virtual_time import VirtualClock

OUTAGE = 300.0  # seconds


class CutWire:
    """Reaches nobody until `back`."""

    def __init__(self, clock: VirtualClock, back: float) -> None:
        self._clock = clock
        self._back = back
        self.tried: list[float] = []
        self.answered = 0

    async def call(
        self,
        token: str,  # noqa: ARG002
        method: str,  # noqa: ARG002
        params: Mapping[str, Any],  # noqa: ARG002
        *,
        api_url: str,  # noqa: ARG002
        deadline: float,  # noqa: ARG002
        on_left: Callable[[], None] | None = None,  # noqa: ARG002
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,  # noqa: ARG002
    ) -> ApiAnswer | NoAnswer:
        if self._clock.monotonic() < self._back:
            self.tried.append(self._clock.monotonic())
            return NoAnswer(left=False, reason="connect")
        if on_written is not None:
            on_written()
        self.answered += 1
        return ApiAnswer(200, {"ok": True, "result": {"message_id": self.answered}})

    async def close(self) -> None:
        pass


async def test_an_outage_of_minutes_kills_nothing(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    wire = CutWire(clock, clock.monotonic() + OUTAGE)
    gate = Tidegate("memory://", clock=clock, wire=wire)
    gate.add_bot(TOKEN)

    with caplog.at_level(logging.WARNING):
        async with gate, gate.worker():
            tickets = await gate.send_many({"chat_id": 1 + i, "text": "x"} for i in range(100))
            await gate.drained()
            records = [await gate.outbox.find(ticket.id) for ticket in tickets]

    assert {(record.state, record.attempts) for record in records if record} == {(State.DELIVERED, 1)}
    assert wire.answered == len(tickets)
    assert clock.monotonic() < OUTAGE + LONGEST_OUTAGE_WAIT + 10  # and soon after the end of it
    waits = [entry for entry in caplog.messages if "cannot send (connect)" in entry]
    assert 5 <= len(waits) <= 20  # one line a wait, not one a message
    assert "sends again" in caplog.messages[-1]
    assert TOKEN not in caplog.text


async def test_a_direct_call_says_so_in_the_end(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock, wire=CutWire(clock, clock.monotonic() + 3_600))
    gate.add_bot(TOKEN)
    async with gate:
        with pytest.raises(DeadError, match="connect"):
            await gate.call("sendMessage", {"chat_id": 1, "text": "x"})
        with pytest.raises(DeadError, match="connect"):
            await gate.call("getMe")
