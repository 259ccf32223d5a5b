"""The one stream of events: what a gate publishes, and that a subscriber which fails harms nobody."""

import logging
from collections import Counter

import pytest

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.events import (
    Accepted,
    Attempted,
    CallAttempted,
    Claimed,
    Ended,
    Event,
    EventStream,
    LimitChanged,
    OutageBegan,
    OutageEnded,
    RefusalHeard,
    TurnTaken,
    UpdateReceived,
)
from tidegate.inbound.inbox import bot_source
from tidegate.inbound.updates import update_item
from tidegate.model import BotId, Delivered, Message, Rate, Record, State, TicketId
from tidegate.outbox.event_log import LINES_OF_A_KIND, EventLog
from tidegate.sim.telegram import Faults, Limits, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

BOT = BotId(int(TOKEN.partition(":")[0]))
KINDS: tuple[type[Event], ...] = (
    *(Accepted, Claimed, Attempted, Ended, TurnTaken, CallAttempted, RefusalHeard, LimitChanged),
    *(OutageBegan, OutageEnded, UpdateReceived),
)


class Listener:
    """Keeps every event of a gate."""

    def __init__(self, gate: Tidegate) -> None:
        self.events: list[Event] = []
        for kind in KINDS:
            gate.core.events.subscribe(kind, self.events.append)

    def counts(self) -> Counter[str]:
        return Counter(type(event).__name__ for event in self.events)

    def only(self, kind: type[Event]) -> Event:
        [event] = (one for one in self.events if type(one) is kind)
        return event


@pytest.fixture
def heard(gate: Tidegate) -> Listener:
    return Listener(gate)


async def test_a_message_is_accepted_claimed_attempted_and_ended_once(
    gate: Tidegate, heard: Listener
) -> None:
    await gate.send(chat_id=1001, text="Hello", dedup_key="one")
    await gate.send(chat_id=1001, text="Hello", dedup_key="one")  # it repeats a key: nothing is accepted
    async with gate.worker():
        await gate.drained()

    assert heard.counts() == {"Accepted": 1, "Claimed": 1, "Attempted": 1, "Ended": 1}
    ended = heard.only(Ended)
    assert isinstance(ended, Ended)
    assert (ended.record.state, ended.record.result["text"]) == (State.DELIVERED, "Hello")


async def test_a_direct_call_is_told_with_its_wait_its_content_and_its_result(
    gate: Tidegate, heard: Listener
) -> None:
    await gate.call("sendMessage", {"chat_id": 7, "text": "now"})

    assert heard.counts() == {"TurnTaken": 1, "CallAttempted": 1}
    call = heard.only(CallAttempted)
    assert isinstance(call, CallAttempted)
    assert (call.bot, call.method, call.chat_id) == (BOT, "sendMessage", 7)
    assert isinstance(call.outcome, Delivered)
    assert call.content()["text"] == "now"
    assert call.result()["message_id"] == 1


async def test_a_refusal_is_told_with_what_it_closes_and_the_limit_it_cuts(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, limits=Limits(burst=1, private=Rate(1, 5)))
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    heard = Listener(gate)
    async with gate, gate.worker():
        await gate.send_many({"chat_id": 7, "text": str(number)} for number in range(3))
        await gate.drained()

    counts = heard.counts()
    assert counts["RefusalHeard"] == telegram.report()["refused"] > 0
    assert counts["Attempted"] == telegram.report()["requests"]
    first = next(event for event in heard.events if isinstance(event, RefusalHeard))
    assert (first.bot, first.chat_id, first.closes) == (BOT, 7, "chat")
    cut = next(event for event in heard.events if isinstance(event, LimitChanged))
    assert cut.change.is_cut


async def test_an_outage_is_told_when_it_begins_and_when_it_ends(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, faults=Faults(server_error=1.0))
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    heard = Listener(gate)
    async with gate, gate.worker():
        await gate.send_many({"chat_id": 1 + number, "text": "x"} for number in range(20))
        await clock.sleep(60)
        telegram.faults = Faults()
        await gate.drained()

    assert (heard.counts()["OutageBegan"], heard.counts()["OutageEnded"]) == (1, 1)
    assert heard.counts()["Ended"] == 20


async def test_updates_are_told_once_however_often_they_come(gate: Tidegate, heard: Listener) -> None:
    registry = gate.core.handler_registry
    registry.add_source(bot_source(BOT))
    item = update_item(BOT, {"update_id": 5, "message": {"message_id": 1, "chat": {"id": 3}, "text": "Hi"}})
    await registry.accept([item])
    await registry.accept([item])

    received = heard.only(UpdateReceived)
    assert isinstance(received, UpdateReceived)
    assert received.content()["message"]["text"] == "Hi"


def test_a_subscriber_that_fails_is_logged_and_the_next_one_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = EventStream()
    heard: list[TurnTaken] = []

    def fail(_event: TurnTaken) -> None:
        raise RuntimeError("no")

    events.subscribe(TurnTaken, fail)
    events.subscribe(TurnTaken, heard.append)
    events.publish(TurnTaken(BOT, 0.5))

    assert [event.seconds for event in heard] == [0.5]
    assert "a subscriber to TurnTaken has failed" in caplog.text
    assert events.has(TurnTaken)
    assert not events.has(Accepted)


async def test_what_is_grouped_is_logged_when_the_log_is_closed(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate.outbox")
    events = EventStream()
    log = EventLog(events, clock)
    for number in range(20):
        message = Message(id=TicketId(str(number)), bot=BOT, chat_id=1, method="sendMessage", params={})
        events.publish(Ended(Record(message=message, state=State.DEAD, created_at=0.0, reason="blocked")))
    log.close()
    more = 20 - LINES_OF_A_KIND
    assert caplog.messages[-1] == f"dead: {more} more in 10 s: blocked {more}"
