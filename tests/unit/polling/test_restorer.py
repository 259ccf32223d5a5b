"""After a restart all subscriptions are polled for again, in groups, with progress."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from tidegate.errors import BadInputError, ClosedError, UpstreamAwayError
from tidegate.polling.batch import BatchPoller
from tidegate.polling.per_user import UserPoller
from tidegate.polling.restorer import RestoreResult, RestoreStep, group_for, show
from tidegate.polling.subscriptions import MemorySubscriptions, News, Subscription
from tidegate.sim.virtual_time import VirtualClock
from unit.polling.polled import Disk, Heard, Source


def people(count: int) -> list[Subscription]:
    return [
        Subscription(f"rec_{number}", {"user_id": 12_344 + number, "username": f"user{number}"})
        for number in range(1, count + 1)
    ]


async def stored(clock: VirtualClock, subscriptions: Iterable[Subscription]) -> MemorySubscriptions:
    kept = MemorySubscriptions(clock)
    await kept.add(list(subscriptions))
    return kept


@pytest.fixture
async def source(clock: VirtualClock) -> Source:
    return Source(clock)


@pytest.mark.parametrize(
    ("users", "seconds"), [(45, 4), (50, 4), (100, 9), (200, 13), (300, 14), (2_000, 14)]
)
async def test_all_are_restored_from_the_store_a_group_per_second(
    clock: VirtualClock, source: Source, users: int, seconds: int
) -> None:
    kept = await stored(clock, people(users))
    async with BatchPoller(source.fetch, clock=clock, subscriptions=kept, restore=False) as poller:
        await clock.sleep(3)
        assert not poller.waiting
        restored = await poller.restore()
        assert len(poller.waiting) == users

    assert restored == RestoreResult(users, users, 0, seconds, seconds + 1)


async def test_a_start_restores_by_itself_in_the_background(clock: VirtualClock, source: Source) -> None:
    kept, steps = await stored(clock, people(45)), list[RestoreStep]()
    poller = BatchPoller(
        source.fetch,
        clock=clock,
        subscriptions=kept,
        restore_group=20,
        restore_every=2,
        on_progress=steps.append,
    )
    async with poller:
        seen = []
        for _ in range(3):
            await clock.sleep(1.9)
            seen.append(len(poller.waiting))

    assert seen == [20, 40, 45]
    assert [(step.what, step.done) for step in steps if step.what in {"pause", "end"}] == [
        ("pause", 20),
        ("pause", 40),
        ("end", 45),
    ]


async def test_from_a_data_source_those_who_are_not_waiting_already(
    clock: VirtualClock, source: Source
) -> None:
    async def unpaid() -> AsyncIterator[Subscription]:
        for one in people(45):
            yield one

    async with BatchPoller(source.fetch, clock=clock) as poller:
        await poller.subscribe("rec_7", {"mine": True})
        restored = await poller.restore(unpaid(), group=15, every=0.5)
        again = await poller.restore(people(45))
        await clock.sleep(60)
        assert len(poller.waiting) == 45
        assert poller.waiting["rec_7"].data == {"mine": True}
        assert poller.waiting["rec_8"].since > 0

    assert restored == RestoreResult(45, 44, 1, 1.0, 3)
    assert again == RestoreResult(45, 0, 45, 0.0, 0)


async def test_a_source_that_fails_in_the_middle_leaves_who_was_restored_and_may_be_read_again(
    clock: VirtualClock, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> AsyncIterator[Subscription]:
        for one in people(25):
            yield one
        raise UpstreamAwayError("it is down", api="api", method="GET", endpoint="records")

    async with BatchPoller(source.fetch, clock=clock) as poller:
        with pytest.raises(UpstreamAwayError) as failure:
            await poller.restore(broken())
        assert failure.value.__notes__ == [
            "25 of 25 read before are restored: call restore() again for the rest"
        ]
        restored = await poller.restore(people(45))

    assert restored == RestoreResult(45, 20, 25, 1.0, 2)
    assert "the source of subscriptions failed: UpstreamAwayError" in caplog.text


async def test_progress_reads_as_people_know_it(clock: VirtualClock, source: Source) -> None:
    lines: list[str] = []
    found = [*people(11), Subscription("rec_12", {"user_id": 5}), Subscription("rec_13")]
    async with BatchPoller(source.fetch, clock=clock) as poller:
        await poller.restore(found, on_progress=show("awaiting_payment", write=lines.append))

    text = "\n".join(lines)
    assert text.startswith(
        "🔄 Restoring 13 users in state 'awaiting_payment':\n   ✓ User 12345 (@user1) - record rec_1\n"
    )
    assert text.endswith("""\
   ✓ User 12354 (@user10) - record rec_10
   ⏱️  Staggering polling start (10/13 users restored)...

   ✓ User 12355 (@user11) - record rec_11
   ✓ User 5 - record rec_12
   ✓ Record rec_13

