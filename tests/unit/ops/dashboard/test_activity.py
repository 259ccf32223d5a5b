"""What is true now, read once for all who ask, and the last hour, which does not grow."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tidegate import Tidegate
from tidegate.errors import StoreAwayError
from tidegate.model import BotId
from tidegate.ops.dashboard.activity import (
    READ_TIMEOUT,
    SAMPLE_EVERY,
    SAMPLES,
    Activity,
)
from tidegate.ops.dashboard.now_page import troubles
from tidegate.outbox.port import OutboxStats
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.tasks import BackgroundTasks

BOT, PAUSED = BotId(42), BotId(43)


@pytest.fixture
async def gate(clock: VirtualClock) -> AsyncIterator[Tidegate]:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(SimulatedTelegram(clock), clock))
    for bot in (BOT, PAUSED):
        gate.add_bot(f"{bot}:token")
    async with gate:
        await gate.outbox.pause(PAUSED)
        yield gate


@pytest.fixture
async def activity(gate: Tidegate) -> Activity:
    return Activity(gate)


@pytest.fixture
async def sampling(activity: Activity) -> AsyncIterator[Activity]:
    tasks = BackgroundTasks()
    tasks.start(activity.sample_often(), "samples")
    yield activity
    await tasks.stop()


class StoreReads:
    """Counts the times that the store is asked, which may fail, or not answer."""

    def __init__(self, gate: Tidegate, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.hangs = False
        self._stats = gate.stats
        self._gate = gate
        monkeypatch.setattr(gate, "stats", self)

    async def __call__(self) -> OutboxStats:
        self.count += 1
        if self.error is not None:
            raise self.error
        if self.hangs:
            await self._gate.clock.sleep(3_600)
        return await self._stats()


@pytest.fixture
async def reads(gate: Tidegate, monkeypatch: pytest.MonkeyPatch) -> StoreReads:
    return StoreReads(gate, monkeypatch)


async def test_the_store_is_asked_once_a_second_however_many_look(
    activity: Activity, reads: StoreReads, clock: VirtualClock
) -> None:
    states = await asyncio.gather(*(activity.now() for _ in range(50)))
    assert all(state is states[0] for state in states)
    assert reads.count == 1
    for _ in range(50):
        await activity.now()
        await clock.sleep(0.1)
    assert reads.count <= 6


async def test_bots_are_there_with_what_waits_and_how_fast_they_may_go(
    activity: Activity, gate: Tidegate
) -> None:
    await gate.send_many([{"chat_id": n + 1, "text": "Hi"} for n in range(60)], bot=BOT)
    await gate.send(bot=PAUSED, chat_id=1, text="Hi")
    state = await activity.now()
    sending, paused = state.bots
    assert (sending.bot, paused.bot) == (BOT, PAUSED)
    assert (sending.counts.waiting, sending.is_paused, sending.is_learned) == (60, False, False)
    assert sending.drains_in == pytest.approx(60 / sending.limit)
    assert (paused.counts.waiting, paused.is_paused, paused.drains_in) == (1, True, None)
    assert state.stats.waiting == 61
    assert state.store == "memory"


async def test_calls_of_the_last_seconds_are_seen(
    activity: Activity, gate: Tidegate, clock: VirtualClock
) -> None:
    async with gate.worker():
        await gate.send_many([{"chat_id": n + 1, "text": "Hi"} for n in range(300)], bot=BOT)
        await clock.sleep(7)
        state = await activity.now()
    assert state.bots[0].sends == pytest.approx(state.bots[0].limit, rel=0.1)
    assert [one.process for one in state.vitals] != []


async def test_the_last_hour_is_kept_and_not_more(sampling: Activity, clock: VirtualClock) -> None:
    await clock.sleep(1.5 * 3_600)
    assert len(sampling.samples) == SAMPLES
    first, last = sampling.samples[0], sampling.samples[-1]
    assert last.at - first.at == pytest.approx(3_600 - SAMPLE_EVERY)
    assert {bot: len(sends) for bot, sends in sampling.sends_of.items()} == {BOT: SAMPLES, PAUSED: SAMPLES}


async def test_a_store_that_is_away_is_told_with_the_numbers_from_before(
    activity: Activity, gate: Tidegate, reads: StoreReads, clock: VirtualClock
) -> None:
    await gate.send(bot=PAUSED, chat_id=1, text="Hi")
    await activity.now()
    reads.error = StoreAwayError("Redis does not answer at localhost")
    await clock.sleep(1)
    state = await activity.now()
    assert "Redis does not answer" in state.away
    assert state.stats.waiting == 1
    assert state.at == clock.now()
    assert "The store does not answer: Redis" in troubles(state)[0].text

    reads.error = None
    await clock.sleep(1)
    state = await activity.now()
    assert state.away == ""
    assert not any("store" in one.text for one in troubles(state))


async def test_a_store_that_hangs_keeps_nobody_waiting_for_long(
    activity: Activity, reads: StoreReads, clock: VirtualClock
) -> None:
    reads.hangs = True
    before = clock.monotonic()
    state = await activity.now()
    assert clock.monotonic() - before <= 2 * READ_TIMEOUT
    assert "has not answered within" in state.away


async def test_samples_go_on_when_the_store_is_back(
    sampling: Activity, reads: StoreReads, clock: VirtualClock
) -> None:
    reads.error = StoreAwayError("away")
    await clock.sleep(60)
    reads.error = None
    await clock.sleep(60)
    latest = sampling.samples[-1]
    assert clock.now() - latest.at <= SAMPLE_EVERY


async def test_a_database_that_hung_was_not_said_to_be_away(
    activity: Activity, gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang() -> None:
        await clock.sleep(3_600)

    monkeypatch.setattr(gate.core.database, "ping", hang)
    state = await activity.now()
    assert state.database_answers is False
    assert "The database does not answer." in [one.text for one in troubles(state)]
