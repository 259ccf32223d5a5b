"""The verbs of operators: find, why, cancel, wait for ends, dead letters, numbers."""

import asyncio
import sys

import pytest

from contract.conftest import OpenPost
from contract.post import BOT, DELIVERED, OTHER_BOT, SOON, Post
from tidegate.errors import BadInputError
from tidegate.model import (
    Dead,
    Outcome,
    Priority,
    Rate,
    Record,
    Refused,
    Retry,
    State,
    TicketId,
    Unknown,
    Unreachable,
)
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules

BAD = Dead("bad_request", "no")
BLOCKED = Dead("blocked", "gone", whole_chat=True)
LETTERS = frozenset({State.DEAD, State.PARKED})


async def test_what_was_never_put_is_not_found(outbox: Outbox) -> None:
    assert await outbox.find(TicketId("?")) is None
    assert await outbox.why(TicketId("?")) is None
    with pytest.raises(LookupError, match="never put"):
        await outbox.settled(TicketId("?"))


async def test_what_ended_is_forgotten_after_a_while(open_post: OpenPost) -> None:
    post = await open_post(keep=60)
    ticket = await post.put()
    await post.order(1)
    await post.clock.sleep(58)
    assert await post.state(ticket) == State.DELIVERED

    await post.clock.sleep(2)

    assert await post.outbox.find(ticket) is None
    assert (await post.outbox.stats()).delivered == 1


async def test_cancel_takes_out_what_is_not_being_sent(post: Post) -> None:
    sending, queued = await post.put_many(2, 1)
    scheduled = await post.put(1, not_before=post.clock.now() + 10)
    retry = await post.put(2)
    first, second = await post.claim_all()
    await post.settle(second, Retry(5, "502"))

    assert await post.outbox.cancel([sending, queued, scheduled, retry, retry, TicketId("?")]) == 3

    assert await post.state(queued) == await post.state(scheduled) == await post.state(retry)
    assert await post.state(retry) == State.CANCELLED
    assert await post.settle(first) is not None
    assert await post.order(60) == []
    assert await post.outbox.cancel([sending, queued]) == 0


async def test_a_message_is_found_and_cancelled_by_its_dedup_key(post: Post) -> None:
    ticket = await post.put(1, dedup_key="order 5", dedup_for=60.0, not_before=post.clock.now() + 300)
    other = await post.put(1, dedup_key="order 5", bot=OTHER_BOT)
    assert await post.outbox.find_by_key(OTHER_BOT, "order 5") == other
    assert await post.outbox.find_by_key(BOT, "order") is None
    await post.clock.sleep(120)  # it still waits, though its key no longer counts

    found = await post.outbox.find_by_key(BOT, "order 5")

    assert found == ticket
    assert await post.outbox.cancel([found]) == 1
    assert await post.state(ticket) == State.CANCELLED


async def test_a_newer_message_with_a_dedup_key_is_the_one_that_is_found(post: Post) -> None:
    await post.put(1, dedup_key="order 5", dedup_for=60.0)
    await post.order(1)
    await post.clock.sleep(61)

    newer = await post.put(1, dedup_key="order 5", dedup_for=60.0)

    assert await post.outbox.find_by_key(BOT, "order 5") == newer


async def test_settled_waits_for_the_end_of_a_message(post: Post) -> None:
    ticket = await post.put()
    waiting = await post.begin(post.outbox.settled(ticket))
    await post.send(Retry(5, "502"))
    assert not waiting.done()

    await post.run(10)

    assert (await waiting).state == State.DELIVERED
    assert (await post.outbox.settled(ticket)).state == State.DELIVERED


@pytest.mark.parametrize("outcome", [BAD, Unknown("no answer")])
async def test_settled_tells_of_dead_and_parked_ones(post: Post, outcome: Dead | Unknown) -> None:
    ticket = await post.put(on_unknown="park")
    waiting = await post.begin(post.outbox.settled(ticket))
    await post.send(outcome)

    assert (await waiting).state in {State.DEAD, State.PARKED}


