"""Uploads and the schedule: a long one holds its own slots alone, and its end is never guessed."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.model import State
from tidegate.sim.virtual_time import VirtualClock


class UploadWire:
    """Uploads one photo slowly, as the Bot API client does: meanwhile queued calls for it go back."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.upload_seconds = 20.0
        self.began: float | None = None
        self.known = False
        self.sent: dict[int, float] = {}  # by chat: when it was answered
        self.turned_back = 0

    async def call(
        self,
        token: str,  # noqa: ARG002
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,  # noqa: ARG002
        deadline: float,  # noqa: ARG002
        on_left: Callable[[], None] | None = None,
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,
    ) -> ApiAnswer | NoAnswer:
        assert not wait_for_upload
        assert on_left is not None
        assert on_written is not None
        now = self._clock.monotonic()
        if method == "sendPhoto" and not self.known:
            if self.began is not None:
                self.turned_back += 1
                return NoAnswer(left=False, reason="uploading", wait=max(1.0, now - self.began))
            self.began = now
            on_left()
            await self._clock.sleep(self.upload_seconds)
            self.known = True
        on_written()
        self.sent[params["chat_id"]] = self._clock.monotonic()
        return ApiAnswer(200, {"ok": True, "result": {"message_id": 1}})

    async def close(self) -> None:
        pass


@pytest.fixture
async def wire(clock: VirtualClock) -> UploadWire:
    return UploadWire(clock)


@pytest.fixture
async def gate(clock: VirtualClock, wire: UploadWire) -> Tidegate:
    gate = Tidegate("memory://", clock=clock, wire=wire)
    gate.add_bot(TOKEN)
    return gate


async def test_while_the_first_upload_of_a_broadcast_runs_the_others_hold_no_slots(
    gate: Tidegate, wire: UploadWire
) -> None:
    async with gate, gate.worker(concurrency=30):
        photos = [{"method": "sendPhoto", "chat_id": chat, "photo": "the same"} for chat in range(1, 101)]
        await gate.send_many(photos, priority="low")
        await gate.send_many([{"chat_id": 1_000 + chat, "text": "hello"} for chat in range(100)])
        await gate.drained()
        stats = await gate.stats()
    assert stats.delivered == 200
    texts = [at for chat, at in wire.sent.items() if chat >= 1_000]
    assert max(texts) < wire.upload_seconds  # all of them left during the upload
    assert max(wire.sent.values()) < 2 * wire.upload_seconds + 5
    assert wire.turned_back < 100 * 8  # a message comes back after doubling waits, it does not spin


async def test_an_upload_cut_by_a_shutdown_after_its_first_byte_is_unknown_and_not_sent_again(
    gate: Tidegate, wire: UploadWire, clock: VirtualClock
) -> None:
    async with gate:
        async with gate.worker(grace=1.0):
            ticket = await gate.send(method="sendPhoto", chat_id=7, photo="large", on_unknown="park")
            await clock.sleep(2.0)
        record = await gate.outbox.find(ticket.id)
    assert wire.began is not None
    assert record is not None
    assert (record.state, record.reason, record.description) == (State.PARKED, "unknown", "interrupted")
