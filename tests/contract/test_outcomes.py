"""The states of a message after a call, and of the others in its lane."""

import pytest

from contract.conftest import OpenPost
from contract.post import BOT, DELIVERED, OTHER_BOT, SOON, Post
from tidegate.model import (
    Claim,
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Priority,
    Rate,
    Refused,
    Retry,
    Settlement,
    State,
    TicketId,
    Unknown,
    Unreachable,
)
from tidegate.outbox.transitions import CRASHES_ALLOWED
from tidegate.pacing.rules import Rules

BLOCKED = Dead("blocked", "bot was blocked by the user", whole_chat=True)


async def test_a_retry_holds_its_line_and_only_that(post: Post) -> None:
    first, second = await post.put_many(2)
    high = await post.put(priority=Priority.HIGH)
    other = await post.put(2)
    claims = await post.claim_all()
    assert sorted(claim.message.id for claim in claims) == [high, other]
    for claim in claims:
        await post.settle(claim)

    record = await post.send(Retry(10, "502"))
    assert (record.message.id, record.state, record.attempts) == (first, State.RETRY, 1)
    assert record.reason == "502"
    reply = await post.put(priority=Priority.HIGH)
    assert await post.order(9) == [reply]

    assert await post.order(2) == [first, second]


async def test_it_is_dead_after_its_last_attempt(post: Post) -> None:
    ticket = await post.put(max_attempts=3)
    for attempt in (1, 2, 3):
        claim = await post.one(within=2)
        assert claim.attempt == attempt
        await post.settle(claim, Retry(1, "502"))

    record = await post.record(ticket)
    assert (record.state, record.attempts, record.reason) == (State.DEAD, 3, "attempts")
    assert await post.claim(within=60) == []


@pytest.mark.parametrize("outcome", [Retry(1, "409"), Unknown("no answer", delay=1)])
async def test_a_message_without_attempts_of_its_own_has_those_of_the_process_that_sends(
    post: Post, outcome: Outcome
) -> None:
    ticket = await post.put()

    await post.outbox.settle([Settlement(await post.one(within=2), outcome, max_attempts=2)])
    assert await post.state(ticket) == State.RETRY
    await post.outbox.settle([Settlement(await post.one(within=2), outcome, max_attempts=2)])

    record = await post.record(ticket)
    assert (record.state in {State.DEAD, State.PARKED}, record.attempts) == (True, 2)


async def test_attempts_of_its_own_win_over_those_of_the_process_that_sends(post: Post) -> None:
    ticket = await post.put(max_attempts=1)

    await post.outbox.settle([Settlement(await post.one(), Retry(1, "409"), max_attempts=9)])

    assert await post.state(ticket) == State.DEAD


async def test_a_message_of_unknown_outcome_is_sent_again_if_it_may(post: Post) -> None:
    ticket = await post.put(on_unknown="resend")

    record = await post.send(Unknown("no answer", delay=5))
    assert (record.state, record.attempts) == (State.RETRY, 1)

    assert await post.order(4.9) == []
    assert await post.order(1) == [ticket]


async def test_a_message_of_unknown_outcome_is_parked_if_it_asked_for_that(post: Post) -> None:
    await post.put(on_unknown="park")
    following = await post.put()

    record = await post.send(Unknown("no answer"))

    assert (record.state, record.reason, record.description) == (State.PARKED, "unknown", "no answer")
    assert await post.order(60) == [following]


async def test_a_429_closes_its_chat_and_counts_no_attempt(post: Post) -> None:
    ticket = await post.put(1)
    other = await post.put(2)
    claim = await post.one()

    record = await post.settle(claim, Refused(30))
    assert record is not None
    assert (record.state, record.attempts) == (State.QUEUED, 0)
    high = await post.put(1, priority=Priority.HIGH)
    urgent = await post.put(1, urgent=True)

    assert await post.order(29) == [other]
    assert sorted(await post.order(5)) == sorted([ticket, high, urgent])
    assert (await post.outbox.stats()).refused == 1


