"""A worker that meets what nobody expects: one message is set aside, the others go on, and health says so."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.delivery.transport import ApiAnswer
from tidegate.delivery.worker import STALLED_AFTER
from tidegate.model import Claim, Dead, Delivered, NotSent, Outcome, Record, Settlement, State
from tidegate.sim.virtual_time import VirtualClock


class Wire:
    """Answers at once, except for the chats it is told to be slow or to fail for."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.slow: dict[int, float] = {}
        self.fails: set[int] = set()
        self.calls: list[int] = []

    async def call(
        self,
        token: str,  # noqa: ARG002
        method: str,  # noqa: ARG002
        params: Mapping[str, Any],
        **_: object,
    ) -> ApiAnswer:
        chat = params["chat_id"]
        self.calls.append(chat)
        await self._clock.sleep(self.slow.get(chat, 0.0))
        if chat in self.fails:
            raise KeyError("nobody expects this")
        return ApiAnswer(200, {"ok": True, "result": {"message_id": len(self.calls)}})

    async def close(self) -> None:
        pass


@pytest.fixture
async def wire(clock: VirtualClock) -> Wire:
    return Wire(clock)


@pytest.fixture(params=["memory", "sqlite"])
async def gate(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock, wire: Wire) -> Tidegate:
    store = "memory://" if request.param == "memory" else str(tmp_path / "store.db")
    gate = Tidegate(store, clock=clock, wire=wire)
    gate.add_bot(TOKEN)
    return gate


def messages(count: int) -> list[dict[str, Any]]:
    return [{"chat_id": 1 + i, "text": "x"} for i in range(count)]


async def states(gate: Tidegate) -> dict[Any, tuple[State, str | None]]:
    records = await gate.outbox.records(limit=1000)
    return {record.message.chat_id: (record.state, record.reason) for record in records}


def refusing_to_settle(gate: Tidegate, chat: int, monkeypatch: pytest.MonkeyPatch, *, ever: bool) -> None:
    """The store does not take how the message to this chat ended: as it is, or at all."""
    settle = gate.outbox.settle

    async def failing(settlements: Sequence[Settlement]) -> list[Record | None]:
        for one in settlements:
            plain = isinstance(one.outcome, Delivered) and one.outcome.result is None
            if one.claim.message.chat_id == chat and (ever or not plain):
                raise OverflowError("int too big to convert")
        return await settle(settlements)

    monkeypatch.setattr(gate.outbox, "settle", failing)


async def test_an_answer_that_cannot_be_settled_is_set_aside_alone_and_the_others_are_settled(
    gate: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gate:
        refusing_to_settle(gate, 3, monkeypatch, ever=False)
        async with gate.worker():
            await gate.send_many(messages(30))
            await gate.drained()
            assert gate.health().ready
        assert set((await states(gate)).values()) == {(State.DELIVERED, None)}


async def test_a_message_that_cannot_be_settled_at_all_does_not_leave_the_worker_as_an_error(
    gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gate:
        refusing_to_settle(gate, 3, monkeypatch, ever=True)
        async with gate.worker():
            await gate.send_many(messages(30))
            await clock.sleep(5)
            found = await states(gate)
        assert [chat for chat, state in found.items() if state != (State.DELIVERED, None)] == [3]


async def test_settlements_that_failed_together_can_be_settled_one_by_one(
    tmp_path: Path, clock: VirtualClock, wire: Wire
) -> None:
    gate = Tidegate(tmp_path / "store.db", clock=clock, wire=wire)
    gate.add_bot(TOKEN)
    async with gate:
        await gate.send_many(messages(3))
        claims: list[Claim] = []
        while len(claims) < 3:
            claims += await gate.outbox.claim(10)
        odd = Dead("odd", cast("str", object()))
        outcomes: list[Outcome] = [Delivered(None), odd, NotSent("given back")]
        ended = [Settlement(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]

        with pytest.raises(Exception, match="object"):
            await gate.outbox.settle(ended)
        settled = await gate.outbox.settle([ended[0]]) + await gate.outbox.settle([ended[2]])
        with pytest.raises(Exception, match="object"):
            await gate.outbox.settle([ended[1]])
        settled += await gate.outbox.settle([Settlement(claims[1], Dead("unsettled", "in words"))])

        states = [record.state for record in settled if record is not None]
        assert states == [State.DELIVERED, State.QUEUED, State.DEAD]
        stats = await gate.stats()
        assert (stats.delivered, stats.waiting, stats.dead, stats.sending) == (1, 1, 1, 0)


async def test_a_call_that_fails_as_nobody_expects_is_tried_again_and_dies_alone(
    gate: Tidegate, wire: Wire
) -> None:
    wire.fails = {3}
    async with gate, gate.worker():
        await gate.send_many(messages(10))
        await gate.drained()
        found = await states(gate)
    assert found.pop(3) == (State.DEAD, "attempts")
    assert set(found.values()) == {(State.DELIVERED, None)}
    assert wire.calls.count(3) == 5


async def test_a_worker_whose_claims_fail_is_not_ready_and_delivers_once_they_succeed(
    gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, failures = gate.outbox.claim, [ValueError("a damaged row") for _ in range(3)]

    async def failing(room: int) -> list[Claim]:
        if failures:
            raise failures.pop()
        return await claim(room)

    async with gate:
        await gate.send_many(messages(5))
        monkeypatch.setattr(gate.outbox, "claim", failing)
        async with gate.worker():
            await clock.sleep(2)
            health = gate.health()
            await gate.drained()
            after = gate.health()
        assert not health.ready
        assert "the worker's loop that claims has failed 2 times in a row: ValueError" in health.reasons[0]
        assert (after.ready, (await gate.stats()).delivered) == (True, 5)


async def test_a_worker_that_fails_again_and_again_says_that_it_is_hopeless(
    gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(room: int) -> list[Claim]:  # noqa: ARG001
        raise ValueError("a damaged row")

    monkeypatch.setattr(gate.outbox, "claim", failing)
    async with gate:
        async with gate.worker() as worker, clock.timeout(40):
            reason = await worker.hopeless()
        assert "has failed 6 times in a row: ValueError: a damaged row" in reason
        assert gate.health().ready  # there is no worker any more


async def test_a_worker_is_not_ready_when_messages_may_go_and_none_does(
    gate: Tidegate, wire: Wire, clock: VirtualClock
) -> None:
    wire.slow = {1: 10_000.0}
    async with gate, gate.worker(concurrency=1, grace=0):
        await gate.send(chat_id=1, text="this call hangs")
        await clock.sleep(STALLED_AFTER * 2)
        idle = gate.health()
        await gate.send(chat_id=2, text="this one may go")
        await clock.sleep(STALLED_AFTER / 2)
        soon = gate.health()
        await clock.sleep(STALLED_AFTER)
        late = gate.health()
    assert (idle.ready, soon.ready, late.ready) == (True, True, False)
    assert "messages may go, and nothing was claimed or settled for" in late.reasons[0]


async def test_what_is_paused_may_not_go_and_does_not_make_a_worker_unready(
    gate: Tidegate, wire: Wire, clock: VirtualClock
) -> None:
    wire.slow = {1: 10_000.0}
    async with gate, gate.worker(concurrency=1, grace=0):
        await gate.send(chat_id=1, text="this call hangs")
        await clock.sleep(1)
        await gate.outbox.pause(gate.bots()[0].id)
        await gate.send(chat_id=2, text="this one is paused")
        await clock.sleep(STALLED_AFTER * 3)
        health = gate.health()
    assert health.ready
