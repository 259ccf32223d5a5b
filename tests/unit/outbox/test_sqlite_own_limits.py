"""Limits of one bot in a file: they outlive the sender, and other processes reach it within 100 ms."""

import pytest

from contract.post import BOT, DELIVERED, Post
from restarts import Disk
from tidegate.model import BotLimits, Priority, Rate, Refused
from tidegate.pacing.rules import Rules

RULES = Rules(bot=Rate(10, 1), private=Rate(10, 1))
FOLLOWED_WITHIN = 0.1  # seconds


async def sends(post: Post, most: int = 20) -> int:
    """How many of the messages to so many chats go at once."""
    for chat in range(1, most + 1):
        await post.put(chat, priority=Priority.HIGH)
    claims = await post.claim_all()
    for claim in claims:
        await post.settle(claim)
    return len(claims)


@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_limits_outlive_the_sender(disk: Disk, how: str) -> None:
    post = await disk.sender(RULES)
    await post.outbox.set_limits(BOT, BotLimits(bot=Rate(3, 1)))

    await (disk.close(post) if how == "closed" else disk.kill(post))
    post = await disk.sender(RULES)

    assert await post.outbox.own_limits() == {BOT: BotLimits(bot=Rate(3, 1))}
    assert await sends(post) == 3


@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_calls_of_before_a_restart_count_in_a_window_that_is_longer_than_those_of_the_rules(
    disk: Disk, how: str
) -> None:
    post = await disk.sender(RULES)
    await post.outbox.set_limits(BOT, BotLimits(bot=Rate(4, 300)))
    await post.clock.sleep(301)
    assert await sends(post) == 4
    await post.clock.sleep(200)  # longer than any window of the rules

    await (disk.close(post) if how == "closed" else disk.kill(post))
    post = await disk.sender(RULES)

    assert await post.claim(within=90) == []
    assert await post.claim(within=20)


async def test_a_longer_window_is_full_after_a_restart_too(disk: Disk) -> None:
    """The sender knew direct calls of the last second that are not in the file."""
    post = await disk.sender(RULES)
    await post.outbox.end_turn(await post.turn(), DELIVERED)
    await post.outbox.set_limits(BOT, BotLimits(bot=Rate(1, 30)))

    post = await disk.restart(post, RULES)
    await post.put()

    assert await post.claim(within=27) == []
    assert await post.claim(within=5)


async def test_a_learned_limit_that_a_change_has_ended_does_not_come_back(disk: Disk) -> None:
    post = await disk.sender(RULES)
    await post.put()
    await post.settle(await post.one(), Refused(1))
    assert await post.outbox.learned()
    await post.outbox.set_limits(BOT, BotLimits(bot=Rate(10, 2), private=Rate(5, 2)))

    post = await disk.restart(post, RULES)

    assert await post.outbox.learned() == {}


async def test_the_sender_follows_another_process_at_once(disk: Disk) -> None:
    post = await disk.sender(RULES)
    other = await disk.opener(RULES)

    await other.outbox.set_limits(BOT, BotLimits(bot=Rate(3, 1)))
    await post.clock.sleep(FOLLOWED_WITHIN)

    assert await sends(post) == 3
    assert await other.outbox.own_limits() == await post.outbox.own_limits()


async def test_the_latest_of_two_changes_holds_whichever_process_made_it(disk: Disk) -> None:
    post = await disk.sender(RULES)
    other = await disk.opener(RULES)
    await other.outbox.set_limits(BOT, BotLimits(bot=Rate(9, 1)))
    await post.outbox.set_limits(BOT, BotLimits(bot=Rate(3, 1)))
    await post.clock.sleep(FOLLOWED_WITHIN)

    assert await sends(post) == 3