async def test_429s_of_two_chats_within_a_window_close_the_bot(post: Post) -> None:
    for chat in (1, 2, 3):
        await post.put(chat, priority=Priority.HIGH)
    first, second, third = await post.claim_all()
    await post.settle(first, Refused(30))
    await post.settle(third, NotSent("too late"))
    await post.settle(second, Refused(30))
    free = await post.put(9, bot=OTHER_BOT)

    assert await post.order(29) == [free]
    assert len(await post.order(10)) == 3


async def test_429s_of_two_chats_far_apart_close_only_those(post: Post) -> None:
    await post.put(1)
    await post.put(2)
    await post.send(Refused(100))
    await post.clock.sleep(2)
    await post.send(Refused(100))
    free = await post.put(3)

    assert await post.order(50) == [free]


async def test_a_dead_one_lets_the_next_pass(post: Post) -> None:
    await post.put()
    following = await post.put()

    record = await post.send(Dead("bad_request", "message text is empty"))

    assert (record.state, record.attempts, record.reason) == (State.DEAD, 1, "bad_request")
    assert record.description == "message text is empty"
    assert await post.order() == [following]


async def test_a_chat_that_is_gone_takes_what_waits_for_it_along(post: Post) -> None:
    tickets = await post.put_many(3, 1)
    tickets.append(await post.put(1, priority=Priority.LOW))
    other = await post.put(2)

    await post.send(BLOCKED)

    for ticket in tickets:
        record = await post.record(ticket)
        assert (record.state, record.reason) == (State.DEAD, "blocked")
    assert await post.order(60) == [other]
    assert (await post.outbox.stats()).dead == 4


async def test_after_a_chat_was_buried_new_messages_for_it_are_tried(post: Post) -> None:
    await post.put()
    await post.send(BLOCKED)

    ticket = await post.put()

    assert await post.order() == [ticket]


async def test_a_migrated_chat_moves_in_order_this_message_first(post: Post) -> None:
    tickets = await post.put_many(3, -5)
    scheduled = await post.put(-5, not_before=post.clock.now() + 60)

    record = await post.send(Migrated(-100_5))
    assert (record.state, record.attempts) == (State.QUEUED, 0)
    late = await post.put(-5)
    direct = await post.put(-100_5)

    sent = [message for _, message in await post.run(70)]
    assert [message.id for message in sent] == [*tickets, late, direct, scheduled]
    assert {message.chat_id for message in sent} == {-100_5}


async def test_a_chat_that_moves_twice_is_followed(post: Post) -> None:
    scheduled = await post.put(-5, not_before=post.clock.now() + 60)
    await post.put(-5)
    await post.send(Migrated(-6))
    await post.send(Migrated(-7))

    late = await post.put(-5)
    sent = [message for _, message in await post.run(70)]

    assert {message.chat_id for message in sent} == {-7}
    assert [message.id for message in sent][1:] == [late, scheduled]


async def test_a_chat_said_to_move_to_itself_stays(post: Post) -> None:
    ticket = await post.put(-5)
    await post.send(Migrated(-5))

    assert await post.order() == [ticket]


async def test_a_moved_chat_stays_paused(post: Post) -> None:
    ticket = await post.put(-5)
    claim = await post.one()
    await post.outbox.pause(BOT, -5)
    await post.settle(claim, Migrated(-6))
    assert await post.claim(within=5) == []

    await post.outbox.resume(BOT, -5)
    assert await post.order() == [ticket]


async def test_a_closure_survives_a_migration(post: Post) -> None:
    refused = await post.outbox.turn(BOT, -5, "action", 1)  # several of these may be under way
    moved = await post.outbox.turn(BOT, -5, "action", 1)
    await post.outbox.end_turn(refused, Refused(30))
    await post.outbox.end_turn(moved, Migrated(-6))

    for chat in (-5, -6):
        with pytest.raises(TimeoutError):
            await post.outbox.turn(BOT, chat, "action", 1, max_wait=14)


async def test_messages_of_a_chat_that_migrates_wait_for_the_closure_of_the_new_one(post: Post) -> None:
    closed = await post.put(-6)
    await post.send(Refused(30))
    moved = await post.put(-5)
    await post.send(Migrated(-6))

    assert await post.claim(within=29) == []
    assert [message.id for _, message in await post.run(90)] == [closed, moved]


