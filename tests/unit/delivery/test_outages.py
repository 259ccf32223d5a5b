"""During an outage no attempt of any message is counted, and the log is not flooded."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.delivery.direct import OUTAGE_PATIENCE
from tidegate.delivery.outage_tracker import LONGEST_OUTAGE_WAIT
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.errors import DeadError
from tidegate.model import State
from tidegate.outbox.transitions import PROBES_LET_PAST
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
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
    assert (
        clock.monotonic() < OUTAGE + PROBES_LET_PAST * LONGEST_OUTAGE_WAIT + 10
    )  # and soon after the end of it
    began, ended = caplog.messages  # one line each, not one a message
    assert "cannot send (connect): 100 messages wait" in began
    assert "sends again after 3" in ended
    assert len(wire.tried) < OUTAGE / 2
    assert TOKEN not in caplog.text


async def test_a_direct_call_is_told_of_an_outage_within_seconds_and_why(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock, wire=CutWire(clock, clock.monotonic() + 3_600))
    gate.add_bot(TOKEN)
    async with gate:
        with pytest.raises(DeadError, match="cannot reach Telegram: connect"):
            await gate.call("sendMessage", {"chat_id": 1, "text": "x"})
        assert clock.monotonic() < OUTAGE_PATIENCE
        began = clock.monotonic()
        for _ in range(10):
            with pytest.raises(DeadError, match="cannot reach Telegram: connect; for 3 s now"):
                await gate.call("getMe")
        assert clock.monotonic() == began  # it is known by now


async def test_a_message_that_alone_draws_5xx_is_tried_and_buried(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock)
    gate = Tidegate("memory://", clock=clock, wire=PickyWire(TelegramWire(telegram, clock)))
    gate.add_bot(TOKEN)
    async with gate, gate.worker():
        poison = await gate.send(chat_id=666, text="x")
        for i in range(100):
            await (await gate.send(chat_id=1 + i, text="x")).delivered()
            await clock.sleep(1)
        record = await gate.outbox.find(poison.id)

    assert record is not None
    assert (record.state, record.reason, record.attempts) == (State.DEAD, "attempts", 5)


class PickyWire:
    """Answers 500 to whatever is for one chat."""

    def __init__(self, wire: TelegramWire) -> None:
        self._wire = wire

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        **options: Any,  # noqa: ANN401
    ) -> ApiAnswer | NoAnswer:
        if params.get("chat_id") == 666:
            return ApiAnswer(500, {"ok": False, "error_code": 500, "description": "Internal Server Error"})
        return await self._wire.call(token, method, params, **options)

    async def close(self) -> None:
        pass
