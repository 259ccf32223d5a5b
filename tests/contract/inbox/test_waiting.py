"""A waiting dispatcher is woken in time, and settled items leave nothing behind."""

import asyncio
from collections import deque

import pytest

from contract.inbox.inbox_driver import BOT, InboxDriver, arrival, keys
from contract.inbox.inboxes import StoredInbox
from tidegate.inbound.inbox import DEDUP_SECONDS, ClaimedItem

SOON = 1.1  # seconds: looking once a second is soon enough


async def waits_then(driver: InboxDriver, *what: object) -> list[ClaimedItem]:
    """Wait for five seconds, then let it happen. It is claimed soon after."""
    started = driver.clock.monotonic()
    waiting = asyncio.create_task(driver.next())
    await driver.clock.sleep(5)
    assert not waiting.done()
    for step in what:
        await step  # type: ignore[misc]
    found = await waiting
    assert driver.clock.monotonic() - started < 5 + SOON
    return found


async def test_whoever_waits_is_woken_by_an_arrival(driver: InboxDriver) -> None:
    assert keys(await waits_then(driver, driver.accept("1"))) == ["1"]


async def test_whoever_waits_is_woken_when_a_lane_is_free(driver: InboxDriver) -> None:
    await driver.accept("1", "2")
    first = await driver.claim_one()

    assert keys(await waits_then(driver, driver.inbox.done([first]))) == ["2"]


async def test_whoever_waits_is_woken_by_one_that_comes_back(driver: InboxDriver) -> None:
    await driver.accept("1")
    first = await driver.claim_one()

    assert keys(await waits_then(driver, driver.inbox.release(first))) == ["1"]


async def test_whoever_waits_is_woken_when_a_lane_goes_on_past_a_parked_one(driver: InboxDriver) -> None:
    await driver.accept("1", "2")
    first = await driver.claim_one()

    assert keys(await waits_then(driver, driver.inbox.park(first, "no"))) == ["2"]


async def test_whoever_waits_is_woken_by_one_that_is_replayed(driver: InboxDriver) -> None:
    await driver.accept("1")
    await driver.inbox.park(await driver.claim_one(), "no")

    assert keys(await waits_then(driver, driver.inbox.replay(BOT, "1"))) == ["1"]


@pytest.mark.parametrize("while_waiting", [False, True])
async def test_whoever_waits_is_woken_when_the_time_of_a_next_try_has_come(
    driver: InboxDriver, *, while_waiting: bool
) -> None:
    await driver.accept("1")
    first = await driver.claim_one()
    again = driver.inbox.release(first, after=30, failed=True)
    started = driver.clock.monotonic()
    if not while_waiting:
        await again
    waiting = asyncio.create_task(driver.next())
    await driver.clock.sleep(0)
    if while_waiting:
        await again

    assert keys(await waiting) == ["1"]
    assert 30 <= driver.clock.monotonic() - started < 30 + SOON


async def test_what_came_before_the_wait_is_not_missed(driver: InboxDriver) -> None:
    assert await driver.claim() == []
    await driver.accept("1")

    async with driver.clock.timeout(SOON):
        await driver.inbox.wait()

    assert keys(await driver.claim()) == ["1"]


async def test_a_claim_that_nobody_waits_for_any_more_goes_back(driver: InboxDriver) -> None:
    await driver.accept("1")
    cancelled = 0
    for moments in range(20):  # it may come to any place in a claim
        claiming = asyncio.create_task(driver.claim())
        for _ in range(moments):
            await driver.clock.sleep(0)
        claiming.cancel()
        [found] = await asyncio.gather(claiming, return_exceptions=True)
        cancelled += isinstance(found, BaseException)
        async with driver.clock.timeout(SOON):
            held = await driver.next() if isinstance(found, BaseException) else found
        assert keys(held) == ["1"]
        await driver.inbox.release(held[0])

    assert cancelled
    assert await driver.counts() == (1, 0, 0)


async def test_a_name_can_be_leased_and_given_back(driver: InboxDriver) -> None:
    assert await driver.inbox.leases.lease("polling:42", 6)
    assert await driver.inbox.leases.lease("polling:42", 6)
    await driver.inbox.leases.give_back("polling:42")
    assert await driver.inbox.leases.lease("polling:42", 6)


async def test_nothing_is_left_in_memory_when_everything_was_handled(
    driver: InboxDriver, stored: StoredInbox
) -> None:
    for start in range(0, 300, 50):
        await driver.inbox.accept([arrival(str(n), str(n % 100)) for n in range(start, start + 50)])
    for round_ in range(2):
        for held in await driver.claim(20):
            await driver.inbox.release(held, after=0.5 * round_, failed=True)
    await driver.inbox.park(await driver.claim_one(), "no")
    await driver.inbox.drop(BOT, (await driver.parked() or ["-"])[0])
    await driver.clock.sleep(1)
    assert len(await driver.handle_all()) == 299

    await driver.clock.sleep(60 if stored.own_time else DEDUP_SECONDS + 1)
    await driver.accept("last")
    await driver.handle_all()

    assert await driver.counts() == (0, 0, 0)
    assert remembered(driver.inbox) < 20


def remembered(thing: object) -> int:
    """Return the number of things in the inbox's own containers."""
    if isinstance(thing, dict):
        return len(thing) + sum(map(remembered, thing.values()))
    if isinstance(thing, list | set | deque | tuple):
        return len(thing) + sum(map(remembered, thing))
    if type(thing).__module__.startswith("tidegate.inbound.inbox") and hasattr(thing, "__dict__"):
        return sum(map(remembered, vars(thing).values()))
    return 0
