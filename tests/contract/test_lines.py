"""The order of sending: within a line, shares between priorities, limits, and no line blocks another."""

import itertools
from collections import Counter

import pytest

from contract.conftest import OpenPost
from contract.post import BOT, OTHER_BOT, SOON, Post
from tidegate.model import NotSent, Priority, Rate, Retry, State
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules


async def test_what_was_put_is_claimed_and_settled(post: Post) -> None:
    ticket = await post.put(7, params={"text": "Hello"})
    assert await post.state(ticket) == State.QUEUED

    claim = await post.one()
    assert (claim.message.id, claim.message.chat_id, claim.attempt) == (ticket, 7, 1)
    assert claim.message.params == {"text": "Hello"}
    assert await post.state(ticket) == State.SENDING

    record = await post.settle(claim)
    assert record == await post.record(ticket)
    assert record is not None
    assert (record.state, record.attempts, record.result) == (State.DELIVERED, 1, {"message_id": 1})
    assert record.settled_at == post.clock.now()


async def test_a_batch_is_accepted_in_order(post: Post) -> None:
    tickets = await post.put_many(20)

    assert await post.order() == tickets


async def test_a_put_told_twice_is_stored_once(post: Post) -> None:
    message = post.message()
    await post.outbox.put([message])

    [again] = await post.outbox.put([message])

    assert (again.id, again.fresh) == (message.id, False)
    assert await post.order() == [message.id]


async def test_a_claim_takes_no_more_than_its_room(post: Post) -> None:
    for chat in range(1, 11):
        await post.put(chat, priority=Priority.HIGH)

    assert len(await post.claim(3)) == 3
    assert len(await post.claim(100)) == 7


async def test_one_call_is_in_flight_for_each_chat(post: Post) -> None:
    first, second = await post.put_many(2, priority=Priority.HIGH)
    low = await post.put(priority=Priority.LOW)

    claim = await post.one()
    assert claim.message.id == first
    assert await post.claim(within=10) == []

    await post.settle(claim)
    assert sorted(await post.order()) == [second, low]


async def test_of_two_lines_of_a_priority_the_one_whose_head_came_first_goes_first(
    open_post: OpenPost,
) -> None:
    post = await open_post(Rules(bot=Rate(1, 1), private=Rate(1, 60)))
    await post.put(1)
    await post.run(0.5)
    blocked = await post.put(1)  # its chat may send again after a minute
    others = [await post.put(chat) for chat in range(2, 90)]

    order = await post.order(100)

    assert order.index(blocked) == 59  # as soon as it may, before those that came later
    assert [ticket for ticket in order if ticket != blocked] == others


async def test_priorities_share_16_to_4_to_1_where_all_may_go(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(21, 1)))
    for chat in range(1, 601):
        for base, priority in enumerate(Priority):
            await post.put(chat + 1000 * base, priority=priority)

    sent = Counter(message.priority for _, message in await post.run(20))

    total = sum(sent.values())
    assert total >= 0.9 * 21 * 20
    assert sent[Priority.HIGH] / total == pytest.approx(16 / 21, abs=0.02)
    assert sent[Priority.NORMAL] / total == pytest.approx(4 / 21, abs=0.02)
    assert sent[Priority.LOW] / total == pytest.approx(1 / 21, abs=0.02)


@pytest.mark.parametrize(("first", "late"), [(Priority.HIGH, Priority.LOW), (Priority.LOW, Priority.HIGH)])
async def test_a_priority_that_was_absent_gets_its_share_and_no_arrears(
    open_post: OpenPost, first: Priority, late: Priority
) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))
    await post.outbox.put([post.message(chat, priority=first) for chat in range(1, 601)])
    assert len(await post.run(30)) > 250

    await post.outbox.put([post.message(chat, priority=late) for chat in range(1001, 1301)])
    sent = Counter(message.priority for _, message in await post.run(17))

    assert sum(sent.values()) > 150
    assert sent[Priority.LOW] / sum(sent.values()) == pytest.approx(1 / 17, abs=0.03)