async def test_a_turn_that_learns_of_a_migration_moves_the_lane(post: Post) -> None:
    turn = await post.turn(-5)
    ticket = await post.put(-5)

    await post.outbox.end_turn(turn, Migrated(-6))

    [(_, message)] = await post.run(1)
    assert (message.id, message.chat_id) == (ticket, -6)


async def test_a_name_and_its_number_are_one_lane_once_an_answer_told(open_post: OpenPost) -> None:
    post = await open_post(Rules(group=Rate(2, 60)))
    await post.put("@news")
    await post.send(Delivered({"message_id": 1, "chat": {"id": -77}}))
    for chat in ("@news", -77, "@news", -77):
        await post.put(chat)

    sent = await post.run(59)

    assert len(sent) == 1  # with the first one, the two that the chat allows


@pytest.mark.parametrize("outcome", [Delivered({}), Retry(1, "x"), Dead("x", "x"), Refused(1), NotSent("x")])
async def test_settling_with_an_old_token_changes_nothing(open_post: OpenPost, outcome: Outcome) -> None:
    post = await open_post(lease=10)
    ticket = await post.put(on_unknown="resend")
    old = await post.one()
    await post.clock.sleep(11)
    new = await post.one()
    before = await post.record(ticket)

    assert await post.settle(old, outcome) is None

    assert await post.record(ticket) == before
    assert await post.settle(new) is not None
    assert await post.settle(new) is None


async def lose(post: Post) -> Claim:
    """Claim, and die."""
    claim = await post.one(within=15)
    await post.clock.sleep(11)
    return claim


async def test_a_lease_that_runs_out_frees_the_message_and_counts_a_crash(open_post: OpenPost) -> None:
    post = await open_post(lease=10)
    ticket = await post.put()
    following = await post.put()
    await post.one()

    assert await post.claim(within=9.9) == []
    claim = await post.one(within=0.2)

    record = await post.record(ticket)
    assert (claim.message.id, claim.attempt) == (ticket, 1)
    assert (record.attempts, record.crashes) == (0, 1)
    await post.settle(claim)
    assert await post.order() == [following]


async def test_a_message_that_kills_its_worker_each_time_is_parked(open_post: OpenPost) -> None:
    post = await open_post(lease=10)
    ticket = await post.put()
    for _ in range(CRASHES_ALLOWED):
        await lose(post)

    record = await post.record(ticket)

    assert (record.state, record.reason, record.crashes) == (State.PARKED, "crashes", CRASHES_ALLOWED)
    assert record.description == "5 workers died while they sent it: find out why, then replay or drop it"


async def test_a_crash_parks_what_must_not_be_sent_twice(open_post: OpenPost) -> None:
    post = await open_post(lease=10)
    ticket = await post.put(on_unknown="park")
    await lose(post)

    record = await post.record(ticket)

    assert (record.state, record.reason) == (State.PARKED, "unknown")


async def test_a_crash_keeps_the_slots_until_they_have_cooled(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 5)), lease=10)
    await post.put(1)
    await post.put(2)
    await post.one()

    assert await post.claim(within=14.9) == []
    assert len(await post.claim(within=0.2)) == 1


async def test_an_extended_lease_lasts(open_post: OpenPost) -> None:
    post = await open_post(lease=10)
    await post.put()
    claim = await post.one()
    for _ in range(5):
        await post.clock.sleep(8)
        await post.outbox.extend([claim])

    assert await post.claim(within=9) == []
    record = await post.settle(claim)
    assert record is not None
    assert (record.state, record.crashes) == (State.DELIVERED, 0)


async def test_an_extended_lease_ends_too(open_post: OpenPost) -> None:
    post = await open_post(lease=10)
    ticket = await post.put()
    claim = await post.one()
    await post.outbox.extend([claim])  # in the same instant
    await post.clock.sleep(8)
    await post.outbox.extend([claim])

    await post.clock.sleep(10.1)

    assert (await post.record(ticket)).crashes == 1


