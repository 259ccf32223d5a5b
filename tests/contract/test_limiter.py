"""Every limiter: the order of callers, and never more requests than the API allows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.inline_redis import InlineConnection
from contract.stores import redis_url
from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.sim import virtual_time
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.limiter import RedisLimiter
from tidegate.upstream.limiter import Limiter, MemoryLimiter

RULE: Final = Rate(5, 1)
KINDS: Final = ("memory", "redis")
SLOW: Final = {"memory": 2, "redis": 4}  # each example is a whole run, with Redis of many round trips
Make = Callable[[Rate], Limiter]


@asynccontextmanager
async def limiters(kind: str, clock: Clock) -> AsyncIterator[Make]:
    """Those made with Redis stand for processes that share one API."""
    async with AsyncExitStack() as stack:
        link = InlineConnection(redis_url(), clock) if kind == "redis" else None
        if link is not None:
            stack.push_async_callback(link.close)

        def make(rate: Rate) -> Limiter:
            return MemoryLimiter(rate, clock) if link is None else RedisLimiter(rate, link, clock, "api")

        yield make


@pytest.fixture(params=KINDS)
async def make(request: pytest.FixtureRequest, clock: VirtualClock) -> AsyncIterator[Make]:
    async with limiters(request.param, clock) as made:
        yield made


@pytest.fixture
async def limiter(make: Make) -> Limiter:
    return make(RULE)


async def settled(moments: int = 20) -> None:
    """Everyone who may go has gone."""
    for _ in range(moments):
        await asyncio.sleep(0)  # noqa: TID251  (no time passes)


class Asker:
    """Takes slots and notes who got one when."""

    def __init__(self, limiter: Limiter, clock: VirtualClock) -> None:
        self.limiter, self.clock = limiter, clock
        self.went: list[tuple[str, float]] = []

    def start(self, name: str, *, background: bool = False) -> asyncio.Task[None]:
        async def ask() -> None:
            await self.limiter.take(background=background)
            self.went.append((name, round(self.clock.monotonic(), 3)))

        return asyncio.create_task(ask())

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.went]


@pytest.fixture
async def asker(limiter: Limiter, clock: VirtualClock) -> Asker:
    return Asker(limiter, clock)


async def take(limiter: Limiter, count: int) -> None:
    for _ in range(count):
        assert await limiter.take() == 0.0


async def test_a_slot_is_free_again_a_window_after_its_answer(limiter: Limiter, clock: VirtualClock) -> None:
    await take(limiter, 5)
    await clock.sleep(0.25)
    await limiter.answered()
    assert await limiter.take() == pytest.approx(1.0, abs=1e-3)


async def test_a_request_that_never_left_gives_its_slot_back_at_once(limiter: Limiter, asker: Asker) -> None:
    await take(limiter, 5)
    waits = asker.start("next")
    await settled()
    await limiter.give_back()
    await waits
    assert asker.went == [("next", 0.0)]


async def test_first_come_first_served_and_background_behind_all_others(
    limiter: Limiter, asker: Asker, clock: VirtualClock
) -> None:
    await take(limiter, 5)
    waiting = [asker.start(name, background=name.startswith("b")) for name in ("b1", "a1", "b2", "a2", "a3")]
    await settled()
    for _ in range(5):
        await limiter.answered()
    await clock.sleep(1.5)
    assert asker.names == ["a1", "a2", "a3", "b1"]
    await limiter.answered()
    await asyncio.gather(*waiting)
    assert asker.names[-1] == "b2"


async def test_background_leaves_one_slot_for_whoever_comes(limiter: Limiter, asker: Asker) -> None:
    waiting = [asker.start(f"b{number}", background=True) for number in range(5)]
    await settled()
    assert asker.names == ["b0", "b1", "b2", "b3"]
    assert await limiter.take() == 0.0
    await limiter.give_back()
    await limiter.give_back()
    await asyncio.gather(*waiting)


async def test_with_a_single_slot_background_may_have_it(make: Make) -> None:
    limiter = make(Rate(1, 1))
    assert await limiter.take(background=True) == 0.0
    await limiter.answered()
    assert await limiter.take(background=True) == pytest.approx(1.0, abs=1e-3)


async def test_who_is_cancelled_while_he_waits_takes_nothing_and_keeps_nobody(
    limiter: Limiter, asker: Asker, clock: VirtualClock
) -> None:
    await take(limiter, 5)
    gone, waits = asker.start("gone"), asker.start("waits")
    await settled()
    gone.cancel()
    await limiter.answered()
    await waits
    assert asker.went == [("waits", 1.0)]
    for _ in range(5):
        await limiter.answered()
    await clock.sleep(1.1)
    await take(limiter, 5)


async def test_who_is_cancelled_the_moment_his_turn_comes_passes_it_on(
    make: Make, clock: VirtualClock
) -> None:
    for moments in range(14):
        limiter = make(RULE)
        asker = Asker(limiter, clock)
        await take(limiter, 5)
        gone, waits = asker.start("gone"), asker.start("waits")
        await settled()

        freed = asyncio.create_task(limiter.give_back())
        await settled(moments)
        gone.cancel()
        await freed
        if asker.names == ["gone"]:  # it has a turn already
            await limiter.give_back()

        await waits
        assert asker.went[-1] == ("waits", 0.0)
        for _ in range(5):
            await limiter.give_back()


async def test_a_foreground_waiter_who_leaves_lets_the_background_go(limiter: Limiter, asker: Asker) -> None:
    await take(limiter, 3)
    waiting = asker.start("back", background=True)
    await waiting  # the fourth; one is left free
    await limiter.close_for(10, refused=False)
    gone, waits = asker.start("gone"), asker.start("back", background=True)
    await settled()
    gone.cancel()
    await limiter.give_back()
    await waits
    assert asker.went == [("back", 0.0), ("back", 10.0)]


async def test_while_it_is_closed_nobody_goes_and_then_a_window_at_a_time(
    limiter: Limiter, asker: Asker, clock: VirtualClock
) -> None:
    await limiter.close_for(30, refused=False)
    assert limiter.closed_for == pytest.approx(30)
    waiting = [asker.start(str(number)) for number in range(7)]
    await clock.sleep(29.9)
    assert asker.went == []
    await clock.sleep(0.2)
    assert [at for _, at in asker.went] == [30.0] * 5
    assert limiter.closed_for == 0.0
    await limiter.answered()
    await limiter.answered()
    await asyncio.gather(*waiting)
    assert [at for _, at in asker.went[5:]] == [31.1, 31.1]


async def test_a_shorter_closure_does_not_end_a_longer_one(limiter: Limiter, clock: VirtualClock) -> None:
    await limiter.close_for(30, refused=True)
    await limiter.close_for(1, refused=True)
    assert await limiter.take() == pytest.approx(30, abs=1e-3)
    assert clock.monotonic() == pytest.approx(30, abs=1e-3)


async def test_a_refusal_teaches_a_lower_rate_once_and_quiet_time_restores_it(
    limiter: Limiter, clock: VirtualClock
) -> None:
    for _ in range(4):  # all that were on their way
        await limiter.close_for(30, refused=True)
        await clock.sleep(2)
    await limiter.take()
    await limiter.answered()
    assert limiter.rate == Rate(4, 1)

    for _ in range(3):
        await clock.sleep(61)
        await limiter.take()
        await limiter.answered()
    assert limiter.rate == RULE


async def test_a_closure_that_is_no_refusal_teaches_nothing(limiter: Limiter) -> None:
    await limiter.close_for(5, refused=False)
    await limiter.take()
    assert limiter.rate == RULE


Delays = st.integers(min_value=0, max_value=3_000)  # milliseconds


@pytest.mark.parametrize("kind", KINDS)
def test_no_window_at_the_servers_side_ever_holds_more_than_the_rule(kind: str) -> None:
    @settings(max_examples=settings().max_examples // SLOW[kind])
    @given(
        rule=st.sampled_from([Rate(1, 1), Rate(3, 1), Rate(5, 1), Rate(4, 0.7)]),
        calls=st.lists(st.tuples(Delays, Delays, Delays, st.booleans(), st.integers(0, 9)), max_size=25),
        seed=st.integers(0, 1_000),
    )
    def check(rule: Rate, calls: list[tuple[int, int, int, bool, int]], seed: int) -> None:
        arrived = virtual_time.run(lambda clock: traffic(kind, rule, calls, clock), seed)
        for first, over in zip(arrived, arrived[rule.count :], strict=False):
            assert over - first > rule.seconds - 1e-9

    check()


async def traffic(
    kind: str, rule: Rate, calls: list[tuple[int, int, int, bool, int]], clock: VirtualClock
) -> list[float]:
    """Callers of two processes (with Redis), some of whom give up; when each request reached the server."""
    arrived: list[float] = []

    async def call(limiter: Limiter, times: tuple[int, int, int], *, background: bool) -> None:
        start, there, back = (milliseconds / 1000 for milliseconds in times)
        await clock.sleep(start)
        await limiter.take(background=background)
        try:
            await clock.sleep(there)
            arrived.append(clock.monotonic())
            await clock.sleep(back)
        finally:
            await limiter.answered()

    async with limiters(kind, clock) as make:
        one, other = make(rule), make(rule) if kind == "redis" else None
        tasks = []
        for number, (start, there, back, background, mood) in enumerate(calls):
            limiter = one if other is None or number % 2 else other
            tasks.append(asyncio.create_task(call(limiter, (start, there, back), background=background)))
            if mood == 0:
                clock.call_later((start + there / 2) / 1000, tasks[-1].cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
    return sorted(arrived)


async def test_background_beside_a_crowd_that_never_ends_is_late_and_does_not_starve(
    limiter: Limiter, asker: Asker, clock: VirtualClock
) -> None:
    async def crowd() -> None:
        while True:
            await limiter.take()
            await limiter.answered()

    others = [asyncio.create_task(crowd()) for _ in range(10)]
    await settled()
    await asker.start("back", background=True)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)

    assert 2.0 <= clock.monotonic() <= 5.0, "two seconds, and ten who stood there before"


@pytest.mark.parametrize(
    "damaged", [b"\xc1", b"", b"\x05", b"\x81\xa4mark", b"\x82\xa4mark\xa11\xa7learned\x01"]
)
async def test_a_state_that_cannot_be_read_counts_as_lost_and_nobody_is_kept_waiting_for_ever(
    clock: VirtualClock, damaged: bytes
) -> None:
    link = InlineConnection(redis_url(), clock)
    limiter = RedisLimiter(RULE, link, clock, "api")
    await limiter.take()
    await link.command("SET", link.key("upstream:api:state"), damaged)

    begun = clock.monotonic()
    for _ in range(10):
        await limiter.take()
        await limiter.answered()

    assert clock.monotonic() - begun < 10
    await link.close()