async def test_low_goes_on_however_much_high_comes(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))
    low = await post.put(1, priority=Priority.LOW)
    for chat in range(2, 500):
        await post.put(chat, priority=Priority.HIGH)

    assert low in await post.order(3)


async def test_a_chat_with_10_000_messages_does_not_slow_the_others(open_post: OpenPost) -> None:
    post = await open_post(Rules())
    await post.put_many(10_000, 1)
    for chat in range(2, 92):
        await post.put(chat)

    sent = await post.run(4.0)

    others = [at for at, message in sent if message.chat_id != 1]
    assert len(others) == 90
    assert max(others) < 3.3  # 30 in a second, and now and then one for the chat with many


async def test_a_message_not_due_yet_lets_later_ones_pass(post: Post) -> None:
    due = post.clock.now() + 60
    scheduled = await post.put(not_before=due)
    at_once = await post.put()

    assert await post.order(59) == [at_once]
    [(at, message)] = await post.run(10)

    assert message.id == scheduled
    assert at == pytest.approx(1, abs=0.01)


async def test_bots_have_their_own_limits(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 10)))
    for bot in (BOT, OTHER_BOT):
        for chat in (1, 2):
            await post.put(chat, bot=bot)

    sent = await post.run(5)

    assert Counter(message.bot for _, message in sent) == {BOT: 1, OTHER_BOT: 1}


@pytest.mark.parametrize(("chat", "seconds"), [(5, 4.0), (-5, 9.0)])
async def test_a_chat_keeps_its_own_limit(open_post: OpenPost, chat: int, seconds: float) -> None:
    post = await open_post(Rules(private=Rate(1, 1), group=Rate(2, 4)))
    await post.put_many(5, chat)

    sent = await post.run(20)

    assert len(sent) == 5
    assert sent[-1][0] == pytest.approx(4.0 if chat > 0 else 8.0, abs=0.1)
    assert sent[-1][0] <= seconds + 1e-3  # clocks that are shared count in microseconds


async def test_slots_are_free_again_after_the_answer_not_after_the_claim(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 1), private=Rate(1, 1)))
    await post.put(1)
    await post.put(2)
    claim = await post.one()
    await post.clock.sleep(5)
    await post.settle(claim)

    [(at, _)] = await post.run(3)

    assert at == pytest.approx(1, abs=0.01)


async def test_an_answer_that_is_told_late_frees_its_slots_by_its_age(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 1), private=Rate(1, 1)))
    await post.put(1)
    await post.put(2)
    claim = await post.one()
    await post.clock.sleep(5)
    await post.settle(claim, age=0.7)

    [(at, _)] = await post.run(3)

    assert at == pytest.approx(0.3, abs=0.01)


async def test_an_answer_after_the_slots_began_to_cool_is_what_counts(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 10), private=Rate(1, 10)))
    await post.put(1)
    claim = await post.one()
    await post.clock.sleep(5)
    await post.outbox.cool([claim])
    await post.clock.sleep(3)
    await post.settle(claim)
    await post.put(1)

    [(at, _)] = await post.run(20)

    assert at == pytest.approx(10, abs=0.01)


async def test_what_was_not_sent_gives_its_slots_back_at_once_and_counts_nothing(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 60), private=Rate(1, 60)))
    ticket = await post.put()

    record = await post.send(NotSent("too late"))
    assert (record.state, record.attempts, record.crashes) == (State.QUEUED, 0, 0)

    claim = await post.one()
    assert (claim.message.id, claim.attempt) == (ticket, 1)


async def test_what_was_not_sent_stays_first_in_its_line(post: Post) -> None:
    tickets = await post.put_many(3)

    await post.send(NotSent("too late"))

    assert await post.order() == tickets