async def test_settled_tells_of_an_expiry_though_nobody_claims(post: Post) -> None:
    ticket = await post.put(expires_at=post.clock.now() + 10)

    record = await post.outbox.settled(ticket)

    assert record.state == State.EXPIRED
    assert post.clock.monotonic() == pytest.approx(10, abs=0.01)


async def test_settled_tells_of_a_crash_though_nobody_claims(open_post: OpenPost) -> None:
    post = await open_post(lease=10)
    ticket = await post.put(on_unknown="park")
    waiting = await post.begin(post.outbox.settled(ticket))
    await post.one()

    async with post.clock.timeout(11):
        assert (await waiting).state == State.PARKED


async def test_settled_may_be_cancelled_and_others_still_hear(post: Post) -> None:
    ticket = await post.put()
    first = await post.begin(post.outbox.settled(ticket))
    second = await post.begin(post.outbox.settled(ticket))
    await post.cancel(first)
    await post.run(1)

    assert (await second).state == State.DELIVERED


async def test_drained_waits_until_nothing_waits_or_moves(post: Post) -> None:
    await post.outbox.drained()
    await post.put(1)
    await post.put(2)
    await post.put(1, bot=OTHER_BOT)
    everything = await post.begin(post.outbox.drained())
    one_bot = await post.begin(post.outbox.drained(OTHER_BOT))
    claims = await post.claim_all()
    assert not everything.done()
    assert not one_bot.done()

    for claim in sorted(claims, key=lambda claim: -claim.message.bot):
        await post.settle(claim)
        await post.clock.sleep(0.001)
        assert one_bot.done()
    await everything


async def test_drained_does_not_wait_for_dead_and_parked_ones(post: Post) -> None:
    await post.put(1)
    await post.put(2, on_unknown="park")
    await post.send(BAD)
    await post.send(Unknown("no answer"))

    await post.outbox.drained()


async def test_drained_hears_of_an_expiry_though_nobody_claims(post: Post) -> None:
    await post.put()
    drained = await post.begin(post.outbox.drained())
    late = await post.put(expires_at=post.clock.now() + 10)
    await post.run(0.5, room=1)
    async with post.clock.timeout(11):
        await drained
    assert await post.state(late) == State.DELIVERED

    await post.outbox.pause(BOT)
    await post.put(2, expires_at=post.clock.now() + 10)
    async with post.clock.timeout(11):
        await post.outbox.drained()


async def waits_for(post: Post, ticket: TicketId) -> str:
    return "; ".join((await post.why(ticket)).waits_for)


async def test_why_names_each_thing_a_message_waits_for(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(2, 100), private=Rate(1, 10), burst=1))
    scheduled = await post.put(9, not_before=post.clock.now() + 5)
    assert "its time comes in 5.0 s" in await waits_for(post, scheduled)

    first, second = await post.put_many(2, 1, priority=Priority.HIGH)
    assert "it may go" in await waits_for(post, first)
    assert "1 before it in its line" in await waits_for(post, second)

    claim = await post.one()
    assert await waits_for(post, first) == "it is being sent"
    assert "another call to its chat is in flight" in await waits_for(post, second)

    await post.settle(claim)
    assert "the limit of its chat is full for 10.0 s" in await waits_for(post, second)
    assert (await post.why(second)).expected_in == pytest.approx(10)

    await post.put(2, priority=Priority.HIGH)
    await post.send()
    third = await post.put(3)
    assert "the limit of its bot is full" in await waits_for(post, third)

    await post.outbox.pause(BOT, 3)
    assert "its chat is paused" in await waits_for(post, third)
    assert (await post.why(third)).expected_in is None
    await post.outbox.pause(BOT)
    assert "its bot is paused" in await waits_for(post, third)
    assert (await post.why(first)).waits_for == ()


