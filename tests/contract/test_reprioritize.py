"""Messages that wait get another priority: where they stand then, and what stays as it was."""

import pytest

from contract.conftest import OpenPost
from contract.post import BOT, OTHER_BOT, Post
from tidegate.model import Dead, Migrated, NotSent, Priority, Rate, Retry, State, TicketId
from tidegate.pacing.rules import Rules

HIGH, NORMAL, LOW = Priority.HIGH, Priority.NORMAL, Priority.LOW


async def priority_of(post: Post, ticket: TicketId) -> Priority:
    return (await post.record(ticket)).message.priority


async def test_a_message_that_is_raised_goes_before_what_it_waited_behind(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1000, 1), private=Rate(1, 1)))
    low = await post.put_many(5, 1, priority=LOW)

    assert await post.outbox.reprioritize([low[4]], HIGH) == 1

    assert await priority_of(post, low[4]) is HIGH
    stats = await post.outbox.stats()
    assert (stats.high, stats.low) == (1, 4)
    assert await post.order(10) == [low[4], *low[:4]]


async def test_it_stands_in_its_new_line_where_its_arrival_puts_it(post: Post) -> None:
    first = await post.put(1, priority=HIGH)
    lows = await post.put_many(2, 1, priority=LOW)
    second = await post.put(1, priority=HIGH)
    later = await post.put(1, priority=LOW)
    third = await post.put(1, priority=HIGH)
    await post.outbox.pause(BOT)

    assert await post.outbox.reprioritize([later, lows[1], lows[0]], HIGH) == 3
    await post.outbox.resume(BOT)

    assert await post.order(5) == [first, *lows, second, later, third]


async def test_a_message_that_is_lowered_goes_behind(post: Post) -> None:
    await post.outbox.pause(BOT)
    first, second, third = await post.put_many(3, 1, priority=HIGH)
    low = await post.put(1, priority=LOW)

    assert await post.outbox.reprioritize([first], LOW) == 1
    await post.outbox.resume(BOT)

    order = await post.order(5)
    assert [one for one in order if one in {first, low}] == [first, low]  # one line
    assert [one for one in order if one in {second, third}] == [second, third]  # the other
    assert order[0] == second


async def test_a_whole_line_of_many_moves_and_keeps_its_order(post: Post) -> None:
    await post.outbox.pause(BOT)
    between = [await post.put(1, priority=LOW if number % 2 else HIGH) for number in range(500)]

    assert await post.outbox.reprioritize([*between[1::2], *between[1::2]], HIGH) == 250
    await post.outbox.resume(BOT)

    assert (await post.outbox.stats()).high == 500
    assert await post.order(20) == between


async def test_a_message_that_is_due_later_joins_the_other_line_then(post: Post) -> None:
    now = post.clock.now()
    due = await post.put(1, priority=LOW, not_before=now + 10)
    assert (await post.outbox.stats()).low == 1
    other = await post.put(1, priority=HIGH, not_before=now + 10)

    assert await post.outbox.reprioritize([due], HIGH) == 1
    assert await post.order(9) == []

    assert await priority_of(post, due) is HIGH
    assert await post.order(5) == [due, other]


async def test_a_retry_keeps_its_time_and_its_attempts(post: Post) -> None:
    retried, other = await post.put(1, priority=LOW), await post.put(1, priority=HIGH, not_before=1e12)
    await post.send(Retry(20, "502"))

    assert await post.outbox.reprioritize([retried], HIGH) == 1
    record = await post.record(retried)
    assert (record.state, record.attempts, record.message.priority) == (State.RETRY, 1, HIGH)
    assert (await post.outbox.stats()).retry == 1
    behind = await post.put(1, priority=HIGH)

    assert await post.order(15) == []
    assert await post.order(10) == [retried, behind]
    assert await post.state(other) == State.QUEUED


async def test_an_earlier_message_may_go_before_a_retry_that_it_joins(post: Post) -> None:
    low = await post.put(1, priority=LOW)
    retried = await post.put(1, priority=HIGH)
    await post.put(1, priority=HIGH)
    await post.send(Retry(20, "502"))
    await post.outbox.pause(BOT)

    await post.outbox.reprioritize([low], HIGH)
    await post.outbox.resume(BOT)

    assert await post.order(5) == [low]
    assert (await post.order(30))[0] == retried


async def test_a_line_is_in_order_of_arrival_though_its_head_has_returned_from_a_call(post: Post) -> None:
    early = await post.put(1, priority=LOW)
    retried = await post.put(1)
    late = await post.put(1, priority=LOW)
    claim = await post.one()
    assert claim.message.id == retried
    await post.outbox.pause(BOT)
    await post.outbox.reprioritize([early], NORMAL)
    await post.settle(claim, Retry(20, "502"))  # it is before `early` now

    await post.outbox.reprioritize([late], NORMAL)
    await post.outbox.resume(BOT)

    assert await post.order(5) == [early]
    assert await post.order(30) == [retried, late]


