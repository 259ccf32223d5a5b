"""`tidegate limits measure` against every hypothesis that the simulator can play, in virtual time."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.cli.limits_measure import Measurement, check_alone, measure_chat
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, Rate
from tidegate.sim.telegram import Faults, Latency, Limits, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.sqlite.sender_lock import SenderProcess
from tidegate.stores.store import StoreActivity

MOST = 100
RATES = ("1/1", "2/2", "2/1", "3/1", "5/5", "1/3", "10/30", "20/60", "30/1", "5/2", "60/60")
CLOSURES: list[dict[str, Any]] = [
    {"closes": "nothing"},
    {"closes": "chat"},
    {"closes": "bot"},
    {"closes": "chat", "escalates": True},
    {"closes": "bot", "escalates": True, "counts_refused": True},
    {"closes": "nothing", "counts_refused": True},
]


@asynccontextmanager
async def playing(clock: VirtualClock, limits: Limits) -> AsyncIterator[tuple[Tidegate, SimulatedTelegram]]:
    telegram = SimulatedTelegram(clock, limits=limits)
    each_way = Latency.parse("0.002")
    telegram.faults = Faults(latency_in=each_way, latency_out=each_way)
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    async with gate:
        yield gate, telegram


async def found_by(
    gate: Tidegate, clock: VirtualClock, chat: ChatId, told: Callable[[str], None]
) -> Measurement:
    return await measure_chat(gate, BotId(42), chat, clock, most=MOST, tell=told)


@pytest.mark.parametrize(("rate", "closure"), list(itertools.product(RATES, CLOSURES)))
async def test_the_limit_of_a_chat_is_found_whatever_a_429_closes(
    clock: VirtualClock, rate: str, closure: dict[str, Any]
) -> None:
    limits = Limits(burst=1, private=Rate.parse(rate), bot=Rate(1000, 1), **closure)
    async with playing(clock, limits) as (gate, telegram):
        found = await found_by(gate, clock, 7, lambda _: None)
    assert str(found.limit) == rate
    assert found.setting == f"TIDEGATE_CHAT_RATE={rate} TIDEGATE_REPLY_BURST=1"
    assert telegram.report()["refused"] == 1  # it stops at the first
    assert found.deleted == found.sent <= MOST


async def test_the_limit_of_a_group_names_the_setting_of_groups(clock: VirtualClock) -> None:
    async with playing(clock, Limits(burst=1)) as (gate, _):
        found = await found_by(gate, clock, -5, lambda _: None)
    assert found.setting == "TIDEGATE_GROUP_RATE=20/60"


async def test_a_limit_of_the_whole_bot_is_found_and_said_to_be_possible(clock: VirtualClock) -> None:
    async with playing(clock, Limits(burst=1, private=Rate(1000, 1))) as (gate, _):
        found = await found_by(gate, clock, 7, lambda _: None)
    assert str(found.limit) == "30/1"
    assert "TIDEGATE_BOT_RATE=30/1" in found.lines()[-1]


async def test_a_window_of_half_seconds_is_found_slower_never_faster(clock: VirtualClock) -> None:
    async with playing(clock, Limits(burst=1, private=Rate(5, 2.5))) as (gate, _):
        found = await found_by(gate, clock, 7, lambda _: None)
    assert str(found.limit) == "5/3"


async def test_it_stops_after_a_bounded_number_of_messages(clock: VirtualClock) -> None:
    roomy = Limits(burst=1, private=Rate(10_000, 1), bot=Rate(10_000, 1))
    told: list[str] = []
    async with playing(clock, roomy) as (gate, telegram):
        found = await found_by(gate, clock, 7, told.append)
    assert (found.sent, found.limit, found.setting, found.deleted) == (MOST, None, None, MOST)
    assert "None was refused" in found.lines()[1]
    assert told[-1] == "100 messages, none refused"
    assert telegram.report()["requests"] == MOST + 1


async def test_it_stops_at_the_first_429_and_waits_as_told_before_it_deletes(clock: VirtualClock) -> None:
    async with playing(clock, Limits(burst=1, private=Rate(1, 30), escalates=True)) as (gate, telegram):
        await found_by(gate, clock, 7, lambda _: None)
    calls = [(entry.method, entry.at) for entry in telegram.request_log.log]
    assert [method for method, _ in calls] == ["sendMessage"] * 3 + ["deleteMessages"]
    assert calls[2][1] - calls[1][1] >= 30


@pytest.mark.parametrize(("burst", "rate"), list(itertools.product([3, 5, 25, 60], ["1/1", "1/2", "2/1"])))
async def test_a_burst_is_told_from_a_window_by_what_passes_after_the_wait(
    clock: VirtualClock, burst: int, rate: str
) -> None:
    limits = Limits(burst=burst, private=Rate.parse(rate), bot=Rate(1000, 1))
    async with playing(clock, limits) as (gate, telegram):
        found = await found_by(gate, clock, 7, lambda _: None)
    assert (found.burst, str(found.limit)) == (burst, rate)
    assert found.setting == f"TIDEGATE_CHAT_RATE={rate} TIDEGATE_REPLY_BURST={burst}"
    assert telegram.report()["refused"] == 2
    assert found.deleted == found.sent


async def test_it_does_not_run_while_another_process_sends_for_the_store(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing(clock, Limits(burst=1)) as (gate, _):
        await check_alone(gate)

        async def busy() -> StoreActivity:
            return StoreActivity(has_one_sender=True, sender=SenderProcess(77, "tidegate worker"))

        monkeypatch.setattr(gate.core.store, "activity", busy)
        with pytest.raises(BadInputError, match="stop it first"):
            await check_alone(gate)
