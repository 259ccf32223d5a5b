"""What a 429 closes stays closed for as long as it said, and what it cut recovers with time."""

import pytest

from contract.conftest import OpenPost
from contract.post import BOT, DELIVERED, Post
from tidegate.model import Migrated, Rate, Refused
from tidegate.outbox.port import Turn
from tidegate.pacing.learned import PROBE_AFTER
from tidegate.pacing.rules import Rules

GROUP, NEW_GROUP = -1, -1001


async def actions(post: Post, chat: int, count: int) -> list[Turn]:
    """Calls that are in flight at the same time: actions are unordered."""
    return [await post.outbox.turn(BOT, chat, "action", 1) for _ in range(count)]


async def closed_for(post: Post, chat: int) -> float:
    return await post.outbox.wait_for(BOT, chat, "action", 1)


async def test_a_shorter_retry_after_never_reopens_a_closed_chat(post: Post) -> None:
    first, second = await actions(post, 1, 2)
    await post.outbox.end_turn(first, Refused(300))

    await post.outbox.end_turn(second, Refused(1))

    assert await closed_for(post, 1) == pytest.approx(300, abs=1)


async def test_a_shorter_retry_after_never_reopens_a_closed_bot(post: Post) -> None:
    turns = [turn for chat in (1, 2, 3) for turn in await actions(post, chat, 1)]
    for turn in turns[:2]:  # two chats within a window
        await post.outbox.end_turn(turn, Refused(300))

    await post.outbox.end_turn(turns[2], Refused(1))

    assert await closed_for(post, 9) == pytest.approx(300, abs=1)


async def test_health_says_that_a_bot_is_closed_for_an_hour_and_stays_ready(post: Post) -> None:
    turns = [turn for chat in (1, 2) for turn in await actions(post, chat, 1)]
    await post.outbox.end_turn(turns[0], Refused(3600))
    assert post.outbox.health().reasons == ()  # one chat alone
    await post.outbox.end_turn(turns[1], Refused(3600))

    health = post.outbox.health()
    assert health.ready
    [reason] = health.reasons
    assert reason == (
        f"bot {BOT} is closed by a 429 for another 3600 s, and sends nothing until then:"
        f" tidegate limits open --bot {BOT} ends that"
    )

    await post.outbox.open_limits(BOT)
    assert post.outbox.health().reasons == ()


async def test_a_closure_survives_a_migration(post: Post) -> None:
    first, second = await actions(post, GROUP, 2)
    await post.outbox.end_turn(first, Refused(300))

    await post.outbox.end_turn(second, Migrated(NEW_GROUP))

    assert await closed_for(post, NEW_GROUP) == pytest.approx(300, abs=1)
    assert await closed_for(post, GROUP) == pytest.approx(300, abs=1)


async def test_a_migration_does_not_shorten_the_closure_of_the_new_chat(post: Post) -> None:
    first, second = await actions(post, GROUP, 2)
    [other] = await actions(post, NEW_GROUP, 1)
    await post.outbox.end_turn(other, Refused(500))
    await post.clock.sleep(2)  # else two chats within a window would close the bot
    await post.outbox.end_turn(first, Refused(300))

    await post.outbox.end_turn(second, Migrated(NEW_GROUP))

    assert await closed_for(post, NEW_GROUP) == pytest.approx(498, abs=1)


async def test_a_learned_limit_recovers_while_nobody_calls(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(20, 1), private=Rate(1, 1), burst=1))
    await post.put()
    await post.send()
    await post.put()
    await post.send(Refused(5), within=2)
    [(place, cut)] = (await post.outbox.learned()).items()

    await post.clock.sleep(PROBE_AFTER - 1)
    await post.send(DELIVERED, within=2)
    assert (await post.outbox.learned()) == {place: cut}
    await post.clock.sleep(2)
    await post.put()
    await post.send(DELIVERED, within=2)

    assert (await post.outbox.learned()).get(place) != cut