async def test_its_deadline_its_keys_and_its_cost_stay(post: Post) -> None:
    now = post.clock.now()
    expiring = await post.put(1, priority=LOW, expires_at=now + 10)
    keyed = await post.put(1, priority=LOW, dedup_key="d", coalesce_key="c")
    album = await post.album(5, 1, priority=LOW)
    await post.outbox.pause(BOT)

    assert await post.outbox.reprioritize([expiring, keyed, album], HIGH) == 3
    await post.clock.sleep(11)

    assert await post.state(expiring) == State.EXPIRED
    assert await post.put(1, dedup_key="d") == keyed
    newer = await post.put(1, priority=HIGH, coalesce_key="c")  # in its place: both are high
    assert await post.state(keyed) == State.REPLACED
    await post.outbox.resume(BOT)
    assert await post.order(5) == [newer, album]


async def test_one_with_a_coalesce_key_is_replaced_at_the_end_of_another_line(post: Post) -> None:
    await post.outbox.pause(BOT)
    old, low = await post.put(1, priority=LOW, coalesce_key="c"), await post.put(1, priority=LOW)
    await post.outbox.reprioritize([old], HIGH)

    newer = await post.put(1, priority=LOW, coalesce_key="c")
    await post.outbox.resume(BOT)

    assert await post.state(old) == State.REPLACED
    assert await post.order(5) == [low, newer]


async def test_only_what_waits_is_moved_and_what_has_the_priority_counts(post: Post) -> None:
    sending, waiting, has_it = await post.put(1), await post.put(1), await post.put(2, priority=HIGH)
    urgent = await post.put(3, urgent=True)
    dead = await post.put(4, bot=OTHER_BOT)
    claims = {claim.message.id: claim for claim in await post.claim_all()}
    await post.settle(claims[has_it], NotSent("x"))
    await post.settle(claims[urgent], NotSent("x"))
    await post.settle(claims[dead], Dead("bad_request", "no"))
    every = [sending, waiting, has_it, urgent, dead, TicketId("?"), waiting]

    assert await post.outbox.reprioritize(every, HIGH) == 2

    stats = await post.outbox.stats()
    assert (stats.high, stats.normal, stats.sending, stats.dead) == (2, 1, 1, 1)
    assert await post.settle(claims[sending]) is not None
    assert await priority_of(post, sending) is NORMAL


async def test_a_move_to_another_priority_of_a_lane_in_flight_waits_for_its_answer(post: Post) -> None:
    first, second, low = await post.put(1), await post.put(1), await post.put(1, priority=LOW)
    claim = await post.one()
    assert claim.message.id == first

    await post.outbox.reprioritize([low], NORMAL)
    assert await post.claim(within=1) == []
    await post.settle(claim, Retry(0.5, "502"))

    assert await post.order(5) == [first, second, low]


async def test_a_suspect_is_still_one_at_a_time(open_post: OpenPost) -> None:
    post = await open_post(lease=5)
    await post.put_many(2, 1, priority=LOW)
    other = await post.put(2, priority=LOW)
    for _ in range(2):
        assert len(await post.claim_all()) == 2
        await post.clock.sleep(6)
        await post.outbox.stats()

    assert await post.outbox.reprioritize([other, "m1"], HIGH) == 2  # type: ignore[list-item]

    assert len(await post.claim_all(within=1)) == 1


async def test_it_moves_with_a_chat_that_migrates(post: Post) -> None:
    first, low, last = await post.put(-5), await post.put(-5, priority=LOW), await post.put(-5)
    claim = await post.one()
    await post.outbox.reprioritize([low], NORMAL)
    await post.settle(claim, Migrated(-1005))

    sent = await post.run(5)

    assert [message.id for _, message in sent] == [first, low, last]
    assert {message.chat_id for _, message in sent} == {-1005}


@pytest.mark.parametrize("times", [1, 5])
async def test_to_and_fro_nothing_is_lost_or_doubled(post: Post, times: int) -> None:
    tickets = [await post.put(chat, priority=LOW) for chat in (1, 2, 1, 2, 1)]
    await post.outbox.pause(BOT)
    for _ in range(times):
        for priority in (HIGH, LOW, NORMAL):
            assert await post.outbox.reprioritize(tickets, priority) == 5
    assert (await post.outbox.stats()).normal == 5
    await post.outbox.resume(BOT)

    assert sorted(await post.order(5)) == sorted(tickets)
    assert (await post.outbox.stats()).delivered == 5