async def test_why_names_a_backing_off_and_a_429(post: Post) -> None:
    retried = await post.put(1)
    await post.send(Retry(7, "502"))
    assert "the next attempt is in 7.0 s" in await waits_for(post, retried)
    await post.outbox.cancel([retried])

    refused = [await post.put(chat, priority=Priority.HIGH) for chat in (2, 3)]
    claims = await post.claim_all()
    await post.settle(claims[0], Refused(20))
    assert "a 429 has closed its chat for 20.0 s" in await waits_for(post, refused[0])
    await post.settle(claims[1], Refused(20))
    assert "a 429 has closed its bot for 20.0 s" in await waits_for(post, refused[0])


async def bury(post: Post) -> list[TicketId]:
    """Three letters: bad_request of chat 1, blocked of chat 2, parked of another bot's chat 1."""
    tickets = [await post.put(1), await post.put(2), await post.put(1, bot=OTHER_BOT, on_unknown="park")]
    outcomes = {1: BAD, 2: BLOCKED}
    for claim in await post.claim_all():
        other = claim.message.bot == OTHER_BOT
        await post.settle(claim, Unknown("no answer") if other else outcomes[int(claim.message.chat_id)])
        await post.clock.sleep(0.1)
    return tickets


async def test_dead_letters_are_listed_by_what_one_asks_for(post: Post) -> None:
    bad, blocked, parked = await bury(post)

    async def listed(**filters: object) -> list[TicketId]:
        return [record.message.id for record in await post.outbox.dead(**filters)]  # type: ignore[arg-type]

    assert sorted(await listed()) == [bad, blocked, parked]
    assert sorted(await listed(bot=BOT)) == [bad, blocked]
    assert sorted(await listed(chat_id=1)) == [bad, parked]
    assert await listed(reason="blocked") == [blocked]
    assert await listed(states=frozenset({State.PARKED})) == [parked]
    assert await listed(bot=BOT, chat_id=1, reason="blocked") == []
    assert len(await listed(limit=2)) == 2


async def test_dead_letters_are_counted_by_bot_state_and_reason(post: Post) -> None:
    assert await post.outbox.letters_by_reason() == []
    first_at = post.clock.now()
    bad, blocked, parked = await bury(post)
    await post.clock.sleep(60)
    again = await post.put(3)
    [claim] = await post.claim_all()
    await post.settle(claim, Dead("bad_request", "another no"))

    groups = await post.outbox.letters_by_reason()

    found = {(one.bot, one.state, one.reason): (one.count, one.latest) for one in groups}
    assert found == {
        (BOT, State.DEAD, "bad_request"): (2, again),
        (BOT, State.DEAD, "blocked"): (1, blocked),
        (OTHER_BOT, State.PARKED, "unknown"): (1, parked),
    }
    [largest, *_] = groups
    assert largest.reason == "bad_request"
    assert largest.first_at == pytest.approx(first_at, abs=2)
    assert largest.last_at == pytest.approx(post.clock.now(), abs=2)
    assert [one.reason for one in await post.outbox.letters_by_reason(OTHER_BOT)] == ["unknown"]
    before = await post.outbox.letters_by_reason(BOT, post.clock.now() - 30)
    assert {(one.reason, one.count, one.latest) for one in before} == {
        ("bad_request", 1, bad),
        ("blocked", 1, blocked),
    }
    await post.outbox.replay([bad, parked])
    await post.outbox.drop([blocked])
    assert [(one.count, one.latest) for one in await post.outbox.letters_by_reason()] == [(1, again)]


async def test_all_messages_are_listed_if_the_limit_is_the_largest_number(post: Post) -> None:
    tickets = await post.put_many(3)
    queued = frozenset({State.QUEUED})

    found = await post.outbox.records(states=queued, limit=sys.maxsize)

    assert [record.message.id for record in found] == tickets


