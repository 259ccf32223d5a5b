"""Per-user polling: for APIs that cannot be asked about many keys at once."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from tidegate.errors import BadInputError, UpstreamAwayError
from tidegate.polling.per_user import UserPoller
from tidegate.polling.subscriptions import MemorySubscriptions, News, StoredSubscription
from tidegate.sim.virtual_time import VirtualClock
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


async def test_a_key_that_fails_is_logged_once_though_the_others_succeed(
    clock: VirtualClock, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.failing = {"k7": ValueError("no such record")}
    async with UserPoller(source.fetch_one, clock=clock) as poller:
        for number in range(30):
            await poller.subscribe(f"k{number}")
        await clock.sleep(600)
        assert [entry.message[:28] for entry in caplog.records] == ["poller cannot ask about 'k7'"]
        source.failing = {}
        await clock.sleep(60)
        assert caplog.records[-1].message == "poller can ask about all keys again"
        source.failing = {f"k{number}": ValueError("it is down") for number in range(30)}
        await clock.sleep(600)

    assert len(caplog.records) == 2 + 6


async def test_who_comes_again_while_his_news_is_being_noted_is_told(
    clock: VirtualClock, source: Source, heard: Heard
) -> None:
    class Slow(MemorySubscriptions):
        async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
            await clock.sleep(3)
            return await super().note_news(news)

    source.paid, kept = {"a": 1}, Slow(clock)
    async with UserPoller(
        source.fetch_one, 10, clock=clock, notify=heard.notify, subscriptions=kept
    ) as poller:
        await poller.subscribe("a")
        await clock.sleep(1)
        await poller.unsubscribe("a")
        await poller.subscribe("a", {"again": True})
        await clock.sleep(60)

    assert heard.keys == ["a"]
    assert await kept.count() == 0
