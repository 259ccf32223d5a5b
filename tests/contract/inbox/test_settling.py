"""Claimed items are done, go back to their lane, or are parked until an operator decides."""

import pytest

from contract.inbox.inbox_driver import BOT, OTHER_BOT, InboxDriver, arrival, keys, set_bound
from tidegate.inbound.inbox import InboxSource


async def test_what_is_released_is_at_the_head_of_its_lane_again(driver: InboxDriver) -> None:
    await driver.accept("1", "2")

    await driver.inbox.release(await driver.claim_one())

    held = await driver.claim_one()
    assert (held.item.key, held.attempts, held.crashes) == ("1", 0, 0)
    await driver.inbox.done([held])
    assert await driver.handle_all() == ["2"]


async def test_a_failure_is_counted(driver: InboxDriver) -> None:
    await driver.accept("1")

    for attempts in range(3):
        held = await driver.claim_one()
        assert held.attempts == attempts
        await driver.inbox.release(held, failed=True)

    assert (await driver.claim_one()).attempts == 3


async def test_what_shall_wait_is_not_given_before_its_time_and_nothing_behind_it(
    driver: InboxDriver,
) -> None:
    await driver.accept("1", "2")
    await driver.accept("3", lane="b")
    await driver.inbox.release(await driver.claim_one(), after=30, failed=True)

    assert keys(await driver.claim()) == ["3"]
    await driver.clock.sleep(29)
    assert await driver.claim() == []
    await driver.clock.sleep(1.1)

    assert keys(await driver.claim()) == ["1"]


async def test_what_comes_meanwhile_waits_behind_what_shall_wait(driver: InboxDriver) -> None:
    await driver.accept("1")
    await driver.inbox.release(await driver.claim_one(), after=30)

    await driver.accept("2")

    assert await driver.claim() == []
    await driver.clock.sleep(31)
    assert await driver.handle_all() == ["1", "2"]


async def test_what_is_not_held_any_more_cannot_be_done(driver: InboxDriver) -> None:
    await driver.accept("1", "2")
    first = await driver.claim_one()
    await driver.inbox.release(first)

    await driver.inbox.done([first])

    again = await driver.claim_one()
    assert again.item.key == "1"
    await driver.inbox.done([again])
    await driver.inbox.done([again, again])
    assert keys(await driver.claim()) == ["2"]
    assert await driver.claim() == []


async def test_what_is_not_held_any_more_cannot_be_released(driver: InboxDriver) -> None:
    await driver.accept("1", "2")
    first = await driver.claim_one()
    await driver.inbox.done([first])
    second = await driver.claim_one()

    await driver.inbox.release(first)

    assert await driver.claim() == []
    await driver.inbox.done([second])
    assert await driver.counts() == (0, 0, 0)


async def test_what_is_not_held_any_more_cannot_be_parked(driver: InboxDriver) -> None:
    await driver.accept("1")
    first = await driver.claim_one()
    await driver.inbox.release(first)

    await driver.inbox.park(first, "too late")

    assert await driver.parked() == []
    assert await driver.handle_all() == ["1"]


async def test_a_lane_goes_on_when_one_of_it_is_parked(driver: InboxDriver) -> None:
    await driver.accept("1", "2")
    arrived_at = driver.clock.now()
    await driver.clock.sleep(5)

    await driver.inbox.park(await driver.claim_one(), "ValueError: no")

    assert keys(await driver.claim()) == ["2"]
    [parked] = await driver.inbox.parked()
    assert (parked.item, parked.reason) == (arrival("1"), "ValueError: no")
    assert parked.arrived_at == pytest.approx(arrived_at)
    assert parked.parked_at == pytest.approx(driver.clock.now())


async def park(driver: InboxDriver, *keys: str, source: InboxSource = BOT) -> None:
    for key in keys:
        await driver.accept(key, source=source)
        [held] = await driver.claim(1, sources=[source])
        await driver.inbox.park(held, "no")
        await driver.clock.sleep(1)


async def test_parked_ones_are_listed_the_newest_first(driver: InboxDriver) -> None:
    await park(driver, "1", "2")
    await park(driver, "3", source=OTHER_BOT)
    await park(driver, "4")

    assert await driver.parked() == ["4", "3", "2", "1"]
    assert await driver.parked(BOT) == ["4", "2", "1"]
    assert await driver.parked(limit=2) == ["4", "3"]
    assert await driver.parked(BOT, limit=2) == ["4", "2"]


async def test_a_parked_one_that_is_replayed_waits_behind_its_lane_with_a_clean_record(
    driver: InboxDriver,
) -> None:
    await driver.accept("1", "2", "3")
    await driver.inbox.release(await driver.claim_one(), failed=True)
    await driver.inbox.park(await driver.claim_one(), "no")

    assert await driver.inbox.replay(BOT, "1")

    assert await driver.parked() == []
    for key in ("2", "3"):
        found = await driver.claim()
        assert keys(found) == [key]
        await driver.inbox.done(found)
    [held] = await driver.claim()
    assert (held.item, held.attempts, held.crashes) == (arrival("1"), 0, 0)


async def test_what_is_not_parked_cannot_be_replayed_or_dropped(driver: InboxDriver) -> None:
    await park(driver, "1")
    await driver.accept("2")

    assert not await driver.inbox.replay(OTHER_BOT, "1")
    assert not await driver.inbox.replay(BOT, "2")
    assert not await driver.inbox.drop(BOT, "2")
    assert await driver.inbox.replay(BOT, "1")
    assert not await driver.inbox.replay(BOT, "1")
    assert await driver.handle_all() == ["2", "1"]


async def test_a_parked_one_that_is_dropped_is_gone(driver: InboxDriver) -> None:
    await park(driver, "1", "2")

    assert await driver.inbox.drop(BOT, "1")

    assert await driver.parked() == ["2"]
    assert not await driver.inbox.drop(BOT, "1")
    assert await driver.claim() == []


async def test_of_too_many_parked_ones_of_a_source_the_oldest_are_forgotten(
    driver: InboxDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_PARKED_PER_SOURCE", 2)
    await park(driver, "other", source=OTHER_BOT)

    await park(driver, "1", "2", "3")

    assert await driver.parked() == ["3", "2", "other"]


async def test_stats_tell_how_many_are_where(driver: InboxDriver) -> None:
    await park(driver, "0")
    await driver.accept("1", "2", "3", lane="a")
    await driver.accept("4", lane="b")

    found = await driver.claim()

    assert await driver.counts() == (2, 2, 1)
    await driver.inbox.done(found)
    assert await driver.counts() == (2, 0, 1)
    await driver.inbox.release(await driver.claim_one(), after=60)
    assert await driver.counts() == (2, 0, 1)