async def test_letters_of_one_reason_are_listed_oldest_first(post: Post) -> None:
    tickets = [await post.put(chat) for chat in (1, 2, 3, 4)]
    for claim in await post.claim_all():
        await post.settle(claim, BAD)
        await post.clock.sleep(1)
    later = post.clock.now()

    found = await post.outbox.records(
        bot=BOT, states=frozenset({State.DEAD}), reason="bad_request", before=later - 1.5, limit=2
    )

    assert [record.message.id for record in found] == tickets[:2]
    others = await post.outbox.records(bot=BOT, states=frozenset({State.DEAD}), reason="blocked")
    assert others == []


async def test_dead_letters_come_oldest_first(post: Post) -> None:
    tickets = await post.put_many(5)
    for _ in tickets:
        await post.send(BAD)

    assert [record.message.id for record in await post.outbox.dead()] == tickets


async def test_a_replayed_letter_is_queued_as_if_put_now(post: Post) -> None:
    bad, blocked, parked = await bury(post)
    waiting = await post.put(1)

    assert await post.outbox.replay([bad, parked, waiting, TicketId("?")]) == 2

    record = await post.record(bad)
    assert (record.state, record.attempts, record.crashes) == (State.QUEUED, 0, 0)
    assert record.reason is None
    assert record.settled_at is None
    order = await post.order()
    assert order.index(waiting) < order.index(bad)
    assert sorted(order) == sorted([bad, parked, waiting])
    assert [letter.message.id for letter in await post.outbox.dead()] == [blocked]


async def test_a_dropped_letter_is_forgotten(post: Post) -> None:
    bad, blocked, parked = await bury(post)
    waiting = await post.put(5)

    assert await post.outbox.drop([bad, parked, waiting, TicketId("?")]) == 2

    assert await post.outbox.find(bad) is None
    assert [letter.message.id for letter in await post.outbox.dead()] == [blocked]
    stats = await post.outbox.stats()
    assert (stats.dead, stats.parked, stats.waiting) == (1, 0, 1)


async def test_letters_are_kept_until_someone_decides(open_post: OpenPost) -> None:
    post = await open_post(keep=10)
    bad, *_ = await bury(post)
    await post.clock.sleep(100_000)

    assert await post.state(bad) == State.DEAD


async def test_the_numbers_add_up(post: Post) -> None:
    for chat in range(1, 31):
        priority = list(Priority)[chat % 3]
        await post.put(chat, priority=priority, on_unknown="park" if chat % 2 else "resend")
    expiring = await post.put(99, expires_at=post.clock.now() + 1, not_before=post.clock.now() + 2)
    await post.outbox.cancel([await post.put(100)])
    claims = (await post.claim_all(within=0.5))[:10]
    outcomes: list[Outcome] = [
        DELIVERED,
        DELIVERED,
        Retry(99, "x"),
        BAD,
        BAD,
        BAD,
        Unknown("x", 99),
        Unknown("x", 99),
    ]
    for claim, outcome in zip(claims, outcomes, strict=False):
        await post.settle(claim, outcome)
    await post.clock.sleep(1)

    stats = await post.outbox.stats()

    assert stats.delivered == 2
    assert stats.dead == 3
    assert stats.retry + stats.parked == 3
    assert stats.expired == 1
    assert stats.cancelled == 1
    assert await post.state(expiring) == State.EXPIRED
    ended = stats.delivered + stats.dead + stats.parked + stats.expired + stats.cancelled + stats.replaced
    assert stats.waiting + stats.sending + ended == 32


async def test_who_waits_for_a_message_that_is_erased_does_not_wait_for_ever(post: Post) -> None:
    ticket = await post.put(1)
    await post.outbox.pause(BOT)
    waiting = await post.begin(post.outbox.settled(ticket))

    await post.outbox.forget(1)

    async with post.clock.timeout(SOON):
        [end] = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(end, LookupError) or (isinstance(end, Record) and end.state == State.CANCELLED)


