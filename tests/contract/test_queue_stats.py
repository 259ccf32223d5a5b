"""The numbers of the queue: by bot, and how long the oldest message has waited."""

import pytest

from contract.conftest import OpenPost
from contract.post import BOT, DELIVERED, OTHER_BOT, Post
from tidegate.model import Dead, Migrated, NotSent, Priority, Rate, Refused, Retry, State, Unknown
from tidegate.outbox.port import Outbox, OutboxStats
from tidegate.pacing.rules import Rules

BAD = Dead("bad_request", "no")


async def ages(post: Post) -> tuple[float | None, ...]:
    """How long the oldest message has waited: of all bots, of one, of the other."""
    stats, by_bot, now = await post.outbox.stats(), await post.outbox.stats_by_bot(), post.clock.now()
    all_of_them = (stats, by_bot.get(BOT, OutboxStats()), by_bot.get(OTHER_BOT, OutboxStats()))
    return tuple(None if one.oldest_at is None else round(now - one.oldest_at, 2) for one in all_of_them)


async def test_nothing_is_old_where_nothing_waits(outbox: Outbox) -> None:
    assert (await outbox.stats()).oldest_at is None
    assert await outbox.stats_by_bot() == {}


async def test_the_oldest_is_the_one_that_was_put_first_of_each_bot(post: Post) -> None:
    await post.put(1, bot=OTHER_BOT)
    await post.clock.sleep(7)
    await post.put(2)
    await post.clock.sleep(5)
    await post.put_many(3, 2)

    assert await ages(post) == (12, 5, 12)


async def test_a_message_that_is_due_later_is_not_old_until_then(post: Post) -> None:
    await post.put(1, not_before=post.clock.now() + 10)
    await post.clock.sleep(9)
    assert await ages(post) == (None, None, None)

    await post.clock.sleep(3)

    assert await ages(post) == (2, 2, None)


async def test_a_not_before_in_the_past_makes_nothing_older_than_its_put(post: Post) -> None:
    await post.put(1, not_before=post.clock.now() - 1000)
    await post.clock.sleep(1)

    assert await ages(post) == (1, 1, None)


async def test_what_is_being_sent_does_not_wait(post: Post) -> None:
    await post.put(1)
    await post.clock.sleep(10)
    await post.put(1)
    await post.clock.sleep(1)

    claim = await post.one()
    assert await ages(post) == (1.0, 1.0, None)

    await post.settle(claim, NotSent("too late"))
    assert await ages(post) == (11.0, 11.0, None)


@pytest.mark.parametrize("outcome", [Retry(60, "502"), Refused(60), Unknown("no answer", 60)])
async def test_a_retry_waits_since_it_was_put(post: Post, outcome: Retry | Refused | Unknown) -> None:
    await post.put(1)
    await post.clock.sleep(10)
    await post.send(outcome)
    await post.clock.sleep(1)

    assert await ages(post) == (11, 11, None)


async def test_what_has_ended_is_not_old(post: Post) -> None:
    await post.put(1)
    dead, cancelled, expiring = (
        await post.put(2),
        await post.put(3),
        await post.put(4, expires_at=post.clock.now() + 60, not_before=post.clock.now() + 1),
    )
    await post.put(5, coalesce_key="c")
    await post.clock.sleep(0.5)
    await post.send()
    await post.send(BAD)
    assert await post.state(dead) == State.DEAD
    assert await post.outbox.cancel([cancelled]) == 1
    await post.clock.sleep(10)
    await post.put(5, coalesce_key="c")
    assert await ages(post) == (9.5, 9.5, None)

    await post.clock.sleep(60)
    assert await post.state(expiring) == State.EXPIRED
    assert await ages(post) == (60, 60, None)
    await post.outbox.forget(5)
    assert await ages(post) == (None, None, None)


async def test_a_replayed_message_waits_since_its_replay(post: Post) -> None:
    ticket = await post.put(1)
    await post.send(BAD)
    await post.clock.sleep(100)
    await post.outbox.replay([ticket])
    await post.clock.sleep(2)

    assert await ages(post) == (2, 2, None)


async def test_a_message_of_a_chat_that_migrates_waits_on(post: Post) -> None:
    await post.put_many(2, -5)
    await post.clock.sleep(10)
    await post.send(Migrated(-1005))

    assert (await ages(post))[0] == 10


async def test_a_message_whose_worker_died_waits_on(open_post: OpenPost) -> None:
    post = await open_post(lease=10)
    await post.put(1)
    await post.one()
    await post.clock.sleep(11)

    assert await ages(post) == (11, 11, None)


async def test_a_message_to_a_chat_that_is_gone_is_not_old(post: Post) -> None:
    await post.put_many(3, 1)
    await post.send(Dead("blocked", "gone", whole_chat=True))
    await post.clock.sleep(1)

    assert await ages(post) == (None, None, None)


async def test_the_oldest_is_found_behind_many_that_are_being_sent(post: Post) -> None:
    for chat in range(1, 251):
        await post.put(chat, priority=Priority.HIGH)  # which is not spaced
    await post.clock.sleep(5)
    await post.put(1, priority=Priority.HIGH)
    await post.clock.sleep(1)
    assert len(await post.claim_all()) == 250

    assert await ages(post) == (1.02, 1.02, None)


async def test_the_numbers_of_each_bot_are_its_own(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1000, 1), private=Rate(1, 1), group=Rate(1000, 1)))
    for priority, count in ((Priority.HIGH, 1), (Priority.NORMAL, 2), (Priority.LOW, 3)):
        await post.put_many(count, 99, priority=priority)
    await post.outbox.pause(BOT)
    outcomes = [None, Retry(60, "502"), BAD, BAD, Unknown("no answer"), Refused(60), DELIVERED]
    for chat in range(1, 8):
        await post.put(chat, bot=OTHER_BOT, on_unknown="park")
    claims = await post.claim_all()
    for claim, outcome in zip(claims, outcomes, strict=True):
        if outcome is not None:
            await post.settle(claim, outcome)

    by_bot, stats = await post.outbox.stats_by_bot(), await post.outbox.stats()

    assert set(by_bot) == {BOT, OTHER_BOT}
    first, other = by_bot[BOT], by_bot[OTHER_BOT]
    assert (first.high, first.normal, first.low, first.waiting) == (1, 2, 3, 6)
    assert (first.delivered, first.refused, first.dead, first.sending) == (0, 0, 0, 0)
    assert (other.normal, other.retry, other.sending, other.waiting) == (1, 1, 1, 2)
    assert (other.delivered, other.dead, other.parked, other.refused) == (1, 2, 1, 1)
    for name in ("high", "normal", "low", "retry", "sending", "dead", "parked", "delivered", "refused"):
        assert getattr(stats, name) == getattr(first, name) + getattr(other, name), name


async def test_letters_that_are_dropped_or_replayed_are_no_letters_of_their_bot(post: Post) -> None:
    tickets = [await post.put(chat, bot=OTHER_BOT) for chat in (1, 2, 3)]
    for _ in tickets:
        await post.send(BAD)
    assert await post.outbox.drop(tickets[:1]) == 1
    assert await post.outbox.replay(tickets[1:2]) == 1

    its = (await post.outbox.stats_by_bot())[OTHER_BOT]
    assert (its.dead, its.normal) == (1, 1)

    await post.outbox.forget(3)
    its = (await post.outbox.stats_by_bot())[OTHER_BOT]
    assert (its.dead, its.normal) == (0, 1)
