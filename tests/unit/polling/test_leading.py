"""Several processes over one store: any subscribes, one polls, another takes over."""

import logging

import pytest

from tidegate.polling.batch import BatchPoller
from tidegate.polling.subscriptions import News, Subscription
from tidegate.sim.virtual import VirtualClock
from unit.polling.polled import Disk, Heard, SharedSubscriptions, Source


class Process:
    def __init__(self, disk: Disk, clock: VirtualClock, interval: float = 10) -> None:
        self.source, self.heard = Source(clock), Heard(clock)
        self.view: SharedSubscriptions = disk.process()
        self.poller = BatchPoller(
            self.source.fetch, interval, clock=clock, notify=self.heard.notify, subscriptions=self.view
        )


@pytest.fixture
async def disk(clock: VirtualClock) -> Disk:
    return Disk(clock)


async def test_one_polls_for_what_both_subscribe(clock: VirtualClock, disk: Disk) -> None:
    one, other = Process(disk, clock), Process(disk, clock)
    async with one.poller, other.poller:
        await clock.sleep(1)
        await other.poller.subscribe("a")
        await one.poller.subscribe("b")
        one.source.paid = {"a": 1, "b": 2}
        await clock.sleep(30)
        assert (one.poller.is_leading, other.poller.is_leading) == (True, False)

    assert sorted(one.heard.keys) == ["a", "b"]
    assert other.source.asked == []


async def test_the_other_takes_over_at_once_when_the_first_stops(clock: VirtualClock, disk: Disk) -> None:
    one, other = Process(disk, clock), Process(disk, clock)
    await one.poller.start()
    await clock.sleep(1)
    async with other.poller:
        await one.poller.subscribe("a")
        await clock.sleep(12)
        await one.poller.stop()
        other.source.paid = {"a": 1}
        await clock.sleep(1.2)

    assert other.heard.keys == ["a"]


async def test_and_within_seven_seconds_when_it_dies(clock: VirtualClock, disk: Disk) -> None:
    one, other = Process(disk, clock), Process(disk, clock)
    await one.poller.start()
    await clock.sleep(1)
    async with other.poller:
        await one.poller.subscribe("a")
        await clock.sleep(12)
        one.view.die()
        other.source.paid = {"a": 1}
        await clock.sleep(7.2)
        assert other.heard.keys == ["a"]
    await one.poller.stop()


async def test_one_that_cannot_reach_the_store_tells_nobody_and_takes_up_again_later(
    clock: VirtualClock, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    one = Process(disk, clock)
    async with one.poller:
        await one.poller.subscribe("a")
        await clock.sleep(1)
        disk.is_away = True
        one.source.paid = {"a": 1}
        await clock.sleep(60)
        assert one.heard.calls == []
        disk.is_away = False
        await clock.sleep(12)

    assert one.heard.keys == ["a"]
    warnings = [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert len(warnings) <= 4  # told when it begins and when it ends, not each time


async def test_a_callback_that_runs_while_the_lease_is_lost_and_taken_again_is_not_called_twice(
    clock: VirtualClock, disk: Disk
) -> None:
    one, begun = Process(disk, clock, interval=1), list[str]()

    async def callback(subscription: Subscription, _: News) -> None:
        begun.append(subscription.key)
        await clock.sleep(40)

    async with one.poller:
        await one.poller.subscribe("a", callback=callback)
        one.source.paid = {"a": 1}
        await clock.sleep(2)
        disk.is_away = True
        await clock.sleep(10)
        disk.is_away = False
        await clock.sleep(60)

    assert begun == ["a"]
    assert await disk.kept.count() == 0


async def test_who_was_polled_for_before_the_store_was_away_need_not_be_restored(
    clock: VirtualClock, disk: Disk
) -> None:
    one = Process(disk, clock)
    async with one.poller:
        for number in range(100):
            await one.poller.subscribe(str(number))
        await clock.sleep(1)
        disk.is_away = True
        await clock.sleep(30)
        disk.is_away = False
        await clock.sleep(2)
        assert len(one.poller.waiting) == 100


async def test_who_is_unsubscribed_elsewhere_is_not_asked_about_for_long(
    clock: VirtualClock, disk: Disk
) -> None:
    one, other = Process(disk, clock), Process(disk, clock)
    async with one.poller, other.poller:
        await clock.sleep(1)
        await one.poller.subscribe("a")
        await one.poller.subscribe("b")
        await clock.sleep(12)
        await other.poller.unsubscribe("a")
        await clock.sleep(25)
        assert list(one.poller.waiting) == ["b"]


async def test_a_callback_given_where_nobody_polls_is_warned_of(
    clock: VirtualClock, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = Process(disk, clock), Process(disk, clock)
    async with one.poller, other.poller:
        await clock.sleep(1)
        await other.poller.subscribe("a", callback=lambda *_: None)

    assert "another process polls for poller: a callback given here is not called there" in caplog.text


async def test_it_starts_while_the_store_is_away_and_can_be_started_again(
    clock: VirtualClock, disk: Disk
) -> None:
    one = Process(disk, clock)
    disk.is_away = True
    async with one.poller:
        await clock.sleep(5)
        disk.is_away = False
        await one.poller.subscribe("a")
        await clock.sleep(2)
        assert list(one.poller.waiting) == ["a"]
    one.source.paid = {"a": 1}
    async with one.poller:
        await clock.sleep(2)

    assert one.heard.keys == ["a"]
