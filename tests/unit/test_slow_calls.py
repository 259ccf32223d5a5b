"""Slow handlers, calls and statements are told; the time that they wait for the gate does not count."""

import asyncio
from collections.abc import Callable

import pytest
from aiogram.types import Message

from tidegate import Incident, Settings, Tidegate
from tidegate.call_stack import StackReading
from tidegate.handler_run import HandlerRun, running, waiting_for_gate
from tidegate.incidents import IncidentLog, SlowCalls
from tidegate.sim import VirtualClock
from tidegate.sim.telegram import Faults, Latency, Person
from tidegate.upstream.client import Upstream
from unit.adapters.aiogram.stage import TOKEN, Stage
from unit.upstream.scripted import ScriptedTransport

MakeSlow = Callable[..., SlowCalls]


@pytest.fixture
def told() -> list[Incident]:
    return []


@pytest.fixture
async def make(clock: VirtualClock, told: list[Incident]) -> MakeSlow:
    incidents = IncidentLog(clock)
    incidents.subscribe(told.append)
    return lambda **limits: SlowCalls(incidents, clock, **limits)


@pytest.fixture
def stage(clock: VirtualClock) -> Stage:
    return Stage(clock)


def texts(told: list[Incident]) -> list[str]:
    return [one.text for one in told]


async def test_each_kind_is_told_from_its_own_threshold_on(make: MakeSlow, told: list[Incident]) -> None:
    slow = make(http=0.5, sql=0.1, transaction=5.0)
    slow.note_http("Telegram", "sendMessage", 0.4)
    slow.note_http("Telegram", "sendMessage", 0.6)
    slow.note_sql(lambda: "SELECT 1", 0.05)
    slow.note_sql(lambda: "SELECT *\n FROM orders", 0.3)
    slow.note_transaction(StackReading, 4.0)
    slow.note_transaction(lambda: StackReading(place="bot/pay.py:3"), 6.0)

    assert texts(told) == [
        "slow HTTP: Telegram sendMessage took 0.6 s",
        "slow SQL: 0.3 s: SELECT * FROM orders",
        "slow transaction: open for 6.0 s in bot/pay.py:3",
    ]
    assert [one.kind for one in told] == ["slow_http", "slow_sql", "slow_transaction"]


async def test_zero_switches_each_off(make: MakeSlow, clock: VirtualClock, told: list[Incident]) -> None:
    slow = make()
    slow.note_http("Telegram", "sendMessage", 1e6)
    slow.note_sql(lambda: "SELECT 1", 1e6)
    slow.note_transaction(StackReading, 1e6)
    with slow.outer_handler():
        await clock.sleep(1e6)
    assert told == []


async def test_a_statement_of_any_length_is_a_short_line(make: MakeSlow, told: list[Incident]) -> None:
    make(sql=0.1).note_sql(lambda: "SELECT " + "a, " * 10_000, 1.0)
    assert len(told[0].text) < 300


async def test_a_slow_handler_is_told_with_the_place_where_it_waited(
    make: MakeSlow, clock: VirtualClock, told: list[Incident]
) -> None:
    slow = make(handler=1.0)

    async def on_pay() -> None:
        with slow.outer_handler():
            await clock.sleep(3)

    await asyncio.create_task(on_pay())
    [incident] = told
    line = on_pay.__code__.co_firstlineno + 2
    assert incident.text == (
        f"slow handler: on_pay took 3.0 s, it waited in unit/test_slow_calls.py:{line} clock.sleep"
    )


async def test_a_handler_is_watched_once_and_a_quick_one_is_not_told(
    make: MakeSlow, clock: VirtualClock, told: list[Incident]
) -> None:
    slow = make(handler=1.0)
    with slow.outer_handler():
        await clock.sleep(0.9)
    run = HandlerRun()
    with running(run), slow.handler(run), slow.outer_handler():
        await clock.sleep(2)
    assert len(told) == 1


async def test_waiting_for_a_turn_makes_no_handler_slow(
    make: MakeSlow, clock: VirtualClock, told: list[Incident]
) -> None:
    slow = make(handler=1.0)
    with slow.outer_handler():
        await clock.sleep(0.5)
        with waiting_for_gate():
            await clock.sleep(60)
        await clock.sleep(0.4)
    assert told == []


async def test_an_upstream_is_told_by_the_time_on_the_wire(
    make: MakeSlow, clock: VirtualClock, told: list[Incident]
) -> None:
    wire = ScriptedTransport(clock, latency=0.4)
    api = Upstream(wire, name="NocoDB", clock=clock, slow_calls=make(http=0.5))
    await asyncio.gather(*(api.read(f"records/{number}") for number in range(12)))  # some wait for seconds
    assert told == []
    wire.latency = 0.7
    await api.read("records/1")
    await api.read("records/2")
    assert texts(told) == ["slow HTTP: NocoDB GET records/1 took 0.7 s"]  # the other is of its group


async def test_a_slow_answer_of_telegram_is_told_for_direct_and_for_queued_calls(
    stage: Stage, told: list[Incident]
) -> None:
    stage.gate.core.incidents.subscribe(told.append)
    stage.gate.attach(None, stage.bot)
    async with stage.gate as gate, gate.worker():
        await stage.bot.send_message(1001, "quick")
        stage.session.slow = 0.6
        await stage.bot.send_message(1002, "slow")
        stage.telegram.faults = Faults(latency_in=Latency(800, 800))
        ticket = await gate.send(chat_id=1003, text="queued", method="sendMessage")
        await ticket.delivered()
        await gate.call("sendChatAction", {"chat_id": 1004, "action": "typing"})

    assert [one.text for one in told] == [
        "slow HTTP: Telegram sendMessage took 0.6 s",
        "slow HTTP: Telegram sendChatAction took 0.8 s",
    ]
    assert gate.core.incidents.counts == {"slow_http": 3}


async def test_long_polling_is_not_slow(stage: Stage, clock: VirtualClock, told: list[Incident]) -> None:
    stage.gate.core.incidents.subscribe(told.append)
    stage.gate.attach(stage.dispatcher, stage.bot)
    polling = asyncio.create_task(stage.dispatcher.start_polling(stage.bot, handle_signals=False))
    await clock.sleep(100)
    await stage.dispatcher.stop_polling()
    await polling
    assert told == []


@pytest.mark.parametrize("updates", ["library", "durable"])
async def test_the_handler_of_an_attached_bot_is_told(
    stage: Stage, clock: VirtualClock, told: list[Incident], updates: str
) -> None:
    gate = Tidegate(
        "memory://",
        clock=clock,
        settings=Settings(tidegate_slow_handler=2.0),
        wire=stage.gate.core._transport,  # noqa: SLF001
    )
    gate.core.incidents.subscribe(told.append)

    async def on_pay(message: Message) -> None:
        await message.answer("one moment")
        await clock.sleep(5)
        await message.answer("done")

    stage.dispatcher.message.register(on_pay)
    gate.attach(stage.dispatcher, stage.bot, updates=updates)  # type: ignore[call-overload]
    bot = stage.telegram.world.bot(TOKEN)
    assert bot is not None
    polling = asyncio.create_task(stage.dispatcher.start_polling(stage.bot, handle_signals=False))
    Person(stage.telegram, bot, 1001).says("pay")
    await clock.sleep(60)
    await stage.dispatcher.stop_polling()
    await polling

    [incident] = told
    assert (incident.kind, incident.handler, incident.chat) == ("slow_handler", "on_pay", 1001)
    assert incident.seconds == pytest.approx(5, abs=0.2)
