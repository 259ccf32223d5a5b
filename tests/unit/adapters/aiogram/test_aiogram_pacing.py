"""Every call of an attached bot waits its turn; types and errors stay aiogram's."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from aiogram.exceptions import (
    ClientDecodeError,
    TelegramBadRequest,
    TelegramForbiddenError,
    TelegramNetworkError,
    TelegramRetryAfter,
    TelegramServerError,
)
from aiogram.methods import SendDocument, SendMediaGroup, SendMessage, TelegramMethod
from aiogram.types import BufferedInputFile, InputMediaPhoto, Message, ReplyParameters

from tidegate.adapters.aiogram.errors import TurnTooLateError, UnansweredError, UnreadableError
from tidegate.errors import LimitedError, OutcomeUnknownError
from tidegate.events import CallAttempted, UpdateReceived
from tidegate.model import Rate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import Faults, Limits, Person
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.aiogram.stage import Stage

ALICE, BOB = 1001, 1002
GROUP = -100
FILE = BufferedInputFile(b"x", "tea.bin")


async def test_messages_to_one_chat_leave_as_its_limit_allows(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        for number in range(4):
            sent = await stage.bot.send_message(ALICE, f"{number}")
            assert isinstance(sent, Message)
            assert sent.text == str(number)

    assert stage.arrivals() == [0, 1, 2, 3]
    assert stage.refused == 0


async def test_a_crowd_is_served_at_the_limit_of_the_bot(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        await asyncio.gather(*(stage.bot.send_message(1 + user, "hi") for user in range(300)))

    assert stage.refused == 0
    assert 9 <= stage.arrivals()[-1] <= 11


async def test_an_album_costs_what_it_holds(stage: Stage) -> None:
    stage.telegram.world.add_group(GROUP)
    stage.gate.attach(None, stage.bot)
    album = [InputMediaPhoto(media=BufferedInputFile(b"x", "x.png")) for _ in range(10)]
    async with stage.gate:
        for _ in range(2):
            await stage.bot.send_media_group(GROUP, [*album])
        await stage.bot.send_message(GROUP, "the 21st")

    assert stage.refused == 0
    assert stage.clock.monotonic() >= 60


async def test_calls_without_limits_go_at_once(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        sent = await stage.bot.send_message(ALICE, "hi")
        await asyncio.gather(*(stage.bot.get_chat(ALICE) for _ in range(50)))
        await sent.delete()

    assert stage.clock.monotonic() == 0


@pytest.mark.usefixtures("no_bursts")
async def test_a_429_is_waited_for_and_the_message_arrives(optimist: Stage) -> None:
    optimist.gate.attach(None, optimist.bot)
    async with optimist.gate:
        for _ in range(3):
            await optimist.bot.send_message(ALICE, "hi")

    assert optimist.refused > 0
    assert [entry.status for entry in optimist.telegram.request_log.log].count(200) == 3


@pytest.mark.usefixtures("no_bursts")
async def test_a_429_for_longer_than_max_wait_is_told(optimist: Stage) -> None:
    optimist.gate.attach(None, optimist.bot, max_wait=0.5)
    async with optimist.gate:
        await optimist.bot.send_message(ALICE, "one")

        with pytest.raises(TelegramRetryAfter):
            await optimist.bot.send_message(ALICE, "two")


@pytest.mark.usefixtures("no_bursts")
async def test_a_turn_later_than_max_wait_is_told_in_the_words_of_both(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot, max_wait=0.5)
    async with stage.gate:
        await stage.bot.send_message(ALICE, "one")
        with pytest.raises(TurnTooLateError, match="not sent") as late:
            await stage.bot.send_message(ALICE, "two")

    assert isinstance(late.value, TelegramRetryAfter)
    assert isinstance(late.value, LimitedError)
    assert (late.value.retry_after, late.value.chat_id) == (1, ALICE)
    assert len(stage.session.made) == 1


@pytest.mark.parametrize("faults", [Faults(lost_answer=1.0), Faults(silent=1.0)])
async def test_what_may_have_happened_is_told_and_not_repeated(stage: Stage, faults: Faults) -> None:
    stage.gate.attach(None, stage.bot)
    stage.telegram.faults = faults
    async with stage.gate:
        with pytest.raises(UnansweredError, match="may have happened") as unknown:
            await stage.bot.send_message(ALICE, "hi")

    assert isinstance(unknown.value, TelegramNetworkError)
    assert isinstance(unknown.value, OutcomeUnknownError)
    assert unknown.value.chat_id == ALICE
    assert len(stage.session.made) == 1


async def test_a_connection_that_cannot_be_made_is_tried_again(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    stage.session.unplugged = True
    async with stage.gate:
        sending = asyncio.create_task(stage.bot.send_message(ALICE, "hi"))
        await stage.clock.sleep(2.5)
        stage.session.unplugged = False

        assert (await sending).text == "hi"

    assert len(stage.session.made) > 1


async def test_after_some_attempts_the_error_is_aiograms(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    stage.session.unplugged = True
    async with stage.gate:
        for call in (stage.bot.send_message(ALICE, "hi"), stage.bot.get_me()):
            stage.session.made.clear()
            with pytest.raises(TelegramNetworkError, match="no route"):
                await call
            assert len(stage.session.made) == 5


async def test_an_answer_that_cannot_be_read_may_hide_a_delivery(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    stage.telegram.faults = Faults(malformed=1.0)
    async with stage.gate:
        with pytest.raises(UnreadableError, match="may have happened") as unknown:
            await stage.bot.send_message(ALICE, "hi")

    assert isinstance(unknown.value, ClientDecodeError)
    assert isinstance(unknown.value, OutcomeUnknownError)
    assert len(stage.session.made) == 1


async def test_a_server_error_is_tried_again(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        stage.session.broken = 4
        assert (await stage.bot.send_message(ALICE, "hi")).text == "hi"
        stage.session.broken = 5
        with pytest.raises(TelegramServerError):
            await stage.bot.send_message(ALICE, "hi")

    assert len(stage.session.made) == 10


async def test_what_telegram_refuses_for_good_is_told_at_once(stage: Stage) -> None:
    stage.telegram.world.bot("42:token")
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        sent = await stage.bot.send_message(ALICE, "same")
        with pytest.raises(TelegramBadRequest, match="not modified"):
            await sent.edit_text("same")
        with pytest.raises(TelegramBadRequest, match="not found"):
            await stage.bot.edit_message_text("x", chat_id=ALICE, message_id=999)

    assert len(stage.session.made) == 3


async def test_what_is_queued_for_somebody_who_blocked_the_bot_dies_with_the_direct_call(
    stage: Stage,
) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        await stage.bot.send_message(ALICE, "hi")
        bot = stage.telegram.world.bot("42:token")
        assert bot is not None
        stage.telegram.world.user_blocks(bot, ALICE, stage.clock.now())
        ticket = await stage.gate.send(bot=42, chat_id=ALICE, text="later", not_before=stage.clock.now() + 60)
        with pytest.raises(TelegramForbiddenError):
            await stage.bot.send_message(ALICE, "are you there?")
        await stage.clock.sleep(61)
        record = await stage.gate.outbox.find(ticket.id)

    assert record is not None
    assert record.reason == "blocked"


async def test_a_group_that_moved_is_followed(stage: Stage) -> None:
    stage.telegram.world.add_group(GROUP)
    moved = stage.telegram.world.migrate(GROUP, stage.clock.now())
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        sent = await stage.bot.send_message(GROUP, "hi")

    assert sent.chat.id == moved


async def test_a_cancelled_call_that_waited_leaves_its_turn_to_others(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        await stage.bot.send_message(ALICE, "one")
        waiting = [asyncio.create_task(stage.bot.send_message(ALICE, "two")) for _ in range(5)]
        await stage.clock.sleep(0.5)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await stage.bot.send_message(ALICE, "three")

    assert stage.clock.monotonic() == pytest.approx(1, abs=0.01)


async def test_a_call_cancelled_on_its_way_counts_as_made(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        stage.telegram.faults = Faults(silent=1.0)
        on_its_way = asyncio.create_task(stage.bot.send_message(ALICE, "one"))
        await stage.clock.sleep(0.5)
        on_its_way.cancel()
        await asyncio.wait([on_its_way])
        stage.telegram.faults = Faults()
        await stage.bot.send_message(ALICE, "two")

    assert stage.refused == 0
    assert stage.clock.monotonic() == pytest.approx(1.5, abs=0.01)


async def test_slots_of_a_call_that_is_not_answered_cool_after_a_while(clock: VirtualClock) -> None:
    stage = Stage(clock, limits=Limits())
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        stage.telegram.faults = Faults(silent=1.0)
        silent = [asyncio.create_task(stage.bot.send_message(1 + user, "hi")) for user in range(30)]
        await clock.sleep(4)
        stage.telegram.faults = Faults()
        await stage.bot.send_message(ALICE, "two")  # all slots of the bot are held: by 5 s they cool

        assert 6 <= clock.monotonic() < 10
        assert (await stage.gate.stats()).uncertain == 30
        results = await asyncio.gather(*silent, return_exceptions=True)
    assert {type(result) for result in results} == {UnansweredError}


@pytest.mark.parametrize(
    "slow", [SendDocument(chat_id=ALICE, document=FILE), SendMessage(chat_id=ALICE, text="x")]
)
async def test_a_reply_after_a_call_that_took_eight_seconds_hears_no_429(
    stage: Stage, slow: TelegramMethod[Message]
) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        stage.session.slow = 8.0
        await stage.bot(slow)
        stage.session.slow = 0.0
        await stage.bot.send_message(ALICE, "there it is")

    assert stage.refused == 0
    assert stage.clock.monotonic() == pytest.approx(9, abs=0.01)


@pytest.mark.parametrize(
    ("upload", "cost"),
    [
        (SendDocument(chat_id=ALICE, document=FILE), 1),
        (SendMediaGroup(chat_id=ALICE, media=[InputMediaPhoto(media=FILE)] * 2), 2),
    ],
)
async def test_the_slots_of_an_upload_on_its_way_are_not_given_to_others(
    clock: VirtualClock, upload: TelegramMethod[Any], cost: int
) -> None:
    whole = Rate(cost, 1)
    stage = Stage(clock, Rules(bot=whole, private=whole), Limits(bot=whole, private=whole))
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        stage.session.slow = 8.0
        uploading = asyncio.create_task(stage.bot(upload))
        await clock.sleep(7.5)
        stage.session.slow = 0.0
        await stage.bot.send_message(BOB, "hi")
        await uploading

    assert stage.refused == 0
    assert clock.monotonic() == pytest.approx(9, abs=0.01)


async def test_a_revoked_token_is_told_to_who_calls_and_holds_what_is_queued(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        await stage.bot.send_message(ALICE, "before")
        stage.tokens.clear()
        ticket = await stage.gate.send(bot=42, chat_id=BOB, text="kept")
        with pytest.raises(Exception, match="Unauthorized"):
            await stage.bot.send_message(ALICE, "x")
        await stage.clock.sleep(120)
        why = await ticket.why()
        assert why is not None
        assert "token" in why.waits_for[0]

        stage.tokens.add("42:new")
        stage.gate.add_bot("42:new")
        receipt = await ticket.delivered(timeout=60)

    assert receipt.result["text"] == "kept"


async def test_nothing_hangs_when_the_gate_closes_under_calls_that_wait(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        await stage.bot.send_message(ALICE, "one")
        waiting: list[Awaitable[object]] = [
            asyncio.create_task(stage.bot.send_message(ALICE, "two")) for _ in range(3)
        ]
        await stage.clock.sleep(0)
    ends = await asyncio.gather(*waiting, return_exceptions=True)

    assert all("closed" in str(end) for end in ends)


async def test_calls_of_an_attached_bot_count_in_stats(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        for text in ("one", "two"):
            await stage.bot.send_message(ALICE, text)
        await stage.bot.get_me()
        stats = await stage.gate.stats()
    assert (stats.direct, stats.direct_refused, stats.direct_failed) == (3, 0, 0)


async def test_others_are_told_of_each_call_with_its_text_and_its_message(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    calls: list[CallAttempted] = []
    stage.gate.core.events.subscribe(CallAttempted, calls.append)
    async with stage.gate:
        sent = await stage.bot.send_message(ALICE, "Hello")
        await stage.bot.send_message(
            ALICE, "again", reply_parameters=ReplyParameters(message_id=sent.message_id)
        )

    first, second = calls
    assert (first.bot, first.method, first.chat_id) == (42, "sendMessage", ALICE)
    assert first.content() == {"text": "Hello"}
    assert first.result()["message_id"] == sent.message_id
    assert second.content() == {"text": "again", "reply_parameters": {"message_id": sent.message_id}}


async def test_others_are_told_of_updates_that_the_library_itself_handles(stage: Stage) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot)
    received: list[UpdateReceived] = []
    stage.gate.core.events.subscribe(UpdateReceived, received.append)
    bot = stage.telegram.world.bot(stage.bot.token)
    assert bot is not None
    Person(stage.telegram, bot, ALICE).says("Hi")
    async with stage.gate:
        for update in await stage.bot.get_updates():
            await stage.dispatcher.feed_update(stage.bot, update)

    [(of, told)] = [(one.bot, one.content()) for one in received]
    assert (of, told["message"]["text"], told["message"]["from"]["id"]) == (42, "Hi", ALICE)