async def test_a_chat_that_a_429_closed_for_long_is_shown_and_can_be_opened(post: Post) -> None:
    one, other = await post.put(1), await post.put(2)
    await post.send(Refused(3600))
    assert await post.order(5) == [other]

    [state] = [state for state in await post.outbox.limits() if state.closed_for > 0]
    assert (state.bot, state.chat_id) == (BOT, 1)
    assert state.closed_for == pytest.approx(3595, abs=5)
    await post.outbox.open_limits(BOT, 1)

    assert await post.order(10) == [one]
    assert [state for state in await post.outbox.limits() if state.closed_for > 0] == []


async def test_a_bot_that_429s_closed_can_be_opened_with_all_its_chats(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1000, 1)))
    tickets = {await post.put(chat) for chat in (1, 2, 3)}
    for claim in (await post.claim_all())[:2]:
        await post.settle(claim, Refused(3600))
    closed = [state for state in await post.outbox.limits() if state.closed_for > 0]
    assert {state.chat_id for state in closed} > {None}
    bots = await post.outbox.limits(chats=False)
    assert {(state.bot, state.chat_id) for state in bots} == {(BOT, None)}
    assert bots[0].closed_for > 3000

    await post.outbox.open_limits(BOT)

    assert len(await post.order(20)) == 2
    assert tickets


async def test_a_bot_that_cannot_send_is_shown_and_tries_at_once_when_it_is_opened(post: Post) -> None:
    await post.put(1)
    ticket = await post.put(2)
    await post.send(Unreachable(600, "connect"))
    assert await post.claim(within=5) == []
    assert [(state.bot, state.obstacle) for state in await post.outbox.limits()] == [(BOT, "connect")]

    await post.outbox.open_limits(BOT)

    assert (await post.one()).message.id == ticket


async def test_ids_are_found_by_their_beginning_and_their_end(post: Post) -> None:
    first, second, third = await post.put_many(3, 1)
    begin = first[:4]
    known = sorted(one for one in (first, second, third) if one.startswith(begin))

    assert await post.outbox.ids(begin) == known
    assert await post.outbox.ids("", limit=2) == sorted([first, second, third])[:2]
    assert await post.outbox.ids(first) == [first]
    assert await post.outbox.ids(first[:1], first[1:]) == [first]
    assert await post.outbox.ids("*") == await post.outbox.ids("?", first[-1]) == []


async def test_ids_of_what_is_forgotten_are_not_found(open_post: OpenPost) -> None:
    post = await open_post(keep=60)
    ticket = await post.put()
    await post.order(1)
    assert await post.outbox.ids(ticket) == [ticket]

    await post.clock.sleep(62)

    assert await post.outbox.ids(ticket) == []


