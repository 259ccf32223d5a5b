"""A limiter that shares Redis: dead processes, a Redis that is away, and that nothing stays there."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from contract.inline_redis import InlineConnection
from contract.stores import redis_url
from tidegate.errors import StoreAwayError
from tidegate.model import Rate
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.connection import Argument
from tidegate.stores.redis.limiter import RedisLimiter
from tidegate.stores.redis.scripts import Script

RULE = Rate(5, 1)


class Fragile(InlineConnection):
    """A Redis that can be away, or silent."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(redis_url(), clock)
        self.clock = clock
        self.trouble: Exception | None = None
        self.silent = False
        self.deaf_after = False  # does what it was asked, and nobody hears of it
        self.asked = 0
        self.delay = 0.0  # of an answer

    async def script(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:  # noqa: ANN401
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        reply = None if self.silent else await super().script(script, keys, *args)
        await self.clock.sleep(3600 if self.silent or self.deaf_after else self.delay)
        return reply

    async def size(self, part: str) -> int:
        return int(await self.command("ZCARD", self.key(f"upstream:api:{part}")))


@pytest.fixture
async def link(clock: VirtualClock) -> AsyncIterator[Fragile]:
    opened = Fragile(clock)
    yield opened
    await opened.close()


@pytest.fixture
async def limiter(link: Fragile, clock: VirtualClock) -> RedisLimiter:
    return RedisLimiter(RULE, link, clock, "api", lease=20.0)


async def go(limiter: RedisLimiter, count: int) -> list[float]:
    return [round(await limiter.take(), 3) for _ in range(count)]


async def free_slots(limiter: RedisLimiter, clock: VirtualClock) -> int:
    """How many may go now; they give their slots back."""
    asked = [asyncio.create_task(limiter.take()) for _ in range(8)]
    await clock.sleep(0.01)
    went = [task for task in asked if task.done()]
    for task in asked:
        task.cancel()
    for _ in went:
        await limiter.give_back()
    return len(went)


async def test_two_processes_share_slots_lockout_and_what_was_learned(
    link: Fragile, clock: VirtualClock
) -> None:
    one, other = (RedisLimiter(RULE, link, clock, "api") for _ in range(2))
    await go(one, 3)
    await go(other, 2)
    assert await free_slots(one, clock) == 0

    for limiter in (one, one, one, other, other):
        await limiter.answered()
    await one.close_for(30, refused=True)
    began = clock.monotonic()
    await other.take()
    assert clock.monotonic() - began == pytest.approx(30, abs=1e-3)
    assert other.rate == Rate(4, 1)


async def test_apis_of_other_names_do_not_share(
    link: Fragile, limiter: RedisLimiter, clock: VirtualClock
) -> None:
    await go(limiter, 5)
    assert await go(RedisLimiter(RULE, link, clock, "another"), 5) == [0.0] * 5


async def test_the_slots_of_a_process_that_died_come_back(
    link: Fragile, limiter: RedisLimiter, clock: VirtualClock
) -> None:
    await go(RedisLimiter(RULE, link, clock, "api", lease=20.0), 5)  # and is never heard of again
    await limiter.take()
    assert clock.monotonic() == pytest.approx(21, abs=0.1)


async def test_who_waits_asks_when_told_and_not_all_the_time(
    link: Fragile, limiter: RedisLimiter, clock: VirtualClock
) -> None:
    await go(limiter, 5)
    for _ in range(5):
        await limiter.answered()
    link.asked = 0
    await asyncio.gather(*(limiter.take() for _ in range(5)))
    assert clock.monotonic() == pytest.approx(1, abs=1e-3)
    assert link.asked <= 3

    await limiter.close_for(30, refused=False)
    link.asked = 0
    waits = asyncio.create_task(limiter.take())
    await clock.sleep(29.9)
    assert link.asked == 3  # a Redis that has forgotten the lockout hears of it again
    waits.cancel()


async def test_keys_expire_by_themselves_and_stand_in_one_slot(link: Fragile, limiter: RedisLimiter) -> None:
    await go(limiter, 2)
    await limiter.answered()
    await limiter.close_for(30, refused=False)
    names = sorted(await link.command("KEYS", f"{link.key('upstream')}*"))
    assert names == [link.key(f"upstream:api:{part}").encode() for part in ("cooling", "held", "state")]
    lives = [await link.command("PTTL", name) / 1000 for name in names]
    assert [round(seconds) for seconds in lives] == [2, 22, 3601]


async def test_while_redis_is_away_this_process_counts_alone_at_half(
    link: Fragile, limiter: RedisLimiter, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    link.trouble = StoreAwayError("gone")
    for _ in range(10):
        await limiter.take()
        await limiter.answered()
    assert clock.monotonic() == pytest.approx(4, abs=0.01)  # two in each second
    assert link.asked <= 6  # about once in a second
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("the limit of api is counted in this process alone, at half of it, until Redis")
    assert "answers: gone (if more than two processes share it" in said


async def test_when_it_is_back_redis_hears_what_happened_meanwhile(
    link: Fragile, limiter: RedisLimiter, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await go(limiter, 4)  # of which Redis knows
    link.trouble = StoreAwayError("gone")
    await limiter.answered()
    await limiter.answered()
    await limiter.answered()
    await limiter.give_back()
    await clock.sleep(1)
    await go(limiter, 2)  # alone
    await limiter.close_for(3, refused=False)
    assert (await link.size("held"), await link.size("cooling")) == (4, 0)

    link.trouble = None
    await clock.sleep(1)
    assert await free_slots(limiter, clock) == 0  # it is closed in Redis, too
    assert (await link.size("held"), await link.size("cooling")) == (2, 0)
    await clock.sleep(3)
    assert await free_slots(limiter, clock) == 3
    assert [record.getMessage() for record in caplog.records][1:] == [
        "the limit of api is counted in Redis again"
    ]


async def test_slots_that_a_silent_redis_gave_unheard_are_given_back(
    link: Fragile, limiter: RedisLimiter, clock: VirtualClock
) -> None:
    link.deaf_after = True
    assert await limiter.take() == pytest.approx(1)  # its patience with Redis, then alone
    assert await link.size("held") == 1
    link.deaf_after = False
    await clock.sleep(2)
    await limiter.take()
    assert await link.size("held") == 2  # both that are in flight, and not the one in between


async def test_a_silent_redis_holds_up_one_request_a_second_and_not_all(
    link: Fragile, limiter: RedisLimiter, clock: VirtualClock
) -> None:
    link.silent = True
    await limiter.take()
    await limiter.answered()
    assert clock.monotonic() == pytest.approx(1)
    await limiter.take()
    assert clock.monotonic() == pytest.approx(1)


async def test_a_redis_that_stays_silent_leaves_most_of_the_half(
    link: Fragile, limiter: RedisLimiter, clock: VirtualClock
) -> None:
    link.silent = True
    for _ in range(20):
        await limiter.take()
        await limiter.answered()
    assert clock.monotonic() < 15


async def test_who_comes_while_redis_is_asked_for_another_does_not_wait_for_a_window(
    link: Fragile, limiter: RedisLimiter, clock: VirtualClock
) -> None:
    link.delay = 0.1
    first = asyncio.create_task(limiter.take())
    await clock.sleep(0.05)
    assert await limiter.take() == pytest.approx(0.15)
    assert first.done()


async def test_what_is_owed_does_not_pile_up(link: Fragile, limiter: RedisLimiter) -> None:
    link.trouble = StoreAwayError("gone")
    for _ in range(400):
        await limiter.take()
        await limiter.answered()
    assert len(limiter._slots._unreported) < 100  # noqa: SLF001  (what must shrink)


async def test_cancelled_while_it_settles_it_settles(limiter: RedisLimiter, link: Fragile) -> None:
    await go(limiter, 1)
    task = asyncio.create_task(limiter.answered())
    await asyncio.sleep(0)  # noqa: TID251  (no time passes)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for _ in range(5):
        await asyncio.sleep(0)  # noqa: TID251
    assert (await link.size("held"), await link.size("cooling")) == (0, 1)


class Wound(Fragile):
    """A Redis whose clock somebody sets, and who may be emptied."""

    shift = 0.0

    async def script(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:  # noqa: ANN401
        self._others.update(keys)
        asked = (len(keys), *keys, f"{self.clock.now() + self.shift:.17g}", *args)
        return await self.command("EVAL", script.source, *asked)

    async def forget(self) -> None:
        """As after a restart without persistence."""
        await self.command("DEL", *self._others)


@pytest.fixture
async def wound(clock: VirtualClock) -> AsyncIterator[Wound]:
    opened = Wound(clock)
    yield opened
    await opened.close()


async def test_a_redis_restarted_empty_gives_no_slot_twice(
    wound: Wound, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    limiter, other = (RedisLimiter(Rate(5, 20), wound, clock, "api") for _ in range(2))
    await other.take()  # knows what was there, too
    await other.give_back()
    await go(limiter, 5)
    for _ in range(3):
        await limiter.answered()
    await clock.sleep(5)
    await wound.forget()

    asked = asyncio.create_task(other.take())
    await clock.sleep(0.1)
    await limiter.answered()  # the first word of the process that knows
    await limiter.answered()
    asked.cancel()
    assert (await wound.size("held"), await wound.size("cooling")) == (1, 5)  # one went before anybody knew
    await other.give_back()
    assert await limiter.take() == pytest.approx(14.9, abs=0.01)
    assert [record.getMessage() for record in caplog.records] == [
        "Redis had forgotten the limit of api: it was told what is known here"
    ]


async def test_a_redis_restarted_empty_does_not_end_a_lockout(wound: Wound, clock: VirtualClock) -> None:
    limiter = RedisLimiter(RULE, wound, clock, "api")
    await limiter.take()
    await limiter.close_for(30, refused=True)
    await limiter.answered()
    await clock.sleep(1)
    await wound.forget()
    waits = asyncio.create_task(limiter.take())
    await clock.sleep(1)
    newcomer = RedisLimiter(RULE, wound, clock, "api")
    assert await newcomer.take() == pytest.approx(28, abs=0.01)
    await waits
    assert clock.monotonic() == pytest.approx(30, abs=0.01)


@pytest.mark.parametrize("shift", [-3600.0, 3600.0])
async def test_a_clock_of_redis_that_is_set_neither_stops_the_limiter_nor_ends_a_lockout(
    wound: Wound, clock: VirtualClock, shift: float
) -> None:
    limiter = RedisLimiter(RULE, wound, clock, "api")
    await go(limiter, 5)
    for _ in range(4):
        await limiter.answered()  # and one is never heard of again
    wound.shift = shift
    await go(limiter, 4)
    assert clock.monotonic() < 2
    await limiter.close_for(30, refused=True)
    wound.shift = 0.0
    assert 29.99 < await limiter.take() < 32


async def test_background_lets_the_foreground_of_another_process_go_first(
    link: Fragile, clock: VirtualClock
) -> None:
    behind, before = (RedisLimiter(RULE, link, clock, "api") for _ in range(2))
    went: list[str] = []

    async def ask(limiter: RedisLimiter, name: str, *, background: bool) -> None:
        await limiter.take(background=background)
        went.append(name)
        await clock.sleep(0.05)
        await limiter.answered()

    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(ask(behind, "behind", background=True))
        await clock.sleep(0.01)
        for _ in range(6):
            group.create_task(ask(before, "before", background=False))
    assert went[:10] == ["behind"] * 4 + ["before"] * 6
    assert clock.monotonic() < 7  # and then they go as before


async def test_the_warning_names_the_api_and_a_slot_is_held_as_long_as_a_request_may_last(
    link: Fragile, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    gone, limiter = (RedisLimiter(RULE, link, clock, "3f2a") for _ in range(2))
    for one in (gone, limiter):
        one.configure("NocoDB", 70.0)
    await go(gone, 5)
    await limiter.take()
    assert clock.monotonic() == pytest.approx(71, abs=0.1)
    link.trouble = StoreAwayError("gone")
    await limiter.answered()
    assert caplog.records[-1].getMessage().startswith("the limit of NocoDB is counted in this process alone")
