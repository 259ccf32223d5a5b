"""What becomes of what is held: done, back in its lane, or parked until somebody decides."""

import pytest

from contract.inbox.porch import BOT, OTHER_BOT, Porch, arrival, keys, set_bound
from tidegate.inbound.inbox import InboxSource

# --- back ---


async def test_what_is_released_is_at_the_head_of_its_lane_again(porch: Porch) -> None:
    await porch.accept("1", "2")

    await porch.inbox.release(await porch.claim_one())

    held = await porch.claim_one()
    assert (held.arrival.key, held.attempts, held.crashes) == ("1", 0, 0)
    await porch.inbox.done([held])
    assert await porch.handle_all() == ["2"]


async def test_a_failure_is_counted(porch: Porch) -> None:
    await porch.accept("1")

    for attempts in range(3):
        held = await porch.claim_one()
        assert held.attempts == attempts
        await porch.inbox.release(held, failed=True)

    assert (await porch.claim_one()).attempts == 3


async def test_what_shall_wait_is_not_given_before_its_time_and_nothing_behind_it(porch: Porch) -> None:
    await porch.accept("1", "2")
    await porch.accept("3", lane="b")
    await porch.inbox.release(await porch.claim_one(), after=30, failed=True)

    assert keys(await porch.claim()) == ["3"]
    await porch.clock.sleep(29)
    assert await porch.claim() == []
    await porch.clock.sleep(1.1)

    assert keys(await porch.claim()) == ["1"]


async def test_what_comes_meanwhile_waits_behind_what_shall_wait(porch: Porch) -> None:
    await porch.accept("1")
    await porch.inbox.release(await porch.claim_one(), after=30)

    await porch.accept("2")

    assert await porch.claim() == []
    await porch.clock.sleep(31)
    assert await porch.handle_all() == ["1", "2"]


# --- done ---


async def test_what_is_not_held_any_more_cannot_be_done(porch: Porch) -> None:
    await porch.accept("1", "2")
    first = await porch.claim_one()
    await porch.inbox.release(first)

    await porch.inbox.done([first])

    again = await porch.claim_one()
    assert again.arrival.key == "1"
    await porch.inbox.done([again])
    await porch.inbox.done([again, again])
    assert keys(await porch.claim()) == ["2"]
    assert await porch.claim() == []


async def test_what_is_not_held_any_more_cannot_be_released(porch: Porch) -> None:
    await porch.accept("1", "2")
    first = await porch.claim_one()
    await porch.inbox.done([first])
    second = await porch.claim_one()

    await porch.inbox.release(first)

    assert await porch.claim() == []
    await porch.inbox.done([second])
    assert await porch.counts() == (0, 0, 0)


async def test_what_is_not_held_any_more_cannot_be_parked(porch: Porch) -> None:
    await porch.accept("1")
    first = await porch.claim_one()
    await porch.inbox.release(first)

    await porch.inbox.park(first, "too late")

    assert await porch.parked() == []
    assert await porch.handle_all() == ["1"]


# --- parked ---


async def test_a_lane_goes_on_when_one_of_it_is_parked(porch: Porch) -> None:
    await porch.accept("1", "2")
    arrived_at = porch.clock.now()
    await porch.clock.sleep(5)

    await porch.inbox.park(await porch.claim_one(), "ValueError: no")

    assert keys(await porch.claim()) == ["2"]
    [parked] = await porch.inbox.parked()
    assert (parked.arrival, parked.reason) == (arrival("1"), "ValueError: no")
    assert parked.arrived_at == pytest.approx(arrived_at)
    assert parked.parked_at == pytest.approx(porch.clock.now())


async def park(porch: Porch, *keys: str, source: InboxSource = BOT) -> None:
    for key in keys:
        await porch.accept(key, source=source)
        [held] = await porch.claim(1, sources=[source])
        await porch.inbox.park(held, "no")
        await porch.clock.sleep(1)


async def test_parked_ones_are_listed_the_newest_first(porch: Porch) -> None:
    await park(porch, "1", "2")
    await park(porch, "3", source=OTHER_BOT)
    await park(porch, "4")

    assert await porch.parked() == ["4", "3", "2", "1"]
    assert await porch.parked(BOT) == ["4", "2", "1"]
    assert await porch.parked(limit=2) == ["4", "3"]
    assert await porch.parked(BOT, limit=2) == ["4", "2"]


async def test_a_parked_one_that_is_replayed_waits_behind_its_lane_with_a_clean_record(porch: Porch) -> None:
    await porch.accept("1", "2", "3")
    await porch.inbox.release(await porch.claim_one(), failed=True)
    await porch.inbox.park(await porch.claim_one(), "no")

    assert await porch.inbox.replay(BOT, "1")

    assert await porch.parked() == []
    for key in ("2", "3"):
        found = await porch.claim()
        assert keys(found) == [key]
        await porch.inbox.done(found)
    [held] = await porch.claim()
    assert (held.arrival, held.attempts, held.crashes) == (arrival("1"), 0, 0)


async def test_what_is_not_parked_cannot_be_replayed_or_dropped(porch: Porch) -> None:
    await park(porch, "1")
    await porch.accept("2")

    assert not await porch.inbox.replay(OTHER_BOT, "1")
    assert not await porch.inbox.replay(BOT, "2")
    assert not await porch.inbox.drop(BOT, "2")
    assert await porch.inbox.replay(BOT, "1")
    assert not await porch.inbox.replay(BOT, "1")
    assert await porch.handle_all() == ["2", "1"]


async def test_a_parked_one_that_is_dropped_is_gone(porch: Porch) -> None:
    await park(porch, "1", "2")

    assert await porch.inbox.drop(BOT, "1")

    assert await porch.parked() == ["2"]
    assert not await porch.inbox.drop(BOT, "1")
    assert await porch.claim() == []


async def test_of_too_many_parked_ones_of_a_source_the_oldest_are_forgotten(
    porch: Porch, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_PARKED_PER_SOURCE", 2)
    await park(porch, "other", source=OTHER_BOT)

    await park(porch, "1", "2", "3")

    assert await porch.parked() == ["3", "2", "other"]


async def test_stats_tell_how_many_are_where(porch: Porch) -> None:
    await park(porch, "0")
    await porch.accept("1", "2", "3", lane="a")
    await porch.accept("4", lane="b")

    found = await porch.claim()

    assert await porch.counts() == (2, 2, 1)
    await porch.inbox.done(found)
    assert await porch.counts() == (2, 0, 1)
    await porch.inbox.release(await porch.claim_one(), after=60)
    assert await porch.counts() == (2, 0, 1)