async def test_slots_without_an_answer_cool_while_the_claim_is_held(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 1)))
    await post.put(1)
    same_chat = await post.put(1)
    other = await post.put(2)
    claim = await post.one()
    assert await post.claim(within=5) == []

    await post.outbox.cool([claim, claim])

    assert await post.order(3) == [other]
    assert await post.state(same_chat) == State.QUEUED  # one in flight in its chat
    assert (await post.outbox.stats()).uncertain == 1


async def test_a_late_answer_frees_cooled_slots_no_second_time(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(2, 10)))
    for chat in range(1, 7):
        await post.put(chat, priority=Priority.HIGH)
    first, _ = await post.claim(2)
    await post.outbox.cool([first])
    await post.clock.sleep(3)
    await post.settle(first)

    assert await post.claim(within=6.9) == []
    assert len(await post.claim_all(within=20)) == 1  # the other slot is still in flight


async def test_a_message_expires_exactly_at_its_deadline(post: Post) -> None:
    await post.outbox.pause(BOT)
    deadline = post.clock.now() + 10
    ticket = await post.put(expires_at=deadline)

    await post.clock.sleep(9.999)
    assert await post.state(ticket) == State.QUEUED
    await post.clock.sleep(0.001)
    assert await post.state(ticket) == State.EXPIRED
    await post.outbox.resume(BOT)
    assert await post.order() == []
    assert (await post.outbox.stats()).expired == 1


async def test_a_message_being_sent_does_not_expire(post: Post) -> None:
    ticket = await post.put(expires_at=post.clock.now() + 5)
    claim = await post.one()
    await post.clock.sleep(20)

    assert await post.state(ticket) == State.SENDING
    record = await post.settle(claim)
    assert record is not None
    assert record.state == State.DELIVERED


async def test_a_delivered_message_stays_delivered_when_its_deadline_passes(post: Post) -> None:
    ticket = await post.put(expires_at=post.clock.now() + 5)
    await post.send()
    await post.clock.sleep(10)

    assert await post.state(ticket) == State.DELIVERED
    assert ((await post.outbox.stats()).delivered, (await post.outbox.stats()).expired) == (1, 0)


@pytest.mark.parametrize("outcome", [Retry(1, "502"), Refused(1), NotSent("x"), Unknown("x"), Migrated(-6)])
async def test_a_message_that_comes_back_after_its_deadline_expires(post: Post, outcome: Outcome) -> None:
    ticket = await post.put(-5, expires_at=post.clock.now() + 5)
    claim = await post.one()
    await post.clock.sleep(6)

    record = await post.settle(claim, outcome)

    assert record is not None
    assert record.state == State.EXPIRED
    assert await post.state(ticket) == State.EXPIRED
    assert await post.order(10) == []


async def test_an_expired_head_lets_the_next_pass(post: Post) -> None:
    await post.put(expires_at=post.clock.now() + 5)
    following = await post.put()
    await post.send(Retry(100, "502"))
    waiting = await post.begin(post.outbox.claim(1))

    async with post.clock.timeout(5 + SOON):
        [claim] = await waiting
    assert claim.message.id == following


async def test_a_scheduled_message_can_expire_before_it_is_due(post: Post) -> None:
    now = post.clock.now()
    ticket = await post.put(not_before=now + 10, expires_at=now + 5)
    await post.clock.sleep(20)

    assert await post.state(ticket) == State.EXPIRED
    assert await post.order() == []


async def test_a_second_put_with_a_dedup_key_gives_the_first_ticket(post: Post) -> None:
    first = await post.put(dedup_key="k", dedup_for=100)
    [second] = await post.outbox.put([post.message(dedup_key="k")])

    assert (second.id, second.fresh) == (first, False)
    assert await post.order() == [first]
    assert await post.put(dedup_key="k") == first  # delivered already
    assert await post.put(2, dedup_key="k") == first  # whatever the chat
    assert await post.order() == []


async def test_within_one_batch_a_dedup_key_counts_once(post: Post) -> None:
    tickets = await post.put_many(3, dedup_key="k")

    assert len(set(tickets)) == 1
    assert await post.order() == tickets[:1]


