"""The application's callbacks: whatever one of them does, delivery and the other callbacks go on."""

import asyncio
import logging
from typing import Any

import pytest

from tidegate.delivery import callbacks as module
from tidegate.delivery.callbacks import CALL_TIMEOUT, CALLBACK_GRACE, CALLS_AT_ONCE, DeliveryCallbacks
from tidegate.errors import BadInputError
from tidegate.events import Ended, EventStream
from tidegate.model import BotId, Message, Record, State, TicketId
from tidegate.sim import VirtualClock


def ended(chat: int, state: State = State.DELIVERED) -> Record:
    message = Message(id=TicketId(str(chat)), bot=BotId(42), chat_id=chat, method="sendMessage", params={})
    return Record(message=message, state=state, created_at=0.0, result={"message_id": chat}, reason="blocked")


@pytest.fixture
def events() -> EventStream:
    return EventStream()


@pytest.fixture
def callbacks(clock: VirtualClock, events: EventStream) -> DeliveryCallbacks:
    return DeliveryCallbacks(clock, events)


async def test_a_callback_with_a_wrong_signature_is_refused_when_it_is_registered(
    callbacks: DeliveryCallbacks,
) -> None:
    async def takes_one(message: Message) -> None: ...

    async def takes_three(message: Message, result: object, more: object) -> None: ...

    for wrong in (takes_one, takes_three):
        with pytest.raises(BadInputError, match="async def callback\\(message, reason\\)"):
            callbacks.on_dead(wrong)  # type: ignore[arg-type]  # that is the mistake


async def test_a_function_that_is_not_async_is_refused(callbacks: DeliveryCallbacks) -> None:
    with pytest.raises(BadInputError, match="async function"):
        callbacks.on_delivered(print)  # type: ignore[arg-type]  # that is the mistake


async def test_an_object_whose_call_is_async_is_a_callback(
    callbacks: DeliveryCallbacks, events: EventStream
) -> None:
    results: list[object] = []

    class Told:
        async def __call__(self, _message: Message, result: object) -> None:
            results.append(result)

    callbacks.on_delivered(Told())
    events.publish(Ended(ended(1)))
    await callbacks.stop()
    assert results == [{"message_id": 1}]


async def test_a_failing_callback_ends_neither_itself_nor_another(
    callbacks: DeliveryCallbacks, events: EventStream, caplog: pytest.LogCaptureFixture
) -> None:
    failing, other = [], []

    @callbacks.on_delivered
    async def fails(message: Message, _result: object) -> None:
        failing.append(message.chat_id)
        raise KeyError("its own mistake")

    async def works(message: Message, _result: object) -> None:
        other.append(message.chat_id)

    callbacks.on_delivered(works)
    for number in range(60):
        events.publish(Ended(ended(number)))
    await callbacks.stop()
    assert failing == other == list(range(60))
    assert caplog.text.count("fails failed for message") == 60


async def test_a_callback_that_cancels_itself_is_called_for_the_rest(
    callbacks: DeliveryCallbacks, events: EventStream
) -> None:
    called = []

    async def cancels(message: Message, _result: object) -> None:
        called.append(message.chat_id)
        raise asyncio.CancelledError

    callbacks.on_delivered(cancels)
    for number in range(CALLS_AT_ONCE * 2):
        events.publish(Ended(ended(number)))
    await callbacks.stop()
    assert called == list(range(CALLS_AT_ONCE * 2))


async def test_sixty_hanging_calls_are_cut_off_and_all_sixty_are_told(
    callbacks: DeliveryCallbacks, events: EventStream, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    async def hangs(message: Message, _result: object) -> None:
        told.append(message.chat_id)
        await asyncio.Event().wait()

    callbacks.on_delivered(hangs)
    for number in range(60):
        events.publish(Ended(ended(number)))
    await clock.sleep(3 * CALL_TIMEOUT + 1)
    assert told == list(range(60))
    assert caplog.text.count("hangs did not end within 30 s") == 60


async def test_a_hanging_callback_delays_no_other_one(
    callbacks: DeliveryCallbacks, events: EventStream, clock: VirtualClock
) -> None:
    buried: list[Any] = []

    async def hangs(_message: Message, _told: object) -> None:
        await asyncio.Event().wait()

    async def buries(message: Message, reason: str) -> None:
        buried.append((message.chat_id, reason))

    callbacks.on_delivered(hangs)
    callbacks.on_dead(hangs)
    callbacks.on_dead(buries)
    for number in range(60):
        events.publish(Ended(ended(number)))
        events.publish(Ended(ended(number, State.DEAD)))
    await clock.sleep(0.1)
    assert buried == [(number, "blocked") for number in range(60)]


async def test_calls_beyond_the_bound_are_dropped_counted_and_said(
    callbacks: DeliveryCallbacks,
    events: EventStream,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 100)
    told: list[Any] = []
    free = asyncio.Event()

    async def slow(message: Message, _result: object) -> None:
        await free.wait()
        told.append(message.chat_id)

    callbacks.on_delivered(slow)
    for number in range(150):
        events.publish(Ended(ended(number)))
    assert callbacks.dropped == 50
    free.set()
    await clock.sleep(1)
    assert told == list(range(100))
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "slow is too slow: 100 calls wait, further ones are dropped" in caplog.text
    assert "slow was not called for 50 messages" in caplog.text


async def test_closing_waits_for_callbacks_for_a_while_and_says_how_many_it_gave_up(
    callbacks: DeliveryCallbacks, events: EventStream, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def hangs(_message: Message, _result: object) -> None:
        await asyncio.Event().wait()

    callbacks.on_delivered(hangs)
    for number in range(CALLS_AT_ONCE + 5):
        events.publish(Ended(ended(number)))
    caplog.set_level(logging.WARNING)
    began = clock.monotonic()
    await callbacks.stop()
    assert clock.monotonic() - began == pytest.approx(CALLBACK_GRACE)
    assert f"hangs did not end for {CALLS_AT_ONCE + 5} messages" in caplog.text
