"""One by one: the fallback where an API cannot be asked for many."""

from itertools import pairwise

import pytest

from tidegate.errors import BadInputError, UpstreamAwayError
from tidegate.polling.each import UserPoller
from tidegate.sim.virtual import VirtualClock
from unit.polling.polled import Heard, Source


@pytest.fixture
async def source(clock: VirtualClock) -> Source:
    return Source(clock)


@pytest.fixture
async def heard(clock: VirtualClock) -> Heard:
    return Heard(clock)


async def test_each_is_asked_about_once_per_interval_at_a_time_of_his_own(
    clock: VirtualClock, source: Source
) -> None:
    async with UserPoller(source.fetch_one, clock=clock) as poller:
        for number in range(100):
            await poller.subscribe(str(number))
        await clock.sleep(240)
        stats = poller.stats()

    for number in range(100):
        times = source.times_of(str(number))
        gaps = [after - before for before, after in pairwise(times)]
        assert gaps == pytest.approx([60.0] * len(gaps))
        assert len(times) == 4
    busiest = max(sum(1 for at, _ in source.asked if begin <= at < begin + 1) for begin in range(240))
    assert busiest <= 3  # all subscribed in the same moment
    assert (stats.cycles, stats.average_batch_size, stats.reduction) == (4, 1.0, 0.0)


async def test_each_is_told_once_within_the_interval(
    clock: VirtualClock, source: Source, heard: Heard
) -> None:
    async with UserPoller(source.fetch_one, clock=clock, notify=heard.notify) as poller:
        for number in range(50):
            await poller.subscribe(str(number))
        await clock.sleep(100)
        source.paid = {str(number): number for number in range(50)}
        paid_at = clock.monotonic()
        await clock.sleep(100)
        assert poller._due_of == {}  # noqa: SLF001  (it must shrink)

    assert sorted(heard.calls) == sorted((str(number), number) for number in range(50))
    assert max(heard.at.values()) - paid_at < 61


async def test_a_failure_of_one_does_not_touch_the_others(
    clock: VirtualClock, source: Source, heard: Heard
) -> None:
    source.failing["b"] = UpstreamAwayError("it is down", api="api", method="GET", endpoint="records")
    source.paid = {"a": 1, "b": 2, "c": 3}
    async with UserPoller(source.fetch_one, clock=clock, notify=heard.notify) as poller:
        for key in "abc":
            await poller.subscribe(key)
        await clock.sleep(70)
        assert sorted(heard.keys) == ["a", "c"]
        source.failing.clear()
        await clock.sleep(60)

    assert sorted(heard.keys) == ["a", "b", "c"]


async def test_no_more_are_asked_about_at_once_than_it_was_told_and_nobody_beside_himself(
    clock: VirtualClock, source: Source
) -> None:
    source.takes = 20.0
    async with UserPoller(source.fetch_one, 5, at_once=3, clock=clock) as poller:
        for key in "abcdef":
            await poller.subscribe(key)
        await clock.sleep(200)

    assert source.most_at_once == 3
    assert {key: len(source.times_of(key)) for key in "abcdef"} == pytest.approx(
        dict.fromkeys("abcdef", 5), abs=1
    )


async def test_bad_input_is_refused(source: Source) -> None:
    with pytest.raises(BadInputError, match="0 requests at a time"):
        UserPoller(source.fetch_one, at_once=0)
    with pytest.raises(BadInputError, match="fetch is None"):
        UserPoller(None)  # type: ignore[arg-type]