async def test_messages_of_a_prefix_are_counted_and_found_however_many_steps_that_takes(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.stores.sqlite.operator.KEYS_PER_STEP", 3)
    ours = [await post.put(chat, dedup_key=f"broadcast:a:{chat}") for chat in range(1, 10)]
    await post.put(20, dedup_key="broadcast:b:1")
    await post.put(21, dedup_key="broadcast:a")
    await post.put(22)
    await post.put(1, bot=OTHER_BOT, dedup_key="broadcast:a:1")
    await post.outbox.cancel(ours[2:4])

    prefix, waits = "broadcast:a:", frozenset({State.QUEUED, State.RETRY})
    assert await post.outbox.tally(BOT, prefix) == {(State.QUEUED, None): 7, (State.CANCELLED, None): 2}
    assert {ticket async for ticket in post.outbox.keyed(BOT, prefix)} == set(ours)
    assert {ticket async for ticket in post.outbox.keyed(BOT, prefix, waits)} == {*ours[:2], *ours[4:]}
    assert await post.outbox.tally(BOT, "broadcast:none:") == {}
    assert [ticket async for ticket in post.outbox.keyed(BOT, "broadcast:none:")] == []


async def test_pages_of_messages_go_on_where_the_last_one_ended_whatever_ends_meanwhile(post: Post) -> None:
    ours = [await post.put(chat) for chat in range(1, 8)]
    await post.put(1, bot=OTHER_BOT)
    waiting = frozenset({State.QUEUED})

    first = await post.outbox.record_page(bot=BOT, states=waiting, limit=3)
    await post.outbox.cancel([ours[0], ours[2], ours[4]])  # also the one at which the page ended
    late = await post.put(9)
    second = await post.outbox.record_page(bot=BOT, states=waiting, limit=3, cursor=first.cursor)
    third = await post.outbox.record_page(bot=BOT, states=waiting, limit=3, cursor=second.cursor or "none")

    assert [one.message.id for one in first.records] == ours[:3]
    assert [one.message.id for one in second.records] == [ours[3], ours[5], ours[6]]
    assert [one.message.id for one in third.records] == [late]
    assert third.cursor == ""
    alone = await post.outbox.record_page(bot=BOT, chat_id=6, states=waiting, limit=1)
    assert [one.message.id for one in alone.records] == [ours[5]]
    assert alone.cursor == ""
    for foreign in ("x", "x_1", "-1"):
        with pytest.raises(BadInputError, match="cursor is not one of this list"):
            await post.outbox.record_page(cursor=foreign)


async def test_pages_of_dead_letters_have_each_once(post: Post) -> None:
    tickets = [await post.put(chat) for chat in range(1, 6)]
    for claim in await post.claim_all():
        await post.settle(claim, BAD)

    found, cursor, pages = list[str](), "", 0
    while not pages or cursor:
        page = await post.outbox.record_page(
            bot=BOT, states=frozenset({State.DEAD}), reason="bad_request", limit=2, cursor=cursor
        )
        found, cursor, pages = [*found, *(one.message.id for one in page.records)], page.cursor, pages + 1

    assert sorted(found) == sorted(tickets)
    assert pages == 3
    assert (await post.outbox.record_page(states=frozenset({State.PARKED}))).records == []


async def test_pages_of_dead_letters_are_in_the_order_in_which_they_died(post: Post) -> None:
    tickets = [await post.put(chat) for chat in range(1, 5)]
    claims = {claim.message.id: claim for claim in await post.claim_all()}
    died = [tickets[place] for place in (2, 0, 3, 1)]
    for ticket in died:
        await post.settle(claims[ticket], BAD)
        await post.clock.sleep(1)

    first = await post.outbox.record_page(states=LETTERS, limit=2)
    second = await post.outbox.record_page(states=LETTERS, limit=2, cursor=first.cursor)

    assert [one.message.id for one in (*first.records, *second.records)] == died
    assert [one.message.id for one in await post.outbox.dead()] == died


async def test_messages_of_a_prefix_are_listed_page_by_page_with_what_became_of_them(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.stores.sqlite.operator.KEYS_PER_STEP", 3)
    ours = [await post.put(chat, dedup_key=f"broadcast:a:{chat}") for chat in range(1, 10)]
    other = await post.put(20, dedup_key="broadcast:b:1")
    foreign = await post.put(1, bot=OTHER_BOT, dedup_key="broadcast:a:1")
    await post.outbox.cancel([*ours[2:8], other, foreign])
    prefix, cancelled = "broadcast:a:", frozenset({State.CANCELLED})

    found, cursor, pages = list[Record](), "", 0
    while not pages or cursor:
        page = await post.outbox.keyed_records(BOT, prefix, cancelled, cursor=cursor, limit=2)
        assert len(page.records) <= 2
        found, cursor, pages = [*found, *page.records], page.cursor, pages + 1

    assert {one.message.id for one in found} == set(ours[2:8])
    assert {one.state for one in found} == {State.CANCELLED}
    assert (await post.outbox.keyed_records(BOT, prefix, frozenset({State.DEAD}), limit=200)).records == []
    with pytest.raises(BadInputError, match="cursor"):
        await post.outbox.keyed_records(BOT, prefix, cancelled, cursor="broadcast:b:")
