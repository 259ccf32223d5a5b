"""Replies to a private chat may leave at once, a few of them; their average stays that of the chat."""

from collections.abc import Sequence

import pytest

from contract.conftest import OpenPost
from contract.post import BOT, DELIVERED, Post
from tidegate.model import Priority, Rate, Refused
from tidegate.pacing.rules import Rules

USUAL = Rules(bot=Rate(1000, 1))  # 1/1 for a chat, 5 replies at once
ALBUM = 10  # photos


@pytest.fixture
async def post(open_post: OpenPost) -> Post:
    return await open_post(USUAL)


async def reply(post: Post, chat: int = 1, cost: int = 1) -> float:
    """Make a direct call as a handler does; return when it was made."""
    turn = await post.turn(chat, cost=cost)
    made = post.clock.monotonic()
    await post.outbox.end_turn(turn, DELIVERED)
    return made


def rounded(times: Sequence[float]) -> list[float]:
    return [round(time, 1) for time in times]


async def test_three_answers_in_a_row_took_two_seconds(post: Post) -> None:
    assert rounded([await reply(post) for _ in range(3)]) == [0, 0, 0]


async def test_replies_above_the_burst_leave_at_the_average(post: Post) -> None:
    assert rounded([await reply(post) for _ in range(11)]) == [0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 10]


async def test_a_message_after_an_album_of_ten_photos_took_ten_seconds(post: Post) -> None:
    times = [await reply(post), await reply(post, cost=ALBUM), await reply(post), await reply(post)]

    assert rounded(times) == [0, 0, 0, 0]


async def test_albums_keep_the_average_too(post: Post) -> None:
    times = [await reply(post, cost=ALBUM) for _ in range(7)]

    assert rounded(times) == [0, 0, 25, 25, 50, 50, 75]


async def test_queued_high_messages_burst_and_others_keep_their_distance(post: Post) -> None:
    for priority in Priority:
        for chat in (1, 2, 3):
            if (priority, chat) in {(Priority.HIGH, 1), (Priority.NORMAL, 2), (Priority.LOW, 3)}:
                await post.put_many(3, chat, priority=priority)
    sent = await post.run(4)

    times = {chat: [at for at, message in sent if message.chat_id == chat] for chat in (1, 2, 3)}
    assert rounded(times[1]) == [0, 0, 0]
    assert rounded(times[2]) == rounded(times[3]) == [0, 1, 2]


async def test_a_broadcast_waits_for_the_second_after_a_reply(post: Post) -> None:
    await reply(post)
    await reply(post)
    await post.put(priority=Priority.LOW)

    [(at, _)] = await post.run(3)
    assert at == pytest.approx(1.0, abs=0.05)


async def test_a_group_has_no_bursts_of_its_own(open_post: OpenPost) -> None:
    post = await open_post(Rules(group=Rate(2, 10)))
    assert rounded([await reply(post, chat=-5) for _ in range(3)]) == [0, 0, 10]


async def test_bursts_can_be_switched_off(open_post: OpenPost) -> None:
    post = await open_post(Rules(burst=1))
    assert rounded([await reply(post) for _ in range(3)]) == [0, 1, 2]


async def test_a_refused_burst_ends_in_that_chat_alone(post: Post) -> None:
    for chat in (1, 2):
        await reply(post, chat)
        turn = await post.turn(chat)
        await post.outbox.end_turn(turn, Refused(3))

    assert await post.outbox.learned() == {(BOT, 1): Rate(1, 1), (BOT, 2): Rate(1, 1)}
    closed = [state for state in await post.outbox.limits() if state.closed_for]
    assert {state.chat_id for state in closed} == {1, 2}  # two chats, and yet not the bot
    start = await reply(post)
    assert rounded([await reply(post) - start for _ in range(2)]) == [1, 2]


async def test_a_429_to_calls_within_the_average_goes_below_it(post: Post) -> None:
    await post.put_many(2)
    await post.send()
    await post.send(Refused(2), within=2)

    assert await post.outbox.learned() == {(BOT, 1): Rate(1, 1.25)}