async def test_bots_do_not_share_dedup_keys(post: Post) -> None:
    assert await post.put(dedup_key="k") != await post.put(dedup_key="k", bot=OTHER_BOT)


@pytest.mark.parametrize("sent", [True, False])
async def test_after_its_lifetime_a_dedup_key_counts_anew(
    post: Post,
    sent: bool,  # noqa: FBT001  (a case)
) -> None:
    first = await post.put(dedup_key="k", dedup_for=100)
    if sent:
        await post.order()
    await post.clock.sleep(98)
    assert await post.put(dedup_key="k", dedup_for=100) == first

    await post.clock.sleep(2)

    second = await post.put(dedup_key="k", dedup_for=100)
    assert second != first
    assert second in await post.order()


async def test_a_dedup_key_lives_longer_than_the_record_would(open_post: OpenPost) -> None:
    post = await open_post(keep=10)
    first = await post.put(dedup_key="k", dedup_for=1000)
    await post.order()
    await post.clock.sleep(900)

    assert await post.put(dedup_key="k") == first
    assert await post.state(first) == State.DELIVERED


async def edit(post: Post, text: str = "x", chat: int = 1, **fields: object) -> TicketId:
    return await post.put(chat, params={"text": text}, coalesce_key="progress", **fields)


async def test_a_newer_one_takes_the_place_of_one_that_waits(post: Post) -> None:
    old = await edit(post, "10 %")
    following = await post.put()
    new = await edit(post, "20 %")

    assert await post.state(old) == State.REPLACED
    sent = [message for _, message in await post.run(1)]
    assert [message.id for message in sent] == [new, following]
    assert sent[0].params == {"text": "20 %"}
    assert (await post.outbox.stats()).replaced == 1


async def test_one_that_is_being_sent_is_not_replaced(post: Post) -> None:
    old = await edit(post)
    claim = await post.one()
    new = await edit(post)
    newer = await edit(post)

    await post.settle(claim)

    assert await post.state(old) == State.DELIVERED
    assert await post.state(new) == State.REPLACED
    assert await post.order() == [newer]


async def test_coalesce_keys_belong_to_their_chat(post: Post) -> None:
    tickets = [await edit(post, chat=chat) for chat in (1, 2)]

    assert sorted(await post.order()) == tickets


async def test_a_newer_one_starts_with_no_attempts_and_the_older_keeps_its_own(post: Post) -> None:
    old = await edit(post, max_attempts=2)
    await post.send(Retry(5, "502"))
    new = await edit(post, max_attempts=2)

    assert (await post.record(old)).attempts == 1
    assert (await post.record(new)).attempts == 0
    record = await post.send(Retry(1, "502"), within=6)
    assert (record.message.id, record.state) == (new, State.RETRY)


async def test_a_newer_one_has_its_own_deadline(post: Post) -> None:
    await post.outbox.pause(BOT)
    now = post.clock.now()
    await edit(post, expires_at=now + 5)
    lasting = await edit(post)
    await edit(post, chat=2)
    short = await edit(post, chat=2, expires_at=now + 5)
    await post.clock.sleep(10)

    assert await post.state(lasting) == State.QUEUED
    assert await post.state(short) == State.EXPIRED


async def test_a_newer_one_goes_when_it_is_due_and_at_its_own_priority(post: Post) -> None:
    await edit(post)
    scheduled = await edit(post, not_before=post.clock.now() + 10)
    assert await post.order(9) == []

    at_once = await edit(post, priority=Priority.HIGH)

    assert await post.state(scheduled) == State.REPLACED
    assert await post.order(60) == [at_once]


async def test_a_bot_that_cannot_send_holds_its_messages_and_no_direct_call(post: Post) -> None:
    tickets = [await post.put(chat) for chat in (1, 2)]
    other = await post.put(3, bot=OTHER_BOT)
    record = await post.send(Unreachable(20, "no route"))

    assert (record.state, record.attempts) == (State.QUEUED, 0)
    assert await post.order(10) == [other]
    assert (
        "its bot cannot send (no route): it tries again in 10.0 s" in (await post.why(tickets[1])).waits_for
    )
    for priority in Priority:
        async with post.clock.timeout(SOON):
            await post.outbox.end_turn(await post.turn(9, priority=priority), NotSent("x"))
        await post.clock.sleep(1)
    assert await post.order(60) == tickets[::-1]  # the one that failed lets the other find out


