"""Limits of one bot in Redis: every process is under them, also while Redis is away."""

import asyncio

import pytest

from contract.post import BOT, DELIVERED, Post
from redis_hub import SharedConnection, processes
from tidegate.model import BotLimits, Delivered, Priority, Rate
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.outbox import RedisOutbox

RULES = Rules(bot=Rate(10, 1), private=Rate(10, 1))


async def claims(post: Post, most: int = 20) -> int:
    for chat in range(1, most + 1):
        await post.put(chat, priority=Priority.HIGH)
    return len(await post.claim_all())


async def test_a_limit_that_one_process_sets_holds_for_another_at_once(clock: VirtualClock) -> None:
    async with processes(clock, 2, RULES) as (_, [one, other]):
        await one.outbox.set_limits(BOT, BotLimits(bot=Rate(3, 1)))

        assert await claims(other) == 3
        assert await other.outbox.own_limits() == {BOT: BotLimits(bot=Rate(3, 1))}


async def test_a_process_that_comes_later_finds_the_limit(clock: VirtualClock) -> None:
    async with processes(clock, 2, RULES) as (hub, [one, other]):
        await one.outbox.set_limits(BOT, BotLimits(bot=Rate(3, 1)))
        hub.run_id = "restarted"
        await other.outbox.open()
        await clock.sleep(60)  # calls that a restart has forgotten

        assert await claims(other) == 3


async def test_a_raised_limit_wakes_the_worker_of_another_process(clock: VirtualClock) -> None:
    async with processes(clock, 2, Rules(group=Rate(2, 60))) as (_, [one, other]):
        for _ in range(2):
            await other.put(-1)
            await other.send(within=1)
        await other.put(-1)
        waiting = asyncio.create_task(other.outbox.claim(1))
        await clock.sleep(1)

        await one.outbox.set_limits(BOT, BotLimits(group=Rate(5, 60)))

        async with clock.timeout(1):
            assert len(await waiting) == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_while_redis_is_away_a_process_has_its_share_of_the_own_limit(
    clock: VirtualClock, when: str
) -> None:
    async with processes(clock, 1, RULES) as (_, [post]):
        if when == "before":
            await post.outbox.set_limits(BOT, BotLimits(bot=Rate(2, 1)))
        else:  # the schedule of the fallback is there already
            await away(post)
            await post.outbox.end_turn(await post.outbox.turn(BOT, 1, "send", 1), DELIVERED)
            await back(post)
            await post.outbox.set_limits(BOT, BotLimits(bot=Rate(2, 1)))
            await clock.sleep(5)
        await away(post)

        turns = [await post.outbox.turn(BOT, chat, "send", 1) for chat in (1, 2)]
        with pytest.raises(TimeoutError):
            await post.outbox.turn(BOT, 3, "send", 1, max_wait=0.5)

        for turn in turns:
            await post.outbox.end_turn(turn, Delivered({}))
        await back(post)


def link_of(post: Post) -> SharedConnection:
    assert isinstance(post.outbox, RedisOutbox)
    assert isinstance(post.outbox.connection, SharedConnection)
    return post.outbox.connection


async def away(post: Post) -> None:
    link_of(post).away = True
    assert isinstance(post.outbox, RedisOutbox)
    post.outbox._fallback.failed()  # noqa: SLF001  (else the first step would find it out)
    await post.clock.sleep(2)


async def back(post: Post) -> None:
    link_of(post).away = False
    await post.clock.sleep(2)
