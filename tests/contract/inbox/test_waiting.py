"""Whoever waits is woken in time, and what is over leaves nothing behind."""

import asyncio
from collections import deque

import pytest

from contract.inbox.inboxes import House
from contract.inbox.porch import BOT, Porch, arrival, keys
from tidegate.inbound.inbox import DEDUP_SECONDS, ClaimedItem

SOON = 1.1  # seconds: looking once a second is soon enough


async def waits_then(porch: Porch, *what: object) -> list[ClaimedItem]:
    """Somebody waits for five seconds; then it happens. It is claimed soon after."""
    started = porch.clock.monotonic()
    waiting = asyncio.create_task(porch.next())
    await porch.clock.sleep(5)
    assert not waiting.done()
    for step in what:
        await step  # type: ignore[misc]
    found = await waiting
    assert porch.clock.monotonic() - started < 5 + SOON
    return found


async def test_whoever_waits_is_woken_by_an_arrival(porch: Porch) -> None:
    assert keys(await waits_then(porch, porch.accept("1"))) == ["1"]


async def test_whoever_waits_is_woken_when_a_lane_is_free(porch: Porch) -> None:
    await porch.accept("1", "2")
    first = await porch.claim_one()

    assert keys(await waits_then(porch, porch.inbox.done([first]))) == ["2"]


async def test_whoever_waits_is_woken_by_one_that_comes_back(porch: Porch) -> None:
    await porch.accept("1")
    first = await porch.claim_one()

    assert keys(await waits_then(porch, porch.inbox.release(first))) == ["1"]


async def test_whoever_waits_is_woken_when_a_lane_goes_on_past_a_parked_one(porch: Porch) -> None:
    await porch.accept("1", "2")
    first = await porch.claim_one()

    assert keys(await waits_then(porch, porch.inbox.park(first, "no"))) == ["2"]


async def test_whoever_waits_is_woken_by_one_that_is_replayed(porch: Porch) -> None:
    await porch.accept("1")
    await porch.inbox.park(await porch.claim_one(), "no")

    assert keys(await waits_then(porch, porch.inbox.replay(BOT, "1"))) == ["1"]


@pytest.mark.parametrize("while_waiting", [False, True])
async def test_whoever_waits_is_woken_when_the_time_of_a_next_try_has_come(
    porch: Porch, *, while_waiting: bool
) -> None:
    await porch.accept("1")
    first = await porch.claim_one()
    again = porch.inbox.release(first, after=30, failed=True)
    started = porch.clock.monotonic()
    if not while_waiting:
        await again
    waiting = asyncio.create_task(porch.next())
    await porch.clock.sleep(0)
    if while_waiting:
        await again

    assert keys(await waiting) == ["1"]
    assert 30 <= porch.clock.monotonic() - started < 30 + SOON


async def test_what_came_before_the_wait_is_not_missed(porch: Porch) -> None:
    assert await porch.claim() == []
    await porch.accept("1")

    async with porch.clock.timeout(SOON):
        await porch.inbox.wait()

    assert keys(await porch.claim()) == ["1"]


async def test_a_claim_that_nobody_waits_for_any_more_goes_back(porch: Porch) -> None:
    await porch.accept("1")
    cancelled = 0
    for moments in range(20):  # it may come to any place in a claim
        claiming = asyncio.create_task(porch.claim())
        for _ in range(moments):
            await porch.clock.sleep(0)
        claiming.cancel()
        [found] = await asyncio.gather(claiming, return_exceptions=True)
        cancelled += isinstance(found, BaseException)
        async with porch.clock.timeout(SOON):
            held = await porch.next() if isinstance(found, BaseException) else found
        assert keys(held) == ["1"]
        await porch.inbox.release(held[0])

    assert cancelled
    assert await porch.counts() == (1, 0, 0)


async def test_a_name_can_be_leased_and_given_back(porch: Porch) -> None:
    assert await porch.inbox.leases.lease("polling:42", 6)
    assert await porch.inbox.leases.lease("polling:42", 6)
    await porch.inbox.leases.give_back("polling:42")
    assert await porch.inbox.leases.lease("polling:42", 6)


async def test_nothing_is_left_in_memory_when_everything_was_handled(porch: Porch, house: House) -> None:
    for start in range(0, 300, 50):
        await porch.inbox.accept([arrival(str(n), str(n % 100)) for n in range(start, start + 50)])
    for round_ in range(2):
        for held in await porch.claim(20):
            await porch.inbox.release(held, after=0.5 * round_, failed=True)
    await porch.inbox.park(await porch.claim_one(), "no")
    await porch.inbox.drop(BOT, (await porch.parked() or ["-"])[0])
    await porch.clock.sleep(1)
    assert len(await porch.handle_all()) == 299

    await porch.clock.sleep(60 if house.own_time else DEDUP_SECONDS + 1)
    await porch.accept("last")
    await porch.handle_all()

    assert await porch.counts() == (0, 0, 0)
    assert remembered(porch.inbox) < 20


def remembered(thing: object) -> int:
    """How many things an inbox has in its own containers."""
    if isinstance(thing, dict):
        return len(thing) + sum(map(remembered, thing.values()))
    if isinstance(thing, list | set | deque | tuple):
        return len(thing) + sum(map(remembered, thing))
    if type(thing).__module__.startswith("tidegate.inbound.inbox") and hasattr(thing, "__dict__"):
        return sum(map(remembered, vars(thing).values()))
    return 0
