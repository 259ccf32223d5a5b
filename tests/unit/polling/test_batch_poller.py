"""Batch polling: all keys are asked for, a failed batch affects no other, cycles never overlap."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from tidegate.errors import BadInputError, UpstreamAwayError, UpstreamRefusedError
from tidegate.polling.batch import BatchPoller
from tidegate.polling.subscriptions import News, Subscription
from tidegate.sim.virtual_time import VirtualClock
from unit.polling.polled import Heard, Source

AWAY = UpstreamAwayError("it is down", api="api", method="GET", endpoint="records")


def refused(status: int) -> UpstreamRefusedError:
    return UpstreamRefusedError("no", api="api", method="GET", endpoint="records", status=status)


@pytest.fixture
async def source(clock: VirtualClock) -> Source:
    return Source(clock)


@pytest.fixture
async def heard(clock: VirtualClock) -> Heard:
    return Heard(clock)


Make = Callable[..., BatchPoller]


@pytest.fixture
async def make(clock: VirtualClock, source: Source, heard: Heard) -> AsyncIterator[Make]:
    made: list[BatchPoller] = []

    def make_one(**options: Any) -> BatchPoller:  # noqa: ANN401
        poller = BatchPoller(source.fetch, **{"clock": clock, "notify": heard.notify, **options})
        made.append(poller)
        return poller

    yield make_one
    for poller in made:
        await poller.stop()


async def test_each_of_300_is_told_once_within_a_minute_of_his_payment(
    clock: VirtualClock, source: Source, heard: Heard, make: Make
) -> None:
    async with make() as poller:
        keys = [f"rec_{number}" for number in range(300)]
        for key in keys:
            await poller.subscribe(key, {"user_id": 7})
        paid_at = {}
        for key in keys:
            await clock.sleep(0.5)
            source.paid[key], paid_at[key] = {"Paid": 1}, clock.monotonic()
        await clock.sleep(70)

    assert sorted(heard.calls, key=lambda call: call[0]) == [(key, {"Paid": 1}) for key in sorted(keys)]
    assert max(heard.at[key] - paid_at[key] for key in keys) < 61
    assert poller.stats().active_subscriptions == 0
    assert poller.stats().told == 300


async def test_300_subscribers_cost_15_requests_per_cycle(clock: VirtualClock, make: Make) -> None:
    async with make() as poller:
        for number in range(300):
            await poller.subscribe(str(number))
        await clock.sleep(54.5 * 9 + 30)  # a cycle of 15 batches may take 4.5 s
        stats = poller.stats()

    assert (stats.cycles, stats.batches, stats.requests, stats.average_batch_size) == (10, 150, 150, 20.0)
    assert (stats.requests_avoided, stats.reduction) == (2_850, 95.0)


async def test_a_batch_that_failed_is_asked_for_again_alone_and_the_others_are_not_touched(
    clock: VirtualClock, source: Source, heard: Heard, make: Make
) -> None:
    poller = make(batch_size=2)
    for key in "abcdef":
        await poller.subscribe(key)
        source.paid[key] = True
    source.failing["c"] = AWAY
    async with poller:
        await clock.sleep(10)
        assert sorted(heard.keys) == ["a", "b", "e", "f"]
        assert [keys for _, keys in source.asked] == [["a", "b"], ["c", "d"], ["e", "f"], ["c", "d"]]
        del source.failing["c"]
        await clock.sleep(60)

    assert sorted(heard.keys) == ["a", "b", "c", "d", "e", "f"]
    again, keys = source.asked[-1]
    assert 55 < again < 60
    assert keys == ["c", "d"]


async def test_a_key_that_the_api_refuses_does_not_spoil_it_for_its_batch(
    clock: VirtualClock, source: Source, heard: Heard, make: Make
) -> None:
    poller = make(batch_size=20)
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        await poller.subscribe(key)
        source.paid[key] = True
    source.failing["k13"] = refused(422)
    async with poller:
        await clock.sleep(10)

    assert sorted(heard.keys) == sorted(set(keys) - {"k13"})
    assert len(source.asked) < 12


async def test_a_bad_token_is_not_tried_twice_in_a_cycle_and_told_once(
    clock: VirtualClock, source: Source, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    poller = make()
    await poller.subscribe("a")
    source.failing["a"] = refused(401)
    async with poller:
        await clock.sleep(200)
        assert len(source.asked) == 4
        assert poller.is_running
        source.failing.clear()
        await clock.sleep(60)

    warnings = [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert len(warnings) == 2
    assert "401" in warnings[0]
    assert "again" in warnings[1]


async def test_cycles_never_overlap_and_begin_early_enough_for_the_interval(
    clock: VirtualClock, source: Source, make: Make
) -> None:
    poller = make(interval=10)
    await poller.subscribe("a")
    async with poller:
        await clock.sleep(25)
        source.takes = 25.0
        await clock.sleep(50)
        source.takes = 0.1
        await clock.sleep(40)

    assert source.most_at_once == 1
    assert source.times_of("a")[:3] == pytest.approx([0.0, 8.7, 17.4])
    assert source.times_of("a")[3:6] == pytest.approx(
        [26.1, 51.1, 76.1]
    )  # late: at once, never beside itself


async def test_at_most_eight_requests_are_under_way(clock: VirtualClock, source: Source, make: Make) -> None:
    poller = make(batch_size=1)
    for number in range(50):
        await poller.subscribe(str(number))
    async with poller:
        await clock.sleep(5)

    assert source.most_at_once == 8
    assert len(source.asked) == 50


async def test_no_request_asks_for_more_than_fits(clock: VirtualClock) -> None:
    sizes: list[int] = []

    class Fetch:
        def most(self, keys: Sequence[str]) -> int:
            return min(7, len(keys))

        async def __call__(self, keys: Sequence[str]) -> dict[str, Any]:
            sizes.append(len(keys))
            return {}

    poller = BatchPoller(Fetch(), clock=clock)
    for number in range(20):
        await poller.subscribe(str(number))
    async with poller:
        await clock.sleep(1)

    assert sizes == [7, 7, 6]


async def test_keys_that_nobody_asked_for_are_ignored_with_one_warning(
    clock: VirtualClock, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    async def fetch(keys: Sequence[str]) -> dict[str, Any]:
        return {"stranger": True, **dict.fromkeys(keys, False)}

    async with BatchPoller(fetch, clock=clock, notify=heard.notify) as poller:
        await poller.subscribe("a")
        await clock.sleep(150)

    assert heard.calls == []
    assert [entry.getMessage() for entry in caplog.records if "stranger" in entry.getMessage()] == [
        "poller: fetch returned keys that it was not asked for, ignored: 'stranger'"
    ]


async def test_an_answer_that_is_no_mapping_is_said_and_polling_goes_on(
    clock: VirtualClock, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = [["a"], None, {"a": 1}]

    async def fetch(_: Sequence[str]) -> Any:  # noqa: ANN401
        return answers.pop(0)

    async with BatchPoller(fetch, clock=clock, notify=heard.notify) as poller:
        await poller.subscribe("a")
        await clock.sleep(150)

    assert heard.calls == [("a", 1)]
    assert "fetch returned list: return a dict of keys that came true" in caplog.text


async def test_a_fetch_that_never_returns_is_given_up_and_asked_again(
    clock: VirtualClock, source: Source, heard: Heard
) -> None:
    hanging = [True]

    async def fetch(keys: Sequence[str]) -> dict[str, Any]:
        if hanging and hanging.pop():
            await asyncio.Event().wait()
        return await source.fetch(keys)

    source.paid["a"] = True
    async with BatchPoller(fetch, clock=clock, notify=heard.notify) as poller:
        await poller.subscribe("a")
        await clock.sleep(310)

    assert heard.keys == ["a"]


async def test_a_fetch_whose_own_work_was_cancelled_does_not_end_the_polling(
    clock: VirtualClock, source: Source, heard: Heard
) -> None:
    async def fetch(keys: Sequence[str]) -> dict[str, Any]:
        if not source.asked:
            source.asked.append((0.0, []))
            raise asyncio.CancelledError
        return await source.fetch(keys)

    source.paid["a"] = True
    async with BatchPoller(fetch, clock=clock, notify=heard.notify) as poller:
        await poller.subscribe("a")
        await clock.sleep(10)
        assert poller.is_running

    assert heard.keys == ["a"]


async def test_a_value_that_cannot_be_kept_does_not_keep_the_others_from_being_told(
    clock: VirtualClock, source: Source, heard: Heard, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    poller = make()
    for key in "abc":
        await poller.subscribe(key)
        source.paid[key] = object() if key == "b" else key
    async with poller:
        await clock.sleep(130)

    assert sorted(heard.keys) == ["a", "c"]
    assert (
        len([entry for entry in caplog.records if "cannot store the news of 'b'" in entry.getMessage()]) == 1
    )


async def test_who_unsubscribes_is_not_told(
    clock: VirtualClock, source: Source, heard: Heard, make: Make
) -> None:
    async with make() as poller:
        await poller.subscribe("a")
        await poller.subscribe("b")
        await clock.sleep(5)
        assert await poller.unsubscribe("a")
        assert not await poller.unsubscribe("a")
        source.paid = {"a": 1, "b": 2}
        await clock.sleep(120)

    assert heard.calls == [("b", 2)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "a batch of 0 asks for nothing"),
        ({"batch_size": 2.5}, "a batch of 2.5"),
        ({"interval": -1}, "an interval of -1 s: give"),
        ({"interval": 0}, "above 0"),
        ({"interval": float("nan")}, "not nan"),
        ({"interval": float("inf")}, "not inf"),
        ({"interval": "60"}, "not '60'"),
        ({"fetch": None}, "fetch is None: give an async function"),
        ({"name": ""}, "the name of a poller is empty"),
        ({"notify": "me"}, "notify is 'me': give a function"),
        ({"restore_group": 0}, "a group of 0 restores nobody"),
        ({"restore_every": -1.0}, "-1.0 seconds between groups"),
        ({"on_progress": 3}, "on_progress is 3"),
    ],
)
async def test_bad_input_is_refused_with_what_to_give(
    clock: VirtualClock, source: Source, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadInputError) as refusal:
        BatchPoller(**{"fetch": source.fetch, "clock": clock, **options})
    assert text in str(refusal.value)


async def test_a_records_number_is_a_key_too(make: Make, source: Source) -> None:
    async with make() as poller:
        await poller.subscribe(11)
        assert await poller.unsubscribe(11)
        source.paid = {"12": "row"}
        assert await poller.wait(12) == "row"


@pytest.mark.parametrize("key", ["", True, None, "x" * 1_000])
async def test_a_bad_key_is_refused(make: Make, key: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInputError):
        await make().subscribe(key)


async def test_a_callback_that_is_none_is_refused(make: Make) -> None:
    with pytest.raises(BadInputError, match="callback is 3: give a function"):
        await make().subscribe("a", callback=3)  # type: ignore[arg-type]


async def test_a_callback_of_his_own_is_called_instead_of_notify(
    clock: VirtualClock, source: Source, heard: Heard, make: Make
) -> None:
    own: list[Any] = []

    def callback(subscription: Subscription, news: News) -> None:  # need not be async
        own.append((subscription.data, news.value))

    async with make() as poller:
        await poller.subscribe("a", {"chat": 5}, callback=callback)
        source.paid["a"] = 9
        await clock.sleep(70)
        assert poller._notifier.callbacks == {}  # noqa: SLF001  (it must shrink)

    assert own == [({"chat": 5}, 9)]
    assert heard.calls == []


async def test_one_bad_key_does_not_stop_the_others_and_is_reported(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    source, heard = Source(clock), Heard(clock)

    class Fetch:
        async def __call__(self, keys: Sequence[str]) -> dict[str, Any]:
            self.most(keys)
            return await source.fetch(keys)

        def most(self, keys: Sequence[str]) -> int:
            if "bad" in keys:
                raise BadInputError("'bad' cannot be said")
            return len(keys)

    async with BatchPoller(Fetch(), 10, clock=clock, notify=heard.notify) as poller:
        for key in ("a", "bad", "b"):
            await poller.subscribe(key)
        source.paid = {"a": 1, "b": 2}
        await clock.sleep(60)

    assert heard.keys == ["a", "b"]
    assert caplog.text.count("'bad' cannot be said") == 1
