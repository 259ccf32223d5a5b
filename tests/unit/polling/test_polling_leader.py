"""Several processes over one store: any subscribes, one polls, another takes over."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from tidegate.errors import ClosedError, StoreAwayError
from tidegate.polling.batch import BatchPoller
from tidegate.polling.notifier import CALLBACKS_AT_ONCE
from tidegate.polling.subscriptions import News, Notify, StoredSubscription, Subscription
from tidegate.sim.virtual_time import VirtualClock
from unit.polling.polled import Disk, Heard, SharedSubscriptions, Source


class Process:
    def __init__(
        self, disk: Disk, clock: VirtualClock, interval: float = 10, notify: Notify | None = None
    ) -> None:
        self.source, self.heard = Source(clock), Heard(clock)
        self.view: SharedSubscriptions = disk.process()
        self.poller = BatchPoller(
            self.source.fetch,
            interval,
            clock=clock,
            notify=notify or self.heard.notify,
            subscriptions=self.view,
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


async def test_callbacks_that_wait_for_their_place_are_not_called_by_a_leader_that_lost_its_lease(
    clock: VirtualClock, disk: Disk
) -> None:
    begun = list[tuple[str, str]]()

    def slow(name: str) -> Notify:
        async def notify(subscription: Subscription, _: News) -> None:
            begun.append((name, subscription.key))
            await clock.sleep(10)

        return notify

    one, other = Process(disk, clock, 1, slow("one")), Process(disk, clock, 1, slow("other"))
    keys = [f"k{number:02}" for number in range(40)]
    await one.poller.start()
    await clock.sleep(1)
    async with other.poller:
        for key in keys:
            await one.poller.subscribe(key)
        one.source.paid = other.source.paid = dict.fromkeys(keys, 1)
        await clock.sleep(2)
        assert len(begun) == CALLBACKS_AT_ONCE
        one.view.is_dead = True  # it is cut off: it does not hear that the other leads
        await clock.sleep(60)
        assert [key for name, key in begun if name == "one"] == keys[:CALLBACKS_AT_ONCE]
        assert sorted(key for name, key in begun if name == "other") == keys  # the sixteen again: not settled
    await one.poller.stop()


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


@pytest.mark.parametrize("pause", [7.0, 15.0])
async def test_what_a_leader_found_that_slept_on_its_lease_is_told_by_the_other(
    clock: VirtualClock, disk: Disk, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    one, other = Process(disk, clock, interval=30), Process(disk, clock, interval=30)
    other.source = one.source
    real_note_news, real_lease, asleep = one.view.note_news, one.view.lease, False

    async def note_news(
        news: Sequence[News],
    ) -> list[StoredSubscription]:  # as if the process were stopped before it writes
        nonlocal asleep
        asleep = True
        await clock.sleep(pause)
        asleep = False
        return await real_note_news(news)

    async def lease(name: str, seconds: float) -> bool:
        if asleep:
            raise StoreAwayError("it sleeps")
        return await real_lease(name, seconds)

    await one.poller.start()
    await clock.sleep(1)
    async with other.poller:
        for number in range(300):
            await one.poller.subscribe(f"k{number}")
        await clock.sleep(40)
        monkeypatch.setattr(one.view, "note_news", note_news)
        monkeypatch.setattr(one.view, "lease", lease)
        one.source.paid = {"k299": 1}
        other.poller._fetch = one.source.fetch  # noqa: SLF001  (both ask the same API)
        await clock.sleep(200)
        assert one.heard.keys + other.heard.keys == ["k299"]
        assert other.poller.is_leading
    await one.poller.stop()


async def test_what_was_noted_though_the_store_did_not_answer_is_told(
    clock: VirtualClock, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Process(disk, clock)
    real = one.view.note_news

    async def note_news(news: Sequence[News]) -> list[StoredSubscription]:
        monkeypatch.setattr(one.view, "note_news", real)
        await real(news)
        raise StoreAwayError("the answer was lost")

    async with one.poller:
        await one.poller.subscribe("a")
        monkeypatch.setattr(one.view, "note_news", note_news)
        one.source.paid = {"a": 1}
        await clock.sleep(15)

    assert one.heard.keys == ["a"]
    assert await disk.kept.count() == 0


async def test_what_a_late_leader_told_does_not_settle_what_another_is_to_tell(
    clock: VirtualClock, disk: Disk
) -> None:
    one, other = Process(disk, clock, interval=1), Process(disk, clock, interval=1)
    one.source.paid = other.source.paid = {"a": 1}
    other.heard.failing = {"a"}

    async def slow(*_: object) -> None:
        await clock.sleep(20)

    await one.poller.start()
    await clock.sleep(1)
    async with other.poller:
        await one.poller.subscribe("a", {"n": 1}, callback=slow)
        await clock.sleep(3)
        one.view.is_dead = True  # for a while
        await clock.sleep(8)
        one.view.is_dead = False
        await other.poller.subscribe("a", {"n": 2})
        await clock.sleep(14)
        [kept] = await disk.kept.after(0)
        assert (kept.subscription.data, kept.news is not None) == ({"n": 2}, True)
    await one.poller.stop()


async def test_one_that_waits_to_take_over_counts_nobody_and_awaits_nothing(
    clock: VirtualClock, disk: Disk
) -> None:
    one, other = Process(disk, clock), Process(disk, clock)
    await one.poller.start()
    await clock.sleep(1)
    async with other.poller:
        await one.poller.subscribe("a")
        await clock.sleep(11)
        awaits = asyncio.create_task(one.poller.wait("a"))
        assert one.poller.stats().active_subscriptions == 1
        one.view.is_dead = True
        await clock.sleep(10)
        one.view.is_dead = False
        await clock.sleep(5)
        assert (one.poller.stats().active_subscriptions, other.poller.stats().active_subscriptions) == (0, 1)
        with pytest.raises(ClosedError, match="another process polls"):
            await awaits
    await one.poller.stop()


async def test_one_whom_the_store_denies_its_lease_asks_no_more_until_it_leads(
    clock: VirtualClock, disk: Disk
) -> None:
    one, other = Process(disk, clock, interval=6.3), disk.process()  # a cycle every 5 s
    async with one.poller:
        await one.poller.subscribe("a")
        await clock.sleep(1)
        one.source.paid = {"a": 1}
        one.source.asked.clear()
        await clock.sleep(4.05)
        disk.leader, disk.until = other, clock.monotonic() + 1.5  # by a clock that was set
        await clock.sleep(1.4)
        assert (len(one.source.asked), one.heard.keys) == (1, [])
        await clock.sleep(5)

    assert one.heard.keys == ["a"]
