"""`rate_limit_args={"queue": True}`: written down first, made when its turn comes, answered as ever."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from telegram import InlineKeyboardButton, InlineKeyboardMarkup, ReplyParameters
from telegram.constants import ParseMode
from telegram.error import BadRequest, Forbidden, NetworkError, TelegramError, TimedOut
from telegram.ext import ExtBot

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.adapters.ptb import CallOptions
from tidegate.errors import (
    BadInputError,
    ClosedError,
    DeadError,
    ExpiredError,
    OutcomeUnknownError,
    WithdrawnError,
)
from tidegate.sim.telegram import Faults, SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.ptb.simulated_request import API

CHAT, GROUP = 7, -5
QUEUE = CallOptions(queue=True)
BUTTONS = InlineKeyboardMarkup([[InlineKeyboardButton("Tea", callback_data="buy:tea")]])


async def test_it_returns_what_the_method_always_returns(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    async with bot:
        first = await bot.send_message(CHAT, "<b>one</b>", parse_mode=ParseMode.HTML, reply_markup=BUTTONS)
        second = await bot.send_message(
            CHAT, "two", reply_parameters=ReplyParameters(first.message_id), rate_limit_args=QUEUE
        )
        at: dict[str, Any] = {"chat_id": CHAT, "message_id": second.message_id, "rate_limit_args": QUEUE}
        edited = await bot.edit_message_text("three", reply_markup=BUTTONS, **at)
        deleted = await bot.delete_message(**at)
    assert second.text == "two"
    assert second.reply_to_message == first
    assert not isinstance(edited, bool)
    assert (edited.message_id, edited.text, edited.reply_markup) == (second.message_id, "three", BUTTONS)
    assert deleted is True
    assert telegram.report()["refused"] == 0


async def test_it_is_made_though_nobody_waits_any_more(
    bot: ExtBot[Any], gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    async with bot:
        await bot.send_message(CHAT, "one")
        caller = asyncio.create_task(bot.send_message(CHAT, "two", rate_limit_args=QUEUE))
        await clock.sleep(0.5)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert telegram.report()["accepted"] == 1
        await gate.drained()
    assert telegram.report()["accepted"] == 2


@pytest.mark.parametrize(("asked", "priority"), [({}, "normal"), ({"priority": "low"}, "low")])
async def test_it_is_normal_unless_asked_otherwise(
    bot: ExtBot[Any], gate: Tidegate, asked: dict[str, Any], priority: str
) -> None:
    async with bot:
        await bot.send_message(CHAT, "hello", rate_limit_args={"queue": True, **asked})
        assert [record.message.priority for record in await gate.outbox.records()] == [priority]


async def test_the_same_one_twice_is_sent_once_and_both_hear_of_it(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    once = CallOptions(queue=True, dedup_key="order 7")
    async with bot:
        sent = await asyncio.gather(
            *(bot.send_message(CHAT, "Thank you", rate_limit_args=once) for _ in range(2))
        )
    assert sent[0].message_id == sent[1].message_id
    assert telegram.report()["accepted"] == 1


async def test_past_its_deadline_it_is_not_made(
    bot: ExtBot[Any], telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    async with bot:
        await bot.send_message(CHAT, "one")
        with pytest.raises(TimedOut, match="sendMessage to 7 expired") as caught:
            await bot.send_message(CHAT, "two", rate_limit_args={"queue": True, "deadline": 0.5})
        assert isinstance(caught.value, ExpiredError)
        assert clock.monotonic() < 1
    assert telegram.report()["accepted"] == 1


async def test_a_dead_one_raises_what_the_library_would(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    known = telegram.world.bot(TOKEN)
    assert known is not None
    telegram.world.user_blocks(known, CHAT, telegram.clock.now())
    async with bot:
        with pytest.raises(Forbidden, match="Forbidden: bot was blocked by the user") as caught:
            await bot.send_message(CHAT, "are you there?", rate_limit_args=QUEUE)
        assert isinstance(caught.value, DeadError)
        assert caught.value.reason == "blocked"
        with pytest.raises(BadRequest, match="Message to edit not found"):
            await bot.edit_message_text("new", 8, 999, rate_limit_args=QUEUE)


async def test_it_follows_a_group_that_migrated(bot: ExtBot[Any], telegram: SimulatedTelegram) -> None:
    moved_to = telegram.world.migrate(GROUP, telegram.clock.now())
    async with bot:
        sent = await bot.send_message(GROUP, "hello", rate_limit_args=QUEUE)
    assert sent.chat.id == moved_to


async def test_one_that_may_not_be_repeated_says_that_it_may_have_happened(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    async with bot:
        telegram.faults = Faults(lost_answer=1)
        with pytest.raises(NetworkError, match="sendMessage to 7 was parked") as caught:
            await bot.send_message(CHAT, "once", rate_limit_args={"queue": True, "on_unknown": "park"})
    assert isinstance(caught.value, OutcomeUnknownError)
    assert telegram.report()["accepted"] == 1


async def test_one_that_is_taken_back_says_so(bot: ExtBot[Any], gate: Tidegate, clock: VirtualClock) -> None:
    async with bot:
        await bot.send_message(CHAT, "one")
        waiting = asyncio.create_task(bot.send_message(CHAT, "two", rate_limit_args=QUEUE))
        await clock.sleep(0.1)
        await gate.outbox.cancel([record.message.id for record in await gate.outbox.records()])
        with pytest.raises(TelegramError, match="was cancelled") as caught:
            await waiting
    assert isinstance(caught.value, WithdrawnError)


async def test_whoever_waits_at_shutdown_is_told(bot: ExtBot[Any], clock: VirtualClock) -> None:
    async with bot:
        await bot.send_message(CHAT, "one")
        waiting = asyncio.create_task(bot.send_message(CHAT, "two", rate_limit_args=QUEUE))
        await clock.sleep(0.1)
    with pytest.raises(ClosedError, match="sendMessage to 7 waits in the queue: the gate was closed"):
        await waiting
    with pytest.raises(
        ClosedError, match="sendMessage to 7 was not made: the application stops, or has stopped"
    ):
        await bot.send_message(CHAT, "three", rate_limit_args=QUEUE)


async def test_what_goes_to_no_chat_cannot_be_queued(bot: ExtBot[Any]) -> None:
    async with bot:
        with pytest.raises(BadInputError, match="setMyCommands has no chat_id: only calls to a chat are"):
            await bot.set_my_commands([("start", "Begin")], rate_limit_args=QUEUE)


@pytest.mark.parametrize(
    ("base_url", "says"),
    [
        ("https://api.telegram.org/bot{token}", None),
        (lambda token: f"{API}{token}", None),
        ("https://api.telegram.org/bot{token}/test", None),
        (lambda _: "https://proxy.example/secret", "the bot's base_url has none"),
    ],
)
async def test_it_goes_where_the_bot_would_go(
    bot: ExtBot[Any], base_url: str | Callable[[str], str], says: str | None
) -> None:
    other: ExtBot[Any] = ExtBot(TOKEN, base_url=base_url, request=bot.request, rate_limiter=bot.rate_limiter)
    async with bot:
        if says is None:
            assert (await other.send_message(CHAT, "hello", rate_limit_args=QUEUE)).text == "hello"
        else:
            with pytest.raises(BadInputError, match=says):
                await other.send_message(CHAT, "hello", rate_limit_args=QUEUE)


async def test_any_call_of_the_library_can_be_queued_without_waiting(
    bot: ExtBot[Any], gate: Tidegate
) -> None:
    async with bot:
        ticket = await gate.queue(bot.send_message(CHAT, "hello"), priority="low")
        record = await gate.outbox.find(ticket.id)
        receipt = await ticket.delivered(timeout=10)
        with pytest.raises(BadInputError, match="has no chat_id"):
            await gate.queue(bot.get_me())

    assert record is not None
    assert record.message.priority == "low"
    assert receipt.result["text"] == "hello"


async def test_a_parameter_that_is_not_known_yet_is_queued(gate: Tidegate, bot: ExtBot[Any]) -> None:
    async with bot:
        ticket = await gate.queue(bot.send_message(CHAT, "Hi", api_kwargs={"sparkle": True}))
        record = await gate.outbox.find(ticket.id)

    assert record is not None
    assert record.message.params["sparkle"] is True
