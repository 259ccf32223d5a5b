"""Trouble is never silent: each refusal, closure, learned limit, death and outage is a line of the log."""

import logging

import pytest

from contract.conftest import OpenPost
from contract.post import BOT, OTHER_BOT, Post
from tidegate.model import Dead, Rate, Refused, State, Unknown, Unreachable
from tidegate.outbox.event_log import GROUPED_FOR, LINES_OF_A_KIND
from tidegate.pacing.rules import Rules

BLOCKED = Dead("blocked", "Forbidden: bot was blocked by the user", whole_chat=True)


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate.outbox")


def lines(caplog: pytest.LogCaptureFixture, kind: str) -> list[tuple[int, str]]:
    prefix = f"{kind}: "
    return [
        (record.levelno, record.getMessage().removeprefix(prefix))
        for record in caplog.records
        if record.name == "tidegate.outbox" and record.getMessage().startswith(prefix)
    ]


async def test_a_429_the_closure_and_the_cut_limit_left_no_line(
    open_post: OpenPost, caplog: pytest.LogCaptureFixture
) -> None:
    post = await open_post(Rules(bot=Rate(30, 1), private=Rate(5, 1)))
    await post.put()
    await post.settle(await post.one(), Refused(7))

    assert lines(caplog, "429") == [
        (logging.WARNING, "bot 42:… was refused in chat 1: this chat is closed for 7 s")
    ]
    [(level, text)] = lines(caplog, "limit cut")
    assert level == logging.WARNING
    assert text.startswith("bot 42:… may send 25 in 1 s, not 30 in 1 s, after a 429")


async def test_a_429_of_several_chats_says_that_the_whole_bot_is_closed(
    open_post: OpenPost, caplog: pytest.LogCaptureFixture
) -> None:
    post = await open_post(Rules(bot=Rate(30, 1), private=Rate(1, 1)))
    await post.put(1)
    await post.put(2)
    for claim in await post.claim_all(within=0.1):
        await post.settle(claim, Refused(3))

    first, second = (text for _, text in lines(caplog, "429"))
    assert "this chat is closed for 3 s" in first
    assert "the whole bot, as several chats were refused, is closed for 3 s" in second


async def test_a_direct_call_that_is_refused_is_a_line_too(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    turn = await post.outbox.turn(BOT, 9, "send", 1)
    await post.outbox.end_turn(turn, Refused(2))
    assert [text for _, text in lines(caplog, "429")] == [
        "bot 42:… was refused in chat 9: this chat is closed for 2 s"
    ]


async def test_a_learned_limit_that_recovers_is_a_line_at_each_step(
    open_post: OpenPost, caplog: pytest.LogCaptureFixture
) -> None:
    post = await open_post(Rules(bot=Rate(3, 1), private=Rate(100, 1)))
    await post.put()
    await post.settle(await post.one(), Refused(1))
    for _ in range(40):  # it recovers as it is used
        await post.put()
        await post.send(within=30)
        await post.clock.sleep(10)

    raised, restored = lines(caplog, "limit raised"), lines(caplog, "limit restored")
    assert raised
    assert restored == [(logging.INFO, "bot 42:… may send 3 in 1 s again")]
    assert {level for level, _ in raised} == {logging.INFO}


async def test_a_blocked_user_left_no_line(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    tickets = await post.put_many(2)
    await post.settle(await post.one(), BLOCKED)

    why = "blocked (Forbidden: bot was blocked by the user)"
    assert sorted(lines(caplog, "dead")) == [
        (logging.INFO, f"message {ticket} (sendMessage) to chat 1 of bot 42:…: {why}") for ticket in tickets
    ]


async def test_a_death_that_somebody_here_can_mend_is_a_warning(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    await post.put()
    await post.settle(await post.one(), Dead("bad_request", "Bad Request:\nmessage text is empty"))
    [(level, text)] = lines(caplog, "dead")
    assert level == logging.WARNING
    assert text.endswith("bad_request (Bad Request: message text is empty)")


async def test_a_parked_and_an_expired_message_are_lines(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    await post.put(1, on_unknown="park")
    await post.settle(await post.one(), Unknown("timeout"))
    ticket = await post.put(2, not_before=post.clock.now() + 60, expires_at=post.clock.now() + 5)
    await post.clock.sleep(6)
    assert (await post.record(ticket)).state is State.EXPIRED

    assert [level for level, _ in lines(caplog, "parked")] == [logging.WARNING]
    [(level, text)] = lines(caplog, "expired")
    assert (level, text) == (logging.INFO, f"message {ticket} (sendMessage) to chat 2 of bot 42:…")


async def test_a_delivered_or_cancelled_message_is_no_line(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    await post.put()
    await post.send()
    await post.outbox.cancel([await post.put()])
    assert [record for record in caplog.records if record.name == "tidegate.outbox"] == []


async def test_an_outage_is_a_line_when_it_begins_and_when_it_ends(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    await post.put(bot=OTHER_BOT)
    await post.settle(await post.one(), Unreachable(1, "no route"))
    await post.send(within=60)
    [(_, began)], [(_, ended)] = lines(caplog, "outage"), lines(caplog, "outage over")
    assert began.startswith("bot 43:… cannot send (no route): 1 messages wait")
    assert ended.startswith("bot 43:… sends again after ")


async def test_many_deaths_are_a_few_lines_and_then_one_with_their_number(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    await post.put_many(100)
    await post.settle(await post.one(), BLOCKED)
    assert len(lines(caplog, "dead")) == LINES_OF_A_KIND

    await post.clock.sleep(GROUPED_FOR + 1)
    assert lines(caplog, "dead")[LINES_OF_A_KIND:] == [
        (logging.INFO, f"{100 - LINES_OF_A_KIND} more in 10 s: blocked {100 - LINES_OF_A_KIND}")
    ]
