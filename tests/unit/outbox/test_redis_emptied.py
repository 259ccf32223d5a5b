"""All data in Redis is deleted (FLUSHDB) while processes use it: noted, said once, and no limit is broken."""

import asyncio
import logging
from pathlib import Path

import pytest

from contract.post import BOT, DELIVERED, Post
from redis_hub import Hub, SharedConnection, inline, processes
from tidegate.model import Rate, State
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.outbox import LONGEST_CALL, RedisOutbox
from tidegate.stores.redis.spool import Spool

RULES = Rules(bot=Rate(30, 1), private=Rate(1, 1), group=Rate(1, 60))


async def empty(hub: Hub) -> None:
    await inline(hub.redis.flushdb)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def test_an_emptied_redis_rests_as_after_a_restart_and_goes_on(clock: VirtualClock) -> None:
    async with processes(clock, 2, RULES) as (hub, [one, other]):
        await one.put_many(3, 1)
        await one.send()
        await empty(hub)
        await other.put(1)
        await other.put(-1)

        went = {message.chat_id: at for at, message in await one.run(LONGEST_CALL + 61)}

        assert went == {
            1: pytest.approx(LONGEST_CALL + 1, abs=0.1),
            -1: pytest.approx(LONGEST_CALL + 60, abs=0.1),
        }


async def test_an_emptied_redis_is_one_error_that_says_how_many_were_known_to_wait(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with processes(clock, 3, RULES) as (hub, posts):
        one, other, third = posts
        await one.put_many(7, 1)
        await other.outbox.stats()
        await clock.sleep(2)
        await empty(hub)
        caplog.clear()

        await other.outbox.stats()  # the first to come
        await one.outbox.stats()
        await third.outbox.stats()

        [line] = errors(caplog)
        assert "7 messages were known not to be settled" in line
        assert "2.0 s before" in line
        assert len([each for each in caplog.messages if "noted this before" in each]) == 2


async def test_a_process_is_not_ready_until_every_limit_may_be_used_again(clock: VirtualClock) -> None:
    async with processes(clock, 1, RULES) as (hub, [post]):
        await post.put_many(7, 1)
        await empty(hub)
        await post.outbox.stats()

        health = post.outbox.health()
        assert not health.ready
        assert "lost the data of the store: 7 messages" in health.reasons[0]
        await clock.sleep(LONGEST_CALL + 59)
        assert not post.outbox.health().ready
        await clock.sleep(2)
        assert post.outbox.health().ready
        assert post.outbox.health().reasons == ()


async def test_a_process_that_comes_to_the_emptied_redis_first_hides_nothing(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with processes(clock, 2, RULES) as (hub, [one, other]):
        await one.put_many(7, 1)
        await other.outbox.stats()
        await empty(hub)
        fresh = RedisOutbox(SharedConnection(hub, "fresh"), clock, RULES)
        await fresh.open()
        await Post(fresh, clock).outbox.put([one.message(2)])
        assert errors(caplog) == []

        await one.outbox.stats()
        noted_at = clock.monotonic()
        await clock.sleep(3)
        await other.outbox.stats()  # no new pause: this one was noted

        [line] = errors(caplog)
        assert "7 messages" in line
        [(at, _)] = await other.run(30)
        assert clock.monotonic() - 30 + at - noted_at == pytest.approx(LONGEST_CALL + 1, abs=0.1)
        await fresh.close()


async def test_who_waits_for_a_message_that_is_gone_is_told(clock: VirtualClock) -> None:
    async with processes(clock, 2, RULES) as (hub, [one, other]):
        waiting = [
            await post.begin(post.outbox.settled(ticket))
            for post, ticket in zip((one, other), await one.put_many(2, 1), strict=True)
        ]
        await clock.sleep(1)
        await empty(hub)

        for task in waiting:
            with pytest.raises(LookupError, match="is gone: it was erased, or Redis has lost its data"):
                async with clock.timeout(5):
                    await task


async def test_who_waits_for_a_message_that_another_process_erases_is_told(clock: VirtualClock) -> None:
    async with processes(clock, 2, RULES) as (_, [one, other]):
        await one.outbox.pause(BOT)
        waiting = await one.begin(one.outbox.settled(await one.put(1)))
        await clock.sleep(1)

        await other.outbox.forget(1)

        with pytest.raises(LookupError, match="is gone"):
            async with clock.timeout(5):
                await waiting


async def test_who_waits_for_a_spooled_message_waits_on(clock: VirtualClock, tmp_path: Path) -> None:
    hub = await inline(Hub, clock)
    link = SharedConnection(hub, "p1")
    outbox = RedisOutbox(link, clock, RULES, spool=Spool(tmp_path / "spool", clock))
    await outbox.open()
    post = Post(outbox, clock)
    link.away = True
    waiting = await post.begin(outbox.settled(await post.put(1)))
    other = RedisOutbox(SharedConnection(hub, "p2"), clock, RULES)  # Redis is there, for others
    await other.open()
    await clock.sleep(2)
    link.away = False

    await post.run(2)

    assert (await waiting).state == State.DELIVERED
    for one in (outbox, other):
        await one.close()
    await inline(hub.close)


async def test_claims_and_turns_that_were_held_end_and_those_that_waited_are_granted(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1, RULES) as (hub, [post]):
        await post.put(1)
        claim = await post.one()
        held = await post.turn(2)
        waiting = await post.begin(post.turn(2))
        await clock.sleep(0.1)
        await empty(hub)

        await post.outbox.extend([claim])
        await post.outbox.cool([claim, held])
        assert await post.settle(claim) is None
        await post.outbox.end_turn(held, DELIVERED)
        async with clock.timeout(LONGEST_CALL + 3):
            turn = await waiting
        await post.outbox.end_turn(turn, DELIVERED)

        await clock.sleep(2)
        stats = await post.outbox.stats()
        assert (stats.sending, stats.waiting) == (0, 0)
        assert turn.token > held.token  # no number is given twice


async def test_a_claim_that_waits_is_given_what_is_put_after_redis_was_emptied(clock: VirtualClock) -> None:
    async with processes(clock, 2, RULES, longest_wait=5.0) as (hub, [one, other]):
        claiming = await one.begin(one.outbox.claim(10))
        await clock.sleep(1)
        await empty(hub)
        ticket = await other.put(1)

        async with clock.timeout(LONGEST_CALL + 7):
            [claim] = await claiming

        assert claim.message.id == ticket


async def test_drained_ends_when_everything_is_gone(clock: VirtualClock) -> None:
    async with processes(clock, 1, RULES) as (hub, [post]):
        await post.put_many(5, 1)
        waiting: asyncio.Task[None] = await post.begin(post.outbox.drained())
        await empty(hub)

        async with clock.timeout(2):
            await waiting
