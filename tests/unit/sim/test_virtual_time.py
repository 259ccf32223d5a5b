"""Virtual time: free to sleep in, repeatable, and honest about deadlocks."""

import asyncio
import random
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.clock import Clock
from tidegate.sim import virtual_time
from tidegate.sim.virtual_time import EPOCH, DeadlockError, VirtualClock, VirtualLoop


async def test_sleeping_moves_the_clock_and_costs_no_real_time(clock: VirtualClock) -> None:
    await clock.sleep(24 * 3600)

    assert clock.monotonic() == 24 * 3600
    assert clock.now() == EPOCH + 24 * 3600


@pytest.mark.timeout(20)  # real seconds: two on a machine that has nothing else to do
def test_a_day_with_100_000_timers_passes() -> None:
    day = 24 * 3600
    sleepers, naps = 1_000, 100

    async def live(clock: VirtualClock) -> list[float]:
        woken: list[float] = []

        async def sleeper(draw: random.Random) -> None:
            for until in sorted(draw.uniform(0, day) for _ in range(naps)):
                await clock.sleep(until - clock.monotonic())
                woken.append(clock.monotonic())

        async with asyncio.TaskGroup() as group:
            for i in range(sleepers):
                group.create_task(sleeper(random.Random(i)))
        return woken

    woken = virtual_time.run(live)

    assert len(woken) == 100_000
    assert woken == sorted(woken)
    assert day - 60 < woken[-1] <= day


async def test_a_timeout_strikes_at_its_virtual_instant(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError):
        async with clock.timeout(30):
            await asyncio.Event().wait()

    assert clock.monotonic() == pytest.approx(30)


def test_a_deadlock_names_the_waiting_tasks_and_where_they_wait() -> None:
    async def consumer(queue: asyncio.Queue[int]) -> int:
        return await queue.get()

    async def main(clock: VirtualClock) -> None:
        await clock.sleep(5)
        await asyncio.create_task(consumer(asyncio.Queue()), name="the consumer")

    with pytest.raises(DeadlockError) as caught:
        virtual_time.run(main)

    text = str(caught.value)
    assert "deadlock at 5.000 s" in text
    assert "the consumer: Queue.get (" in text


def test_work_for_threads_runs_inline() -> None:
    async def main(_: VirtualClock) -> int:
        return await asyncio.to_thread(sum, [1, 2, 3])

    assert virtual_time.run(main) == 6


async def test_an_error_in_inline_work_reaches_its_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 // 0)


def test_real_sockets_are_refused() -> None:
    async def main(_: VirtualClock) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)  # noqa: FBT003  (its only parameter, positional by definition)
            await asyncio.get_running_loop().sock_recv(ours, 1)

    with pytest.raises(RuntimeError, match="real I/O on a virtual loop"):
        virtual_time.run(main)


def order_at_one_instant(seed: int | None) -> list[int]:
    async def main(clock: VirtualClock) -> list[int]:
        order: list[int] = []

        async def one(i: int) -> None:
            await clock.sleep(1)
            order.append(i)

        await asyncio.gather(*(one(i) for i in range(20)))
        return order

    return virtual_time.run(main, seed)


def test_without_a_seed_timers_of_one_instant_run_as_created() -> None:
    assert order_at_one_instant(None) == list(range(20))


@given(st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    assert order_at_one_instant(seed) == order_at_one_instant(seed)


def test_seeds_explore_different_orders() -> None:
    assert len({tuple(order_at_one_instant(seed)) for seed in range(10)}) == 10


@given(st.lists(st.floats(0, 1e6), max_size=50), st.integers(0, 100))
def test_timers_never_fire_early_or_out_of_order(delays: list[float], seed: int) -> None:
    async def main(clock: VirtualClock) -> list[tuple[float, float]]:
        fired: list[tuple[float, float]] = []

        async def one(delay: float) -> None:
            await clock.sleep(delay)
            fired.append((clock.monotonic(), delay))

        await asyncio.gather(*(one(delay) for delay in delays))
        return fired

    fired = virtual_time.run(main, seed)
    assert sorted(delay for _, delay in fired) == sorted(delays)
    assert [at for at, _ in fired] == sorted(at for at, _ in fired)
    assert all(at >= delay - 1e-8 for at, delay in fired)


def test_the_real_clock_agrees_with_the_system() -> None:
    clock = Clock()
    before = time.time()  # noqa: TID251  (this is what Clock is compared with)
    assert before <= clock.now() <= time.time()  # noqa: TID251
    assert clock.monotonic() <= clock.monotonic()


async def test_timeouts_that_were_not_needed_do_not_stay_until_they_are_due(clock: VirtualClock) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    kept = [loop.call_later(7_200 + i, lambda: None) for i in range(10)]
    for _ in range(100_000):
        async with clock.timeout(3_600):
            pass
    assert len(loop._timers) < 5_000  # noqa: SLF001  (the memory is what is under test)
    for timer in kept[1:]:
        timer.cancel()
    await clock.sleep(7_300)
    assert clock.monotonic() == 7_300
