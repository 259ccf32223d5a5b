"""Whoever handles something may die over it: it is counted, given out again, and kept from its like."""

import pytest

from contract.inbox.inboxes import House
from contract.inbox.porch import Porch, arrival, keys
from tidegate.inbound.inbox import SUSPECT_CRASHES

pytestmark = pytest.mark.parametrize("house", ["sqlite", "redis"], indirect=True)  # memory dies with it


async def test_what_was_held_is_the_head_of_its_lane_again_with_one_crash_more(
    porch: Porch, house: House
) -> None:
    await porch.accept("1", "2")
    await porch.inbox.release(await porch.claim_one(), failed=True)
    for crashes in range(3):
        held = await porch.claim_one()
        assert (held.arrival, held.attempts, held.crashes) == (arrival("1"), 1, crashes)
        await house.crash(porch.clock)

    held = await porch.claim_one()

    assert held.crashes == 3
    await porch.inbox.done([held])
    [behind] = await porch.claim()
    assert (behind.arrival.key, behind.crashes) == ("2", 0)


async def test_what_was_not_held_has_no_crash(porch: Porch, house: House) -> None:
    await porch.accept("held")
    await porch.claim_one()
    await porch.accept("back", lane="b")
    await porch.inbox.release(await porch.claim_one())
    await porch.accept("waits", lane="c")

    await house.crash(porch.clock)

    found = {held.arrival.key: held.crashes for held in await porch.claim()}
    assert found == {"held": 1, "back": 0, "waits": 0}


async def test_only_so_many_suspects_are_given_and_others_pass_them(porch: Porch, house: House) -> None:
    for key in "abc":
        await porch.accept(key, lane=key)
    for _ in range(SUSPECT_CRASHES):
        assert len(await porch.claim(suspects=3)) == 3
        await house.crash(porch.clock)
    await porch.accept("new", lane="new")

    first = await porch.claim(suspects=1)

    assert keys(first) == ["a", "new"]
    assert await porch.claim(suspects=0) == []
    await porch.inbox.done(first)
    assert keys(await porch.claim(suspects=2)) == ["b", "c"]


async def test_a_suspect_that_comes_back_is_still_one(porch: Porch, house: House) -> None:
    await porch.accept("1")
    for _ in range(SUSPECT_CRASHES):
        await porch.claim()
        await house.crash(porch.clock)

    await porch.inbox.release(await porch.claim_one(), after=5, failed=True)
    await porch.clock.sleep(6)

    assert await porch.claim(suspects=0) == []
    [held] = await porch.claim(suspects=1)
    assert (held.crashes, held.attempts) == (SUSPECT_CRASHES, 1)


async def test_one_that_is_replayed_is_no_suspect_any_more(porch: Porch, house: House) -> None:
    await porch.accept("1")
    for _ in range(SUSPECT_CRASHES):
        await porch.claim()
        await house.crash(porch.clock)
    held = await porch.claim_one()
    await porch.inbox.park(held, "no")

    await porch.inbox.replay(held.arrival.source, "1")

    [again] = await porch.claim(suspects=0)
    assert again.crashes == 0
