"""A throttle that shares Redis: nothing stays there, and an update never waits or fails for it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from contract.inline_redis import InlineConnection
from contract.stores import redis_url
from tidegate.errors import StoreAwayError, StoreFullError
from tidegate.inbound.throttle import ALLOWED, Charge, Throttled, ThrottleRules
from tidegate.model import Rate
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.connection import Argument
from tidegate.stores.redis.scripts import Script
from tidegate.stores.redis.throttle import RedisThrottle

RULES = ThrottleRules(user=Rate(2, 60), chat=Rate(9, 60), stubborn=3, pause=600)
ANN = Charge(42, 1001, -100, 1.0)


class Fragile(InlineConnection):
    """A Redis that can be away, or silent."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(redis_url(), clock)
        self.clock = clock
        self.trouble: Exception | None = None
        self.silent = False
        self.asked = 0

    async def script(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:  # noqa: ANN401
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        if self.silent:
            await self.clock.sleep(3600)
        return await super().script(script, keys, *args)


@pytest.fixture
async def link(clock: VirtualClock) -> AsyncIterator[Fragile]:
    opened = Fragile(clock)
    yield opened
    await opened.close()


@pytest.fixture
async def buckets(link: Fragile, clock: VirtualClock) -> RedisThrottle:
    return RedisThrottle(RULES, link, clock)


async def test_two_processes_count_together(link: Fragile, clock: VirtualClock) -> None:
    one, other = RedisThrottle(RULES, link, clock), RedisThrottle(RULES, link, clock)
    assert await one.charge(ANN) == ALLOWED
    assert await other.charge(ANN) == ALLOWED
    assert isinstance(await one.charge(ANN), Throttled)


async def test_updates_of_one_moment_go_in_one_step_in_their_order(
    link: Fragile, buckets: RedisThrottle
) -> None:
    bob = Charge(42, 1002, None, 1.0)
    verdicts = await asyncio.gather(*(buckets.charge(who) for who in (ANN, bob, ANN, ANN, bob, bob)))
    assert [verdict == ALLOWED for verdict in verdicts] == [True, True, True, False, True, False]
    assert link.asked == 1


async def test_a_call_that_is_cancelled_harms_no_other(buckets: RedisThrottle) -> None:
    given_up = asyncio.create_task(buckets.charge(ANN))
    other = asyncio.create_task(buckets.charge(ANN))
    given_up.cancel()
    assert await other == ALLOWED


async def test_keys_expire_by_themselves_and_stand_in_one_slot(link: Fragile, buckets: RedisThrottle) -> None:
    await buckets.charge(ANN)
    names = await link.command("KEYS", f"{link.key('throttle')}*")
    assert sorted(names) == [link.key(f"throttle:42:{who}").encode() for who in ("chat:-100", "user:1001")]
    assert all("{0}" in name.decode() for name in names)
    # A token of the user is back in 30 s, one of the chat in less than 7; a second more, for clocks.
    assert [round(await link.command("PTTL", name) / 1000) for name in sorted(names)] == [8, 31]

    for _ in range(5):
        await buckets.charge(ANN)
    assert round(await link.command("PTTL", link.key("throttle:42:user:1001")) / 1000) == 601  # the pause


@pytest.mark.parametrize("trouble", [StoreAwayError("gone"), StoreFullError("no memory left")])
async def test_while_redis_is_away_this_process_counts_alone(
    buckets: RedisThrottle, link: Fragile, trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    link.trouble = trouble
    verdicts = [await buckets.charge(ANN) for _ in range(50)]
    assert verdicts.count(ALLOWED) == 2
    assert link.asked == 1  # and not again for every update
    assert [record.getMessage() for record in caplog.records] == [
        f"the throttle counts in this process alone until Redis answers: {trouble}"
    ]


async def test_it_goes_back_to_redis_when_that_answers(
    buckets: RedisThrottle, link: Fragile, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    link.trouble = StoreAwayError("gone")
    for _ in range(5):
        await buckets.charge(ANN)
        await clock.sleep(1)
    assert link.asked == 5
    link.trouble = None
    assert await buckets.charge(ANN) == ALLOWED
    assert [record.getMessage() for record in caplog.records][1:] == ["the throttle counts in Redis again"]


async def test_a_silent_redis_costs_one_update_a_second_and_the_others_nothing(
    buckets: RedisThrottle, link: Fragile, clock: VirtualClock
) -> None:
    link.silent = True
    await buckets.charge(ANN)
    assert clock.monotonic() == 1
    await buckets.charge(ANN)
    assert clock.monotonic() == 1
