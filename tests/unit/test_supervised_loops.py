"""Loops that fail: started again after a pause, said in words, recovered when they work."""

import logging
from itertools import pairwise

import pytest

from tidegate.sim.virtual_time import VirtualClock
from tidegate.tasks import HOPELESS_AFTER, RECOVERED_AFTER, BackgroundTasks


class Loop:
    """Fails as often as it is told to, then runs on."""

    def __init__(self, clock: VirtualClock, failures: int) -> None:
        self._clock = clock
        self.failures = failures
        self.starts: list[float] = []

    async def run(self) -> None:
        self.starts.append(self._clock.monotonic())
        if len(self.starts) <= self.failures:
            raise ValueError(f"failure {len(self.starts)}")
        await self._clock.sleep(1e9)


async def test_a_loop_that_fails_is_started_again_after_pauses_that_double_up_to_half_a_minute(
    clock: VirtualClock,
) -> None:
    loop, tasks = Loop(clock, 8), BackgroundTasks()

    tasks.supervise(loop.run, "the loop", clock)
    await clock.sleep(200)

    assert [after - before for before, after in pairwise(loop.starts)] == [1, 2, 4, 8, 16, 30, 30, 30]
    await tasks.stop()


async def test_a_loop_is_a_problem_in_words_until_it_has_run_for_a_while(clock: VirtualClock) -> None:
    loop, tasks = Loop(clock, 2), BackgroundTasks()
    tasks.supervise(loop.run, "the loop", clock)

    await clock.sleep(0.5)
    [first] = tasks.problems()
    await clock.sleep(1)
    [second] = tasks.problems()
    await clock.sleep(RECOVERED_AFTER + 2)

    assert first.startswith("the loop has failed once: ValueError: failure 1")
    assert second.startswith("the loop has failed 2 times in a row: ValueError: failure 2")
    assert tasks.problems() == []
    await tasks.stop()


async def test_a_loop_that_works_is_no_problem_any_more(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    loop, tasks = Loop(clock, 1), BackgroundTasks()
    supervised = tasks.supervise(loop.run, "the loop", clock)
    await clock.sleep(2)
    assert tasks.problems()

    caplog.clear()
    with caplog.at_level(logging.WARNING, "tidegate"):
        supervised.works()
        supervised.works()

    assert tasks.problems() == []
    assert [record.getMessage() for record in caplog.records] == ["the loop works again"]
    await tasks.stop()


async def test_a_loop_is_hopeless_after_six_failures_in_a_row_and_still_started_again(
    clock: VirtualClock,
) -> None:
    loop, tasks = Loop(clock, HOPELESS_AFTER), BackgroundTasks()
    supervised = tasks.supervise(loop.run, "the loop", clock)

    await clock.sleep(30)
    assert not supervised.hopeless.is_set()
    async with clock.timeout(2):
        await supervised.hopeless.wait()
    await clock.sleep(31)

    assert len(loop.starts) == HOPELESS_AFTER + 1
    await tasks.stop()


async def test_a_loop_that_returns_or_is_cancelled_is_not_started_again(clock: VirtualClock) -> None:
    tasks = BackgroundTasks()
    starts: list[str] = []

    async def ends() -> None:
        starts.append("ends")

    async def runs() -> None:
        starts.append("runs")
        await clock.sleep(1e9)

    tasks.supervise(ends, "the loop that ends", clock)
    running = tasks.supervise(runs, "the loop that runs", clock)
    await clock.sleep(1)
    running.task.cancel()
    await clock.sleep(100)

    assert (starts, len(tasks)) == (["ends", "runs"], 0)
