"""A crash counts against one suspect at most: no innocent message is parked because workers were killed."""

from contract.conftest import OpenPost
from contract.post import BOT, DELIVERED, OTHER_BOT, ROOMY, Post
from tidegate.model import Claim, NotSent, Priority, Rate, State, TicketId, Unreachable
from tidegate.outbox.transitions import CRASHES_ALLOWED, SUSPECT_CRASHES
from tidegate.pacing.rules import Rules

LEASE = 10.0


async def crash(post: Post) -> list[Claim]:
    """A worker takes everything it can, and dies."""
    claims = await post.claim_all()
    await post.clock.sleep(LEASE)
    await post.outbox.stats()  # the leases run out
    return claims


async def suspects(post: Post, count: int, **fields: object) -> list[TicketId]:
    """Messages to as many chats, each of them in flight in as many crashes as make it a suspect."""
    tickets = [await post.put(chat, **fields) for chat in range(1, count + 1)]
    for _ in range(SUSPECT_CRASHES):
        assert len(await crash(post)) == count
    return tickets


def ids(claims: list[Claim]) -> list[TicketId]:
    return [claim.message.id for claim in claims]


async def crashes(post: Post, tickets: list[TicketId]) -> list[int]:
    return [(await post.record(ticket)).crashes for ticket in tickets]


async def test_after_one_crash_everything_goes_as_before(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    tickets = [await post.put(chat) for chat in range(1, 6)]
    await crash(post)

    assert ids(await post.claim_all()) == tickets


async def test_after_two_crashes_one_suspect_is_in_flight_at_a_time(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    tickets = await suspects(post, 3)
    fresh = [await post.put(chat) for chat in (11, 12)]

    first, *others = await post.claim_all()
    assert [first.message.id, *ids(others)] == [tickets[0], *fresh]
    await post.settle(first)
    [second] = await post.claim_all()
    why = await post.why(tickets[2])
    assert why.waits_for == ("2 workers died with it: it goes while no other such message is in flight",)
    await post.settle(second, NotSent("x"))  # however it ends

    assert second.message.id == tickets[1]
    assert await post.order() == tickets[1:]
    assert await crashes(post, tickets) == [SUSPECT_CRASHES] * 3


async def test_a_crash_counts_against_one_suspect_and_another_one_the_next_time(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    tickets = await suspects(post, 4)
    for _ in range(6):
        assert len(await crash(post)) == 1

    assert await crashes(post, tickets) == [4, 4, 3, 3]
    assert sorted(await post.order()) == sorted(tickets)


async def test_suspects_of_several_bots_take_turns_at_a_crash(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    tickets = [await post.put(1, bot=BOT), await post.put(1, bot=OTHER_BOT)]
    for _ in range(SUSPECT_CRASHES + 2):
        await crash(post)

    assert await crashes(post, tickets) == [SUSPECT_CRASHES + 1] * 2


async def test_a_message_that_kills_its_worker_is_parked_and_no_other(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1000, 1), private=Rate(1000, 1)), lease=LEASE)
    innocent = [await post.put(chat) for chat in range(1, 9)]
    poison = await post.put(9)
    innocent += [await post.put(chat) for chat in range(10, 21)]

    for _ in range(CRASHES_ALLOWED):
        while poison not in ids(claims := await post.claim(8, within=60)):
            for claim in claims:
                await post.settle(claim)
        await post.clock.sleep(LEASE)

    record = await post.record(poison)
    assert (record.state, record.reason) == (State.PARKED, "crashes")
    await post.order(60)
    assert {await post.state(ticket) for ticket in innocent} == {State.DELIVERED}


async def test_what_stands_behind_a_suspect_in_its_line_waits_for_it(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    first, second = await post.put(1), await post.put(2)
    for _ in range(SUSPECT_CRASHES):
        await crash(post)
    behind = await post.put(2)

    [claim] = await post.claim_all()
    assert claim.message.id == first
    await post.settle(claim)

    assert await post.order() == [second, behind]


async def test_a_suspect_of_a_bot_that_cannot_send_does_not_hold_up_the_others(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    away, other = await post.put(1, bot=BOT), await post.put(1, bot=OTHER_BOT)
    for _ in range(SUSPECT_CRASHES):
        await crash(post)
    [claim] = await post.claim_all()
    assert claim.message.id == away
    await post.settle(claim, Unreachable(30.0, "no connection"))

    assert ids(await post.claim_all()) == [other]


async def test_suspects_of_a_bot_that_can_send_again_go_one_at_a_time(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    tickets = await suspects(post, 4, priority=Priority.HIGH)  # these are not spaced
    [claim] = await post.claim_all()
    await post.settle(claim, Unreachable(5.0, "no connection"))
    assert await post.claim_all(within=4.9) == []

    assert len(await post.claim(within=1.0)) == 1
    assert await post.claim_all() == []
    assert await crashes(post, tickets) == [SUSPECT_CRASHES] * 4


async def test_a_suspect_of_a_paused_bot_does_not_hold_up_the_others(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    paused, other = await post.put(1, bot=BOT), await post.put(1, bot=OTHER_BOT)
    for _ in range(SUSPECT_CRASHES):
        await crash(post)
    await post.outbox.pause(BOT)

    assert await post.order() == [other]
    await post.outbox.resume(BOT)
    assert await post.order() == [paused]


async def test_a_suspect_that_ends_without_being_sent_lets_the_others_go(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    tickets = await suspects(post, 3)
    await post.outbox.cancel(tickets[:2])

    assert await post.order() == tickets[2:]


async def test_what_replaces_a_suspect_is_none(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    tickets = await suspects(post, 2, coalesce_key="c")
    assert ids(await post.claim_all()) == tickets[:1]
    newer = await post.put(2, coalesce_key="c")

    assert ids(await post.claim_all()) == [newer]


async def test_a_replayed_suspect_is_none_any_more(open_post: OpenPost) -> None:
    post = await open_post(lease=LEASE)
    tickets = await suspects(post, 2)
    for _ in range(2 * (CRASHES_ALLOWED - SUSPECT_CRASHES)):
        await crash(post)
    assert {await post.state(ticket) for ticket in tickets} == {State.PARKED}
    assert await post.outbox.replay(tickets) == 2

    assert ids(await post.claim_all()) == tickets


async def test_an_album_that_is_a_suspect_gets_its_slots_under_load(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1), private=ROOMY.private, group=ROOMY.group), lease=LEASE)
    album = await post.album(8, 1)
    for _ in range(SUSPECT_CRASHES):
        assert ids(await post.claim_all()) == [album]
        await post.clock.sleep(LEASE)
        await post.outbox.stats()
        await post.clock.sleep(1.1)  # its slots cool from the crash on
    await post.put_many(300, 2)

    for _ in range(300):
        claims = await post.claim(5, within=5)
        if album in ids(claims):
            return
        for claim in claims:
            await post.settle(claim, DELIVERED)
    raise AssertionError("it starved")
