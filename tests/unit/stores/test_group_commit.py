"""Group commit: shared steps, in order, and nobody suffers for another's request or cancellation."""

import asyncio
from collections.abc import Sequence

import pytest

from tidegate.errors import StoreError
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.group_commit import SerialGroupCommit


class Store:
    """Doubles numbers, one step at a time; a step waits while `gate` is closed."""

    def __init__(self, most: int = 100) -> None:
        self.steps: list[list[Sequence[int]]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Event()
        self.away = False
        self.commit: SerialGroupCommit[int, list[int]] = SerialGroupCommit(self._double, most, "doubling")

    async def _double(self, requests: list[Sequence[int]]) -> list[list[int]]:
        self.steps.append(list(requests))
        self.began.set()
        await self.gate.wait()
        if self.away:
            raise StoreError("the store is away")
        if any(number < 0 for request in requests for number in request):
            raise ValueError("a number below zero")
        return [[2 * number for number in request] for request in requests]

    def ask(self, *numbers: int) -> "asyncio.Task[list[int]]":
        return asyncio.create_task(self.commit.ask(numbers))

    async def occupied(self) -> "asyncio.Task[list[int]]":
        """A first step is under way."""
        self.gate.clear()
        first = self.ask(0)
        await self.began.wait()
        return first


async def test_what_is_asked_for_during_a_step_goes_into_the_next_one_together(clock: VirtualClock) -> None:
    store = Store()
    first = await store.occupied()
    others = [store.ask(1, 2), store.ask(3)]
    await clock.sleep(0)
    store.gate.set()

    assert await asyncio.gather(first, *others) == [[0], [2, 4], [6]]
    assert store.steps == [[(0,)], [(1, 2), (3,)]]


async def test_a_step_has_a_bounded_size_and_no_request_is_cut(clock: VirtualClock) -> None:
    store = Store(most=3)
    await store.occupied()
    others = [store.ask(1, 2), store.ask(3, 4), store.ask(5, 6, 7, 8)]
    await clock.sleep(0)
    store.gate.set()

    assert await asyncio.gather(*others) == [[2, 4], [6, 8], [10, 12, 14, 16]]
    assert store.steps[1:] == [[(1, 2)], [(3, 4)], [(5, 6, 7, 8)]]


async def test_a_bad_request_fails_alone(clock: VirtualClock) -> None:
    store = Store()
    await store.occupied()
    good, bad, also_good = store.ask(1), store.ask(-1), store.ask(2)
    await clock.sleep(0)
    store.gate.set()

    assert await good == [2]
    assert await also_good == [4]
    with pytest.raises(ValueError, match="below zero"):
        await bad


async def test_a_store_that_is_away_is_told_to_all_and_not_asked_again(clock: VirtualClock) -> None:
    store = Store()
    first = await store.occupied()
    others = [store.ask(1), store.ask(2)]
    await clock.sleep(0)
    store.away = True
    store.gate.set()

    ends = await asyncio.gather(first, *others, return_exceptions=True)

    assert [str(end) for end in ends] == ["the store is away"] * 3
    assert len(store.steps) == 2


async def test_a_cancelled_caller_takes_nothing_from_the_others(clock: VirtualClock) -> None:
    store = Store()
    await store.occupied()
    gone, stays = store.ask(1), store.ask(2)
    await clock.sleep(0)
    gone.cancel()
    store.gate.set()

    assert await stays == [4]
    assert store.steps[1] == [(1,), (2,)]  # what the other one asked for is done all the same
    await store.commit.join()


async def test_a_request_whose_caller_gave_up_does_not_stay_pending_when_its_step_fails(
    clock: VirtualClock,
) -> None:
    store = Store()
    first = await store.occupied()
    bad, good = store.ask(-1), store.ask(3)
    await clock.sleep(0)
    assert store.commit.pending == 3
    bad.cancel()
    store.gate.set()

    assert [await first, await good] == [[0], [6]]
    await store.commit.join()
    assert store.commit.pending == 0