async def test_normal_and_low_are_spaced_and_high_is_not(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))
    for chat in range(1, 6):
        await post.put(chat)
        await post.put(chat + 100, priority=Priority.HIGH)

    sent = await post.run(1)

    normal = [at for at, message in sent if message.priority == Priority.NORMAL]
    assert [at for at, message in sent if message.priority == Priority.HIGH] == [0.0] * 5
    assert [later - at for at, later in itertools.pairwise(normal)] == pytest.approx([0.1] * 4)


async def test_an_album_takes_a_slot_for_each_item(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1), group=Rate(10, 60)))
    await post.album(7, -1, priority=Priority.HIGH)
    await post.put(-1, priority=Priority.HIGH)
    for chat in range(1, 5):
        await post.put(chat, priority=Priority.HIGH)

    sent = await post.run(0.9)

    assert len(sent) == 4  # the album, and three more of cost 1
    assert len(await post.run(1.0)) == 2


async def test_an_album_larger_than_the_limit_goes_when_nothing_else_counts(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(4, 1), private=Rate(4, 1)))
    await post.put(1, priority=Priority.HIGH)
    album = await post.album(10, 2, priority=Priority.HIGH)
    after = await post.put(3, priority=Priority.HIGH)

    sent = {message.id: at for at, message in await post.run(10)}

    assert sent[album] >= 1.0
    assert sent[after] == 0.0 or sent[after] - sent[album] >= 2.5 - 0.001  # W · 10/4
    assert len(sent) == 3


async def test_an_album_is_not_starved_by_cheap_messages_of_other_chats(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))
    album = await post.album(10, 1)
    for chat in range(2, 600):
        await post.put(chat, priority=Priority.HIGH)
        await post.put(chat + 1000)

    order = await post.run(15)

    assert album in [message.id for _, message in order]
    assert len(order) > 100  # and those wait for it only once


async def test_an_album_is_not_starved_by_cheap_messages_of_its_chat(open_post: OpenPost) -> None:
    post = await open_post(Rules(group=Rate(5, 5)))
    album = await post.album(5, -1, priority=Priority.LOW)
    await post.put_many(200, -1, priority=Priority.HIGH)

    assert album in await post.order(60)


@pytest.mark.parametrize("how", ["cancel", "pause"])
async def test_once_an_album_no_longer_waits_its_chat_goes_on(open_post: OpenPost, how: str) -> None:
    post = await open_post(Rules(group=Rate(5, 5)))
    album = await post.album(5, -1, priority=Priority.LOW)
    await post.put_many(200, -1, priority=Priority.HIGH)
    while len(sent := await post.run(1)) > 0 and sent[0][1].id != album:
        pass  # until the next slots are kept for the album
    if how == "cancel":
        await post.outbox.cancel([album])
        assert len(await post.order(30)) > 20
    else:
        await post.outbox.pause(BOT, -1)
        assert not await post.no_turn(-1, within=10)


async def test_paid_broadcasts_have_a_limit_of_their_own(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 10), paid=Rate(5, 10)))
    paid = {"text": "x", "allow_paid_broadcast": True}
    for chat in range(1, 11):
        await post.put(chat, params=paid if chat > 3 else {"text": "x"}, priority=Priority.HIGH)

    sent = await post.run(9)

    assert sum("allow_paid_broadcast" in message.params for _, message in sent) == 5
    assert len(sent) == 6


async def test_chat_actions_have_a_budget_of_their_own(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 60), private=Rate(1, 60), actions=(Rate(3, 60),)))
    await post.put(1)
    for _ in range(5):
        await post.put(1, method="sendChatAction", params={"action": "typing"})

    sent = await post.run(50)

    assert Counter(message.method for _, message in sent) == {"sendMessage": 1, "sendChatAction": 3}