✅ Started polling for 13 users""")


async def test_a_progress_that_fails_does_not_keep_anybody_from_being_restored(
    clock: VirtualClock, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_progress(_: RestoreStep) -> None:
        raise ValueError("no screen")

    async with BatchPoller(source.fetch, clock=clock) as poller:
        assert (await poller.restore(people(5), on_progress=on_progress)).restored == 5

    assert caplog.text.count("on_progress failed and is not called again: ValueError: no screen") == 1


async def test_one_by_one_the_first_requests_after_a_restore_come_steadily(clock: VirtualClock) -> None:
    source = Source(clock)
    kept = await stored(clock, people(300))
    async with UserPoller(source.fetch_one, clock=clock, subscriptions=kept):
        await clock.sleep(200)

    times = [at for at, _ in source.asked]
    late = [at for at in times if at >= 95]  # all are restored, and their first time has come
    assert max(sum(1 for at in late if begin <= at < begin + 1) for begin in late) <= 7
    assert max(sum(1 for at in times if begin <= at < begin + 1) for begin in times) <= 10


async def test_what_is_to_be_told_is_told_before_anybody_is_asked_about(
    clock: VirtualClock, source: Source
) -> None:
    disk, heard = Disk(clock), Heard(clock)
    await disk.kept.add(people(100))
    await disk.kept.note_news([News("rec_99", "paid")])
    async with BatchPoller(source.fetch, clock=clock, subscriptions=disk.process(), notify=heard.notify):
        await clock.sleep(0.05)
        assert heard.calls == [("rec_99", "paid")]
        await clock.sleep(70)

    assert heard.calls == [("rec_99", "paid")]
    assert source.times_of("rec_99") == []


async def test_who_leaves_or_subscribes_anew_while_others_are_restored_is_not_restored(
    clock: VirtualClock, source: Source
) -> None:
    kept = await stored(clock, people(30))
    async with BatchPoller(source.fetch, interval=1, clock=clock, subscriptions=kept) as poller:
        await clock.sleep(0.5)
        await poller.unsubscribe("rec_25")
        await poller.subscribe("rec_26", {"new": True})
        await clock.sleep(10)
        assert len(poller.waiting) == 29
        assert poller.waiting["rec_26"].data == {"new": True}


@pytest.mark.parametrize(("group", "every"), [(0, 1), (-5, 1), (2.5, 1), (10, -1), (10, float("nan"))])
async def test_bad_numbers_are_refused(clock: VirtualClock, source: Source, group: int, every: float) -> None:
    with pytest.raises(BadInputError):
        await BatchPoller(source.fetch, clock=clock).restore([], group=group, every=every)


async def test_a_poller_that_does_not_run_restores_from_a_source_only(
    clock: VirtualClock, source: Source
) -> None:
    poller = BatchPoller(source.fetch, clock=clock)
    assert (await poller.restore(people(5))).restored == 5
    with pytest.raises(ClosedError, match="start"):
        await poller.restore()
    with pytest.raises(BadInputError, match="yields Subscription"):
        await poller.restore(["rec_1"])  # type: ignore[list-item]


async def test_two_processes_that_restore_at_once_tell_nobody_twice_and_fresh_data_stay(
    clock: VirtualClock, source: Source
) -> None:
    disk, heard, found = Disk(clock), Heard(clock), people(100)
    pollers = [
        BatchPoller(source.fetch, 1, clock=clock, notify=heard.notify, subscriptions=disk.process())
        for _ in range(2)
    ]

    async def late() -> RestoreResult:
        await clock.sleep(0.5)
        return await pollers[1].restore(found)

    async with pollers[0], pollers[1]:
        await clock.sleep(1)
        restoring = asyncio.gather(pollers[0].restore(found), late())
        await clock.sleep(0.6)
        await pollers[0].subscribe("rec_100", {"fresh": True})
        for one in reversed(found[:-1]):
            source.paid[one.key] = 1
            await clock.sleep(0.1)
        first, second = await restoring
        await clock.sleep(5)
        assert pollers[0].waiting["rec_100"].data == {"fresh": True}

    assert (first.restored, second.restored) == (100, 0)
    assert sorted(heard.keys) == sorted(one.key for one in found[:-1])


async def test_all_are_in_the_store_at_once_and_admitted_in_groups(
    clock: VirtualClock, source: Source
) -> None:
    kept = MemorySubscriptions(clock)
    async with BatchPoller(source.fetch, 0.5, clock=clock, subscriptions=kept) as poller:
        await clock.sleep(0.1)
        restoring = asyncio.create_task(poller.restore(people(30)))
        await clock.sleep(0.1)
        assert await kept.count() == 30
        seen = []
        for _ in range(3):
            await clock.sleep(1)
            seen.append(len(poller.waiting))
        restoring.cancel()
        await clock.sleep(1)

    assert seen == [20, 30, 30]


async def test_who_was_not_yet_admitted_when_a_restore_is_cancelled_waits_all_the_same(
    clock: VirtualClock, source: Source
) -> None:
    async with BatchPoller(source.fetch, 0.5, clock=clock) as poller:
        await clock.sleep(0.1)
        restoring = asyncio.create_task(poller.restore(people(1_000), group=10))
        await clock.sleep(2)
        assert len(poller.waiting) < 100
        restoring.cancel()
        await clock.sleep(1)
        assert len(poller.waiting) == 1_000


@pytest.mark.parametrize(
    ("total", "group"),
    [(1, 10), (50, 10), (100, 10), (101, 15), (200, 15), (201, 20), (300, 20), (2_000, 134)],
)
def test_restart_groups_grow_with_the_number_of_people(total: int, group: int) -> None:
    assert group_for(total, 1.0) == group
