"""A loop that works on a store: when it steps, how it waits for a store that is away, and how it stops."""

import asyncio
import logging

import pytest

from tidegate.errors import StoreAwayError
from tidegate.failure import LONGEST_PAUSE
from tidegate.sim.virtual_time import VirtualClock
from tidegate.store_loop import StoreLoop

log = logging.getLogger("tidegate.jobs")


class Steps:
    """Steps that take and pause as a test says, and the times of each."""

    def __init__(self, clock: VirtualClock, pause: float = 10.0, takes: float = 0.0) -> None:
        self._clock = clock
        self._pause = pause
        self._takes = takes
        self._began = clock.now()
        self.away = False
        self.times: list[float] = []
        self.ended = 0
        self.loop = StoreLoop("things", self.step, clock, log)

    async def step(self) -> float:
        self.times.append(round(self._clock.now() - self._began, 3))
        await self._clock.sleep(self._takes)
        if self.away:
            raise StoreAwayError("it cannot be reached")
        self.ended += 1
        return self._pause


@pytest.fixture
def steps(clock: VirtualClock) -> Steps:
    return Steps(clock)


async def test_it_steps_again_after_the_pause_that_the_step_has_asked_for(
    steps: Steps, clock: VirtualClock
) -> None:
    running = asyncio.create_task(steps.loop.run())
    await clock.sleep(25.0)
    steps.loop.stop()
    await running

    assert steps.times == [0.0, 10.0, 20.0]


async def test_a_wake_ends_the_pause_and_one_during_a_step_is_not_lost(clock: VirtualClock) -> None:
    steps = Steps(clock, takes=2.0)
    running = asyncio.create_task(steps.loop.run())
    await clock.sleep(5.0)
    steps.loop.wake()
    await clock.sleep(1.0)  # within the second step
    steps.loop.wake()
    steps.loop.wake()
    await clock.sleep(5.0)
    steps.loop.stop()
    await running

    assert steps.times == [0.0, 5.0, 7.0]


async def test_a_stop_lets_the_step_end_and_begins_no_other(clock: VirtualClock) -> None:
    steps = Steps(clock, takes=2.0)
    running = asyncio.create_task(steps.loop.run())
    await clock.sleep(1.0)
    assert not steps.loop.is_stopping
    steps.loop.stop()
    steps.loop.wake()
    await running

    assert steps.loop.is_stopping
    assert (len(steps.times), steps.ended) == (1, 1)


async def test_while_the_store_is_away_the_pauses_grow_and_it_is_said_once(
    steps: Steps, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    steps.away = True
    running = asyncio.create_task(steps.loop.run())
    await clock.sleep(100.0)
    assert steps.loop.problems() == ["things wait: it cannot be reached"]
    steps.away = False
    await clock.sleep(LONGEST_PAUSE + 5.0)

    assert steps.loop.problems() == []
    assert steps.times == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 91.0, 121.0, 131.0]
    assert [record.getMessage() for record in caplog.records] == [
        "things wait until this is mended, and nothing is lost: it cannot be reached",
        "things go on",
    ]
    steps.loop.stop()
    await running


async def test_a_second_outage_begins_with_short_pauses(
    steps: Steps, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    running = asyncio.create_task(steps.loop.run())
    for _ in range(2):
        steps.away = True
        steps.loop.wake()
        await clock.sleep(6.0)
        steps.away = False
        steps.loop.wake()
        await clock.sleep(4.0)
    steps.loop.stop()
    await running

    assert [round(at % 10) for at in steps.times if at % 10 < 6] == [0, 1, 3, 0, 1, 3]
    assert caplog.text.count("things wait until this is mended") == 2


async def test_a_stop_ends_also_the_pause_of_an_outage(steps: Steps, clock: VirtualClock) -> None:
    steps.away = True
    running = asyncio.create_task(steps.loop.run())
    await clock.sleep(40.0)
    at = clock.now()
    steps.loop.stop()
    await running
    assert clock.now() == at


async def test_an_error_of_another_kind_is_left_to_whoever_supervises(clock: VirtualClock) -> None:
    async def fails() -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await StoreLoop("things", fails, clock, log).run()