async def test_what_costs_nothing_waits_for_no_limit(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(2, 60), private=Rate(1, 60)))
    for _ in range(5):
        await post.put(1, method="deleteMessage", params={"message_id": 1})

    assert len(await post.run(5)) == 5


async def test_urgent_takes_slots_where_none_is_free_and_the_debt_is_real(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 10), private=Rate(1, 10)))
    await post.put(1)
    await post.run(1)
    waiting = await post.put(2)
    urgent = await post.put(1, urgent=True)

    assert await post.order(1) == [urgent]
    assert (await post.outbox.stats()).urgent == 1

    [(at, message)] = await post.run(20)
    assert message.id == waiting
    assert at == pytest.approx(9, abs=0.01)  # 10 after the urgent one, not after the first


async def test_urgent_is_counted_only_if_no_slot_was_free(post: Post) -> None:
    await post.put(urgent=True)
    await post.run(1)

    assert (await post.outbox.stats()).urgent == 0


async def test_urgent_is_counted_if_only_its_chat_was_full(open_post: OpenPost) -> None:
    post = await open_post(Rules(private=Rate(1, 10)))
    await post.put(1)
    await post.run(1)
    await post.put(1, urgent=True)
    await post.run(1)

    assert (await post.outbox.stats()).urgent == 1


async def test_a_paused_chat_holds_what_is_queued_and_nobody_else(post: Post) -> None:
    held = await post.put(1)
    typing = await post.put(1, method="sendChatAction", params={"action": "typing"})
    await post.outbox.pause(BOT, 1)
    later = await post.put(1)
    other = await post.put(2)

    assert await post.order(60) == [other]
    assert not await post.no_turn(1)

    await post.outbox.resume(BOT, 1)
    assert sorted(await post.order()) == sorted([held, typing, later])


async def test_a_paused_bot_holds_what_is_queued_and_no_other_bot(post: Post) -> None:
    held = await post.put(1)
    await post.outbox.pause(BOT)
    later = await post.put(2)
    other = await post.put(1, bot=OTHER_BOT)

    assert await post.order(60) == [other]
    assert not await post.no_turn(1)

    await post.outbox.resume(BOT)
    assert sorted(await post.order()) == sorted([held, later])


async def test_a_claimer_that_waits_is_woken_by_a_put(post: Post) -> None:
    waiting = await post.begin(post.outbox.claim(1))

    ticket = await post.put(1)

    [claim] = await waiting
    assert claim.message.id == ticket


async def test_cancelling_a_head_that_backs_off_lets_the_next_one_go_at_once(post: Post) -> None:
    head = await post.put()
    following = await post.put()
    await post.send(Retry(1000, "down"))
    waiting = await post.begin(post.outbox.claim(1))
    await post.clock.sleep(1)

    await post.outbox.cancel([head])

    async with post.clock.timeout(SOON):
        [claim] = await waiting
    assert claim.message.id == following


async def test_a_cancelled_claim_takes_nothing(outbox: Outbox, post: Post) -> None:
    waiting = await post.begin(outbox.claim(10))
    await post.cancel(waiting)
    ticket = await post.put()

    assert await post.state(ticket) == State.QUEUED
    assert await post.order() == [ticket]


async def test_a_claim_cancelled_in_the_instant_it_is_granted_takes_nothing(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 60), private=Rate(1, 60)))
    waiting = await post.begin(post.outbox.claim(10))
    ticket = await post.put()  # grants it; the claimer has not run yet
    await post.cancel(waiting)

    assert await post.state(ticket) == State.QUEUED
    claim = await post.one()
    assert (claim.message.id, claim.attempt) == (ticket, 1)


async def test_several_claimers_share_what_may_go(post: Post) -> None:
    claimers = [await post.begin(post.outbox.claim(1)) for _ in range(5)]
    tickets = [await post.put(chat) for chat in range(1, 6)]

    claimed = [claim.message.id for claimer in claimers for claim in await claimer]

    assert sorted(claimed) == sorted(tickets)