async def test_while_a_bot_cannot_send_one_message_at_a_time_finds_out_whether_it_can(post: Post) -> None:
    tickets = [await post.put(chat) for chat in range(1, 9)]
    await post.put(1, bot=OTHER_BOT)
    claims = {claim.message.id: claim for claim in await post.claim_all()}
    first, under_way = claims.pop(tickets[0]), claims.pop(tickets[1])
    await post.settle(first, Unreachable(4, "502"))
    await post.settle(under_way, Unreachable(3.9, "502"))  # it does not make the wait longer
    for claim in claims.values():
        await post.settle(claim, NotSent("x"))
    [other] = await post.claim_all(within=3)
    assert (other.message.bot, other.probe) == (OTHER_BOT, None)
    await post.settle(other)

    [probe] = await post.claim_all(within=1.5)
    assert probe.probe is not None
    assert (probe.probe.number, probe.probe.obstacle) == (1, "502")
    assert probe.probe.lasted == pytest.approx(4, abs=0.1)

    await post.settle(probe, Unreachable(5, "502"))
    assert await post.claim_all(within=4.9) == []
    [second] = await post.claim_all(within=1)
    assert second.probe is not None
    assert second.probe.number == 2
    assert second.message.id not in {probe.message.id, first.message.id, under_way.message.id}

    await post.settle(second, DELIVERED)
    left = await post.claim_all(within=16)
    assert len(left) == len(tickets) - 1
    assert {claim.probe for claim in left} == {None}


async def test_a_probe_whose_worker_died_is_followed_by_another(open_post: OpenPost) -> None:
    post = await open_post(lease=10)
    for chat in (1, 2, 3):
        await post.put(chat)
    await post.send(Unreachable(1, "502"))

    [probe] = await post.claim_all(within=5)
    [following] = await post.claim_all(within=10)

    assert probe.probe is not None
    assert following.probe is not None
    assert following.message.id != probe.message.id


@pytest.mark.parametrize("outcome", [Unknown("timeout", 1.0, wait=5.0), Unreachable(5, "connect")])
async def test_a_direct_call_can_begin_an_outage_and_end_it(post: Post, outcome: Outcome) -> None:
    await post.outbox.end_turn(await post.turn(9), outcome)
    ticket = await post.put(1)
    assert await post.claim(within=4) == []

    await post.outbox.end_turn(await post.turn(9), DELIVERED)

    claim = await post.one()
    assert (claim.message.id, claim.probe) == (ticket, None)


@pytest.mark.parametrize("outcome", [Retry(1, "502", counted=False), Unknown("x"), NotSent("x")])
async def test_what_tells_nothing_about_the_bot_ends_no_outage(post: Post, outcome: Outcome) -> None:
    for chat in range(1, 4):
        await post.put(chat)
    await post.send(Unreachable(1, "502"))
    await post.send(outcome, within=2)

    claims = await post.claim_all(within=0.9)

    assert [claim.probe is not None for claim in claims] == [True]


async def test_a_failure_that_may_be_telegrams_costs_no_attempt(post: Post) -> None:
    ticket = await post.put(max_attempts=1)

    record = await post.send(Retry(3, "server_error", counted=False))

    assert (record.state, record.attempts, record.reason) == (State.RETRY, 0, "server_error")
    assert await post.claim(within=2.9) == []
    assert (await post.one(within=0.2)).message.id == ticket


async def test_what_stays_unknown_is_parked_and_never_dead(post: Post) -> None:
    ticket = await post.put(max_attempts=2)

    await post.send(Unknown("timeout", 1))
    await post.send(Unknown("timeout", 1), within=2)

    record = await post.record(ticket)
    assert (record.state, record.reason, record.attempts) == (State.PARKED, "unknown", 2)
