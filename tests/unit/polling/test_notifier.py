"""The notifier: each news once, several callbacks at a time, retries; no callback can stop it."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from tidegate.errors import ClosedError, NotTheSenderError
from tidegate.outbox.effect_keys import effect_key
from tidegate.polling.batch import BatchPoller
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import MemorySubscriptions, News, Notify, StoredSubscription, Subscription
from tidegate.sim.virtual_time import VirtualClock
from unit.polling.polled import Disk, Heard, Source


@pytest.fixture
async def source(clock: VirtualClock) -> Source:
    return Source(clock)


@pytest.fixture
async def heard(clock: VirtualClock) -> Heard:
    return Heard(clock)


def batch(source: Source, notify: Notify | None = None, **options: Any) -> BatchPoller:  # noqa: ANN401
    return BatchPoller(source.fetch, clock=source.clock, notify=notify, **options)


async def test_a_callback_that_raises_is_tried_again_and_the_others_are_told_meanwhile(
    clock: VirtualClock, source: Source, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    heard.failing = {"a"}
    source.paid = {"a": 1, "b": 2}
    async with batch(source, heard.notify) as poller:
        await poller.subscribe("a")
        await poller.subscribe("b")
        await clock.sleep(30)
        assert heard.keys == ["b"]
        assert poller.stats().failed_callbacks == 3
        heard.failing = set()
        await clock.sleep(60)

    assert heard.keys == ["b", "a"]
    assert len(source.times_of("a")) == 1  # the API is not asked again
    assert (
        "the callback for 'a' failed, called again in 5 s: ValueError: no luck with a (polling/"
        in caplog.text
    )


async def test_one_that_never_succeeds_stays_in_the_store_and_is_told_after_the_next_start(
    clock: VirtualClock, source: Source, heard: Heard
) -> None:
    heard.failing, source.paid = {"a"}, {"a": 1}
    kept = MemorySubscriptions(clock)
    async with batch(source, heard.notify, subscriptions=kept) as poller:
        await poller.subscribe("a")
        await clock.sleep(3_600)
        assert (poller.stats().untold, poller.stats().failed_callbacks) == (1, 6)
    heard.failing, source.paid = set(), {}
    async with batch(source, heard.notify, subscriptions=kept):
        await clock.sleep(1)

    assert heard.calls == [("a", 1)]
    assert len(source.asked) == 1
    assert await kept.count() == 0


async def test_sixteen_are_told_at_a_time_and_a_slow_one_holds_up_neither_cycle_nor_others(
    clock: VirtualClock, source: Source
) -> None:
    most, running, told = 0, 0, []

    async def notify(subscription: Subscription, _: News) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await clock.sleep(30 if subscription.key == "0" else 1)
        running -= 1
        told.append(subscription.key)

    async with batch(source, notify, interval=5) as poller:
        for number in range(40):
            await poller.subscribe(str(number))
            source.paid[str(number)] = True
        await clock.sleep(10)
        assert len(told) == 39
        await poller.subscribe("late")
        source.paid["late"] = True
        await clock.sleep(7)
        assert told[-1] == "late"
        await clock.sleep(20)

    assert most == 16
    assert len(told) == len(set(told)) == 41


async def test_a_callback_that_never_ends_is_cancelled_after_a_minute(
    clock: VirtualClock, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    async def notify(_: Subscription, __: News) -> None:
        await asyncio.Event().wait()

    source.paid["a"] = 1
    async with batch(source, notify) as poller:
        await poller.subscribe("a")
        await clock.sleep(62)

    assert (
        "failed, called again in 5 s: TimeoutError: it took longer than 60 s and was cancelled" in caplog.text
    )


async def test_what_a_callback_puts_has_the_same_cause_when_it_is_called_again(
    clock: VirtualClock, source: Source
) -> None:
    causes: list[str | None] = []

    def notify(_: Subscription, __: News) -> None:
        causes.append(effect_key("thank you"))
        if len(causes) < 2:
            raise ValueError

    source.paid = {"a": 1, "b": 2}
    async with batch(source, notify) as poller:
        await poller.subscribe("a")
        await clock.sleep(10)
        await poller.subscribe("a")
        await clock.sleep(70)

    first, again, other = causes
    assert first == again
    assert first is not None
    assert first.startswith("poll:poller:")
    assert other != first


async def test_a_callback_may_subscribe_him_again(clock: VirtualClock, source: Source) -> None:
    told: list[int] = []

    async def callback(subscription: Subscription, _: News) -> None:
        told.append(subscription.data["time"])
        if len(told) < 3:
            await poller.subscribe("a", {"time": len(told) + 1}, callback=callback)

    source.paid["a"] = True
    async with batch(source, interval=10) as poller:
        await poller.subscribe("a", {"time": 1}, callback=callback)
        await clock.sleep(100)
        assert (poller.stats().told, poller.stats().active_subscriptions) == (3, 0)

    assert told == [1, 2, 3]


async def test_who_subscribes_anew_is_not_told_what_failed_before(
    clock: VirtualClock, source: Source, heard: Heard
) -> None:
    heard.failing, source.paid = {"a"}, {"a": "old"}
    async with batch(source, heard.notify) as poller:
        await poller.subscribe("a")
        await clock.sleep(2)
        heard.failing, source.paid = set(), {}
        await poller.subscribe("a")
        await clock.sleep(70)
        assert heard.calls == []
        source.paid = {"a": "new"}
        await clock.sleep(60)

    assert heard.calls == [("a", "new")]


async def test_a_store_that_is_away_when_he_was_told_does_not_have_him_told_twice(
    clock: VirtualClock, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    disk, told = Disk(clock), []

    async def notify(subscription: Subscription, _: News) -> None:
        told.append(subscription.key)
        disk.is_away = True

    source.paid["a"] = 1
    async with batch(source, notify, subscriptions=disk.process()) as poller:
        await poller.subscribe("a")
        await clock.sleep(20)
        disk.is_away = False
        await clock.sleep(120)
        assert await disk.kept.count() == 0

    assert told == ["a"]
    assert caplog.text.count("cannot settle delivered news, and goes on trying") == 1


async def test_wait_returns_the_value_and_subscribes_if_need_be(clock: VirtualClock, source: Source) -> None:
    async with batch(source) as poller:
        both = [asyncio.create_task(poller.wait("a")) for _ in range(2)]
        await clock.sleep(5)
        source.paid["a"] = {"Amount": 5}
        assert [await one for one in both] == [{"Amount": 5}, {"Amount": 5}]
        await clock.sleep(1)
        assert poller.stats().active_subscriptions == 0
        assert await poller.subscriptions.count() == 0


async def test_wait_leaves_the_data_of_who_is_subscribed_and_notify_is_called_too(
    clock: VirtualClock, source: Source
) -> None:
    told: list[dict[str, Any]] = []
    async with batch(source, lambda subscription, _: told.append(subscription.data)) as poller:
        await poller.subscribe("a", {"chat": 5})
        source.paid["a"] = 1
        assert await poller.wait("a") == 1
        await clock.sleep(1)

    assert told == [{"chat": 5}]


async def test_a_wait_that_is_cancelled_takes_back_its_subscription(
    clock: VirtualClock, source: Source
) -> None:
    async with batch(source) as poller:
        await poller.subscribe("mine")
        for key in ("mine", "its own"):
            with pytest.raises(TimeoutError):
                async with clock.timeout(5):
                    await poller.wait(key)
        await clock.sleep(60)
        assert list(poller.waiting) == ["mine"]


async def test_who_waits_hears_that_it_is_over(clock: VirtualClock, source: Source) -> None:
    poller = batch(source)
    with pytest.raises(ClosedError, match="does not run"):
        await poller.wait("a")
    await poller.start()
    left, stopped = asyncio.create_task(poller.wait("a")), asyncio.create_task(poller.wait("b"))
    await clock.sleep(5)
    await poller.unsubscribe("a")
    with pytest.raises(ClosedError, match="unsubscribed"):
        await left
    await poller.stop()
    with pytest.raises(ClosedError, match="was stopped"):
        await stopped


async def test_news_that_nobody_is_there_to_hear_waits_for_him(
    clock: VirtualClock, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.paid["a"] = 7
    async with batch(source) as poller:
        await poller.subscribe("a")
        await clock.sleep(10)
        assert poller.stats().untold == 1
        assert await poller.wait("a") == 7
        await clock.sleep(1)
        assert (poller.stats().untold, await poller.subscriptions.count()) == (0, 0)

    assert "no callback here: give the poller notify=" in caplog.text


async def test_in_a_process_that_does_not_poll_wait_says_so(clock: VirtualClock, source: Source) -> None:
    disk = Disk(clock)
    async with batch(source, subscriptions=disk.process()):
        await clock.sleep(1)
        async with batch(source, subscriptions=disk.process()) as spare:
            with pytest.raises(NotTheSenderError, match="another process polls for poller"):
                await spare.wait("a")


async def test_stop_gives_callbacks_time_and_then_cancels_them(
    clock: VirtualClock, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def notify(subscription: Subscription, _: News) -> None:
        await clock.sleep(5 if subscription.key == "a" else 50)
        ended.append(subscription.key)

    source.paid = {"a": 1, "b": 2}
    kept = MemorySubscriptions(clock)
    poller = batch(source, notify, subscriptions=kept)
    await poller.subscribe("a")
    await poller.subscribe("b")
    await poller.start()
    await clock.sleep(1)
    await poller.stop()

    assert clock.monotonic() == 11.0
    assert ended == ["a"]
    assert [one.subscription.key for one in await kept.after(0)] == ["b"]
    assert "called again after the next start" in caplog.text


async def test_one_that_does_not_end_though_it_was_cancelled_does_not_keep_the_poller_from_stopping(
    clock: VirtualClock, source: Source
) -> None:
    over = asyncio.Event()

    async def notify(_: Subscription, __: News) -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    source.paid["a"] = 1
    poller = batch(source, notify)
    await poller.subscribe("a")
    await poller.start()
    await clock.sleep(1)
    await poller.stop()
    assert clock.monotonic() == 16.0
    over.set()
    await clock.sleep(1)


async def test_a_process_that_only_subscribes_does_not_remember_whom(
    clock: VirtualClock, source: Source
) -> None:
    disk = Disk(clock)
    async with batch(source, subscriptions=disk.process()):
        await clock.sleep(1)
        async with batch(source, subscriptions=disk.process()) as spare:
            await clock.sleep(1)
            for number in range(100):
                await spare.subscribe(str(number), callback=lambda *_: None)
            roster, given = spare._tracked, spare._notifier.callbacks  # noqa: SLF001
            assert (roster.unread, roster.active, given) == (set(), 0, {})


async def test_a_callback_may_stop_the_poller(clock: VirtualClock, source: Source) -> None:
    async def notify(_: Subscription, __: News) -> None:
        await poller.stop()

    source.paid["a"] = 1
    poller = batch(source, notify)
    await poller.subscribe("a")
    await poller.start()
    await clock.sleep(5)

    assert not poller.is_running


class Told(Poller):
    """Is told by the test what it finds."""

    async def _cycle(self) -> float:
        return 1.0

    async def find(self, key: str, kind: Any) -> None:  # noqa: ANN401
        await self._report([News(key, kind, kind)])

    def _after_news(self, news: News) -> Any:  # noqa: ANN401
        return "watch" if news.kind == "met" else super()._after_news(news)


async def test_one_is_watched_after_he_was_told_waits_again_after_a_reversal_and_is_forgotten_when_gone(
    clock: VirtualClock, heard: Heard
) -> None:
    async with Told(clock=clock, notify=heard.notify) as poller:
        await poller.subscribe("a")
        await clock.sleep(2)
        await poller.find("a", "met")
        assert not poller.waiting
        await clock.sleep(1)
        assert list(poller.watched) == ["a"]
        await poller.find("a", "reversed")
        await clock.sleep(2)
        assert (list(poller.waiting), list(poller.watched)) == (["a"], [])
        await poller.find("a", "gone")
        await clock.sleep(1)
        assert (poller.stats().active_subscriptions, poller.stats().told) == (0, 3)

    assert [value for _, value in heard.calls] == ["met", "reversed", "gone"]


async def test_a_payment_after_a_reversal_is_another_cause(clock: VirtualClock) -> None:
    causes: list[str | None] = []
    async with Told(clock=clock, notify=lambda *_: causes.append(effect_key("thank you"))) as poller:
        await poller.subscribe("a")
        for kind in ("met", "reversed", "met"):
            await clock.sleep(2)
            await poller.find("a", kind)
        await clock.sleep(2)

    assert len(set(causes)) == len(causes) == 3


async def test_who_awaits_a_record_that_is_gone_hears_of_it(clock: VirtualClock) -> None:
    async with Told(clock=clock) as poller:
        waiting = asyncio.create_task(poller.wait("a"))
        await clock.sleep(2)
        await poller.find("a", "gone")
        with pytest.raises(ClosedError, match="the record of 'a' is gone"):
            await waiting


async def test_a_token_in_an_error_of_a_callback_is_not_logged(
    clock: VirtualClock, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    def notify(_: Subscription, __: News) -> None:
        raise ValueError(
            "POST https://api.telegram.org/bot12345:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/sendMessage"
        )

    source.paid["a"] = 1
    async with batch(source, notify) as poller:
        await poller.subscribe("a")
        await clock.sleep(2)

    assert [entry for entry in caplog.records if entry.levelno == logging.ERROR]
    assert "AAHdqTcv" not in caplog.text


async def test_two_pollers_in_memory_have_two_causes(clock: VirtualClock, source: Source) -> None:
    causes: list[str | None] = []

    def notify(_: Subscription, __: News) -> None:
        causes.append(effect_key("your order has moved on"))

    source.paid = {"parcel": 1, "payment": 1}
    async with batch(source, notify) as one, batch(source, notify) as other:
        await one.subscribe("parcel")
        await other.subscribe("parcel")
        await other.subscribe("payment")
        await clock.sleep(61)

    assert len(set(causes)) == 3


@pytest.mark.parametrize(("before", "after"), [(3, 0), (0, 3)])
@pytest.mark.parametrize("comes_again", [False, True])
async def test_nobody_is_called_after_he_left_though_his_news_was_being_noted(
    clock: VirtualClock, source: Source, heard: Heard, before: float, after: float, *, comes_again: bool
) -> None:
    class Slow(MemorySubscriptions):
        """Notes later, or answers later: more than 500 are noted in several steps."""

        async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
            await clock.sleep(before)
            kept = await super().note_news(news)
            await clock.sleep(after)
            return kept

    source.paid = {"a": 1, "b": 2}
    kept = Slow(clock)
    async with batch(source, heard.notify, interval=5, subscriptions=kept) as poller:
        await poller.subscribe("a")
        await poller.subscribe("b")
        await clock.sleep(1)
        assert await poller.unsubscribe("a")
        if comes_again:
            await poller.subscribe("a", {"again": True})
        await clock.sleep(30)

    assert sorted(heard.keys) == (["a", "b"] if comes_again else ["b"])
    assert await kept.count() == 0


async def test_callbacks_that_heed_no_deadline_give_their_places_back(
    clock: VirtualClock, source: Source, heard: Heard
) -> None:
    over = asyncio.Event()

    async def notify(subscription: Subscription, news: News) -> None:
        while subscription.key.startswith("stubborn") and not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()
        await heard.notify(subscription, news)

    source.paid = {f"stubborn {number}": 1 for number in range(16)} | {"a": 1}
    async with batch(source, notify) as poller:
        for key in source.paid:
            await poller.subscribe(key)
        await clock.sleep(59)
        assert heard.keys == []
        await clock.sleep(3)
        assert heard.keys == ["a"]
        over.set()


async def test_who_is_tried_again_goes_behind_who_was_not_told_yet(
    clock: VirtualClock, source: Source
) -> None:
    calls: list[str] = []

    async def notify(subscription: Subscription, _: News) -> None:
        calls.append(subscription.key)
        await clock.sleep(6)
        if int(subscription.key) < 16:
            raise ValueError

    source.paid = {str(number): 1 for number in range(64)}
    async with batch(source, notify, interval=0.5, batch_size=100) as poller:
        for key in source.paid:
            await poller.subscribe(key)
        await clock.sleep(11.5)  # the first are to be tried again since 11 s
        source.paid["99"] = 1
        await poller.subscribe("99")
        await clock.sleep(30)

    assert calls[:65] == list(source.paid)
    assert calls[65:81] == list(source.paid)[:16]


async def test_a_callback_may_stop_the_poller_and_is_not_called_again_after_the_next_start(
    clock: VirtualClock, source: Source
) -> None:
    calls: list[str] = []

    async def notify(subscription: Subscription, _: News) -> None:
        calls.append(subscription.key)
        await poller.stop()
        await clock.sleep(1)

    source.paid = {"a": 1}
    kept = MemorySubscriptions(clock)
    poller = batch(source, notify, subscriptions=kept)
    await poller.start()
    await poller.subscribe("a")
    await clock.sleep(5)
    assert (poller.is_running, await kept.count()) == (False, 0)
    async with poller:
        await clock.sleep(5)
        assert poller.is_leading

    assert calls == ["a"]


async def test_two_who_wait_and_are_cancelled_leave_no_subscription(
    clock: VirtualClock, source: Source
) -> None:
    kept = MemorySubscriptions(clock)
    async with batch(source, subscriptions=kept) as poller:
        waits = [asyncio.create_task(poller.wait("a")) for _ in range(2)]
        await clock.sleep(1)
        waits[0].cancel()
        await clock.sleep(1)
        assert await kept.count() == 1
        waits[1].cancel()
        await clock.sleep(1)
        assert await kept.count() == 0
        theirs = asyncio.create_task(poller.wait("b"))
        await clock.sleep(1)
        await poller.subscribe("b")
        theirs.cancel()
        await clock.sleep(1)
        assert await kept.count() == 1, "somebody has subscribed to it"
