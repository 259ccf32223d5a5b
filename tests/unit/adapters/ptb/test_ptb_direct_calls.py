"""Calls of a python-telegram-bot bot: paced, tried again only when refused, and never left hanging."""

import asyncio
import types
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from telegram import InputMediaPhoto, Update
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)
from telegram.ext import ExtBot

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.adapters.ptb import TidegateLimiter
from tidegate.adapters.ptb.update_processor import ReplyTracker
from tidegate.errors import BadInputError, ClosedError, LimitedError, OutcomeUnknownError
from tidegate.events import CallAttempted, EventStream, UpdateReceived
from tidegate.model import BotId, Rate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import Faults, Latency, Limits, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.ptb.simulated_request import SimulatedRequest

Bots = Callable[..., ExtBot[Any]]
CHAT, OTHER, GROUP = 7, 8, -5
ALBUM = [InputMediaPhoto("https://example.org/1.png"), InputMediaPhoto("https://example.org/2.png")]


def made(telegram: SimulatedTelegram, method: str = "sendMessage") -> list[float]:
    """When calls arrived, in seconds since the first."""
    times = [entry.at for entry in telegram.request_log.log if entry.method == method]
    return [round(at - times[0], 2) for at in times]


@pytest.mark.usefixtures("no_bursts")
async def test_messages_to_one_chat_keep_their_distance(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    async with bot:
        sent = [await bot.send_message(CHAT, f"part #{number}") for number in range(3)]
    assert [message.text for message in sent] == ["part #0", "part #1", "part #2"]
    assert made(telegram) == [0, 1, 2]
    assert telegram.report()["refused"] == 0


async def test_other_chats_do_not_wait(bot: ExtBot[Any], clock: VirtualClock) -> None:
    async with bot:
        await asyncio.gather(*(bot.send_message(chat, "hello") for chat in range(1, 21)))
        assert clock.monotonic() < 1


async def test_an_album_counts_by_its_items(bot: ExtBot[Any], telegram: SimulatedTelegram) -> None:
    async with bot:
        for _ in range(11):
            await bot.send_media_group(GROUP, ALBUM)
    assert made(telegram, "sendMediaGroup")[-1] >= 60  # 20 items a minute
    assert telegram.report()["refused"] == 0


async def test_a_refusal_is_waited_for_and_tried_again(bot: ExtBot[Any], telegram: SimulatedTelegram) -> None:
    telegram.set_limits(Limits(burst=1, private=Rate(1, 5)))
    async with bot:
        await bot.send_message(CHAT, "one")
        second = await bot.send_message(CHAT, "two")
    assert second.text == "two"
    assert made(telegram)[-1] >= 5
    assert telegram.report()["refused"] == 1


async def test_a_refusal_hidden_in_another_error_is_one_too(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    telegram.set_limits(Limits(burst=1, private=Rate(2, 9), hidden_floods=1.0))
    async with bot:
        for _ in range(2):
            sent = await bot.send_media_group(CHAT, ALBUM)
            assert len(sent) == 2
    assert telegram.report()["refused"] == 1


@pytest.mark.usefixtures("no_bursts")
async def test_whoever_would_not_wait_is_told_how_long(
    bot_of: Bots, gate: Tidegate, clock: VirtualClock
) -> None:
    async with bot_of(gate.ptb(max_wait=0.3)) as bot:
        await bot.send_message(CHAT, "one")
        with pytest.raises(RetryAfter, match="sendMessage to 7 may not be made for another") as caught:
            await bot.send_message(CHAT, "two")
        assert isinstance(caught.value, LimitedError)
        assert caught.value.retry_after == timedelta(seconds=1)
        assert clock.monotonic() == pytest.approx(0.3, abs=0.01)
        await bot.send_message(CHAT, "three", rate_limit_args={"max_wait": 5})


@pytest.mark.usefixtures("no_bursts")
async def test_a_deadline_bounds_the_wait(bot: ExtBot[Any]) -> None:
    async with bot:
        await bot.send_message(CHAT, "one")
        with pytest.raises(LimitedError):
            await bot.send_message(CHAT, "two", rate_limit_args={"deadline": 0.5})


async def test_a_refusal_longer_than_one_would_wait_is_told_at_once(
    bot: ExtBot[Any], telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    telegram.set_limits(Limits(burst=1, private=Rate(1, 60)))
    async with bot:
        await bot.send_message(CHAT, "one")
        with pytest.raises(RetryAfter) as caught:
            await bot.send_message(CHAT, "two", rate_limit_args={"max_wait": 10})
        assert isinstance(caught.value, LimitedError)
        assert isinstance(caught.value.__cause__, RetryAfter)
        assert clock.monotonic() < 2


async def test_an_answer_that_was_lost_says_that_it_may_have_happened(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    async with bot:
        telegram.faults = Faults(lost_answer=1)
        with pytest.raises(NetworkError, match="it may have happened") as caught:
            await bot.send_message(CHAT, "once")
    assert isinstance(caught.value, OutcomeUnknownError)
    assert telegram.report()["accepted"] == 1  # it did happen, and was not repeated


async def test_silence_times_out_and_says_that_it_may_have_happened(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    async with bot:
        telegram.faults = Faults(silent=1)
        with pytest.raises(TimedOut, match="it may have happened") as caught:
            await bot.send_message(CHAT, "once")
        assert isinstance(caught.value, OutcomeUnknownError)
        assert telegram.request_log.faults["silent"] == 1
        with pytest.raises(TimedOut) as caught:
            await bot.get_chat(CHAT)  # has nothing to repeat
        assert not isinstance(caught.value, OutcomeUnknownError)


async def test_a_failure_of_the_server_is_the_librarys_own_and_not_repeated(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    async with bot:
        telegram.faults = Faults(server_error=1)
        with pytest.raises(NetworkError) as caught:
            await bot.send_message(CHAT, "once")
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert telegram.request_log.faults["server_error"] == 1


async def test_what_telegram_refuses_for_good_is_raised_as_ever(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    known = telegram.world.bot(TOKEN)
    assert known is not None
    telegram.world.user_blocks(known, CHAT, telegram.clock.now())
    moved_to = telegram.world.migrate(GROUP, telegram.clock.now())
    async with bot:
        with pytest.raises(Forbidden, match="bot was blocked by the user"):
            await bot.send_message(CHAT, "are you there?")
        with pytest.raises(ChatMigrated) as caught:
            await bot.send_message(GROUP, "hello")
    assert caught.value.new_chat_id == moved_to


@pytest.mark.parametrize("chat", [0, "nobody", "", 2**70])
async def test_what_is_wrong_with_a_chat_is_for_telegram_to_say(bot: ExtBot[Any], chat: int | str) -> None:
    async with bot:
        with pytest.raises(BadRequest):
            await bot.send_message(chat, "hello")


@pytest.mark.usefixtures("no_bursts")
@pytest.mark.parametrize("method", ["sendDocument", "sendMessage"])
async def test_a_reply_after_a_call_that_took_eight_seconds_hears_no_429(
    bot: ExtBot[Any], telegram: SimulatedTelegram, clock: VirtualClock, method: str
) -> None:
    async with bot:
        slow_down(bot, 8)
        if method == "sendDocument":
            await bot.send_document(CHAT, b"x", filename="tea.bin")
        else:
            await bot.send_message(CHAT, "slowly")
        slow_down(bot, 0)
        await bot.send_message(CHAT, "there it is")

    assert telegram.report()["refused"] == 0
    assert clock.monotonic() == pytest.approx(9, abs=0.01)


async def test_the_slots_of_an_upload_on_its_way_are_not_given_to_others(
    bot_of: Bots, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    telegram.set_limits(Limits(bot=Rate(1, 1)))
    wire = TelegramWire(telegram, clock)
    gate = Tidegate("memory://", clock=clock, wire=wire, rules=Rules(bot=Rate(1, 1)))
    async with bot_of(gate.ptb()) as bot:
        slow_down(bot, 8)
        uploading = asyncio.create_task(bot.send_document(CHAT, b"x", filename="tea.bin"))
        await clock.sleep(7.5)
        slow_down(bot, 0)
        await bot.send_message(OTHER, "hi")
        await uploading

    assert telegram.report()["refused"] == 0
    assert clock.monotonic() == pytest.approx(9, abs=0.01)


def slow_down(bot: ExtBot[Any], seconds: float) -> None:
    assert isinstance(bot.request, SimulatedRequest)
    bot.request.slow = seconds


@pytest.mark.usefixtures("no_bursts")
async def test_a_cancelled_call_that_waits_leaves_its_place(bot: ExtBot[Any], clock: VirtualClock) -> None:
    async with bot:
        await bot.send_message(CHAT, "one")
        waiting = [asyncio.create_task(bot.send_message(CHAT, "never")) for _ in range(5)]
        await clock.sleep(0.5)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await bot.send_message(CHAT, "two")
        assert clock.monotonic() == pytest.approx(1, abs=0.01)


@pytest.mark.usefixtures("no_bursts")
async def test_a_call_cancelled_on_its_way_counts_and_blocks_nobody(
    bot: ExtBot[Any], telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    async with bot:
        telegram.faults = Faults(latency_out=Latency(3000, 3000))
        sending = asyncio.create_task(bot.send_message(CHAT, "one"))
        await clock.sleep(0.5)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        telegram.faults = Faults()
        await bot.send_message(CHAT, "two")
    assert made(telegram) == [0, 1.5]
    assert telegram.report()["refused"] == 0


async def test_a_token_revoked_in_the_middle_is_told_and_nothing_hangs(
    bot: ExtBot[Any], tokens: set[str], clock: VirtualClock
) -> None:
    async with bot:
        await bot.send_message(CHAT, "one")
        waiting = [asyncio.create_task(bot.send_message(CHAT, "more")) for _ in range(3)]
        tokens.clear()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [InvalidToken] * 3
        assert clock.monotonic() < 5
        with pytest.raises(InvalidToken):
            await bot.get_me()
        with pytest.raises(InvalidToken):  # the gate stays open: a bot may get its token back
            await bot.send_message(OTHER, "again")


async def test_calls_that_wait_at_shutdown_end_with_a_clear_error(
    bot: ExtBot[Any], clock: VirtualClock
) -> None:
    async with bot:
        await bot.send_message(GROUP, "one")
        waiting = [asyncio.create_task(bot.send_message(GROUP, "more")) for _ in range(30)]
        await clock.sleep(0.1)
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    closed = [end for end in ends if isinstance(end, ClosedError)]
    assert len(closed) >= 10
    assert {str(end) for end in closed} == {
        "sendMessage to -5 was not made: the application stops, or has stopped"
    }
    assert clock.monotonic() < 1
    with pytest.raises(
        ClosedError, match="sendMessage to 7 was not made: the application stops, or has stopped"
    ):
        await bot.send_message(CHAT, "too late")
    assert (await bot.get_me()).id == 42  # what no limit applies to goes on
    assert (await bot.get_chat(CHAT)).id == CHAT


@pytest.mark.usefixtures("no_bursts")
async def test_two_applications_of_one_gate_close_one_by_one(
    bot_of: Bots, gate: Tidegate, clock: VirtualClock
) -> None:
    async with bot_of(gate.ptb()) as second:
        async with bot_of(gate.ptb()) as first:
            await first.send_message(CHAT, "one")
            waiting = asyncio.create_task(first.send_message(CHAT, "two"))
            await clock.sleep(0.1)
        await second.send_message(CHAT, "still here")
        assert clock.monotonic() == pytest.approx(1, abs=0.01)  # what was not sent took no place
        with pytest.raises(ClosedError):
            await waiting
    with pytest.raises(ClosedError):
        await gate.send(chat_id=CHAT, text="closed")


async def test_opening_and_closing_twice_is_once(bot: ExtBot[Any], gate: Tidegate) -> None:
    await bot.shutdown()
    for _ in range(2):
        await bot.initialize()
    ticket = await gate.send(chat_id=CHAT, text="open")
    assert (await ticket.delivered()).message_id == 1
    for _ in range(2):
        await bot.shutdown()
    with pytest.raises(ClosedError):
        await gate.send(chat_id=CHAT, text="closed")


async def test_a_bot_that_is_not_initialized_may_send(
    bot: ExtBot[Any], limiter: TidegateLimiter, gate: Tidegate
) -> None:
    await limiter.initialize()
    await asyncio.gather(*(bot.send_message(chat, "hello") for chat in (1, 2, 3)))
    await limiter.shutdown()
    with pytest.raises(ClosedError):
        await gate.send(chat_id=CHAT, text="closed")


@pytest.mark.parametrize("faults", [Faults(server_error=1), Faults(silent=1)])
async def test_a_start_that_failed_may_be_tried_again(
    bot: ExtBot[Any], gate: Tidegate, telegram: SimulatedTelegram, faults: Faults
) -> None:
    telegram.faults = faults
    with pytest.raises(NetworkError):
        await bot.initialize()
    telegram.faults = Faults()
    async with bot:
        assert (await bot.send_message(CHAT, "hello")).message_id == 1
        assert (await gate.stats()).sending == 0


async def test_a_wrong_token_at_the_start_leaves_nothing_open(
    bot_of: Bots, gate: Tidegate, limiter: TidegateLimiter
) -> None:
    with pytest.raises(InvalidToken):
        await bot_of(limiter, "44:wrong").initialize()
    with pytest.raises(ClosedError):
        await gate.send(chat_id=CHAT, text="closed")


async def answer(_: object, *, results: list[TelegramError | bool]) -> bool:
    result = results.pop(0)
    if isinstance(result, TelegramError):
        raise result
    return result


def request(
    bot: ExtBot[Any], results: list[TelegramError | bool], endpoint: str = "setMyCommands", **data: object
) -> dict[str, Any]:
    return {
        "callback": types.MethodType(answer, bot),
        "args": (),
        "kwargs": {"results": results},
        "endpoint": endpoint,
        "data": data,
        "rate_limit_args": None,
    }


async def test_a_refused_call_without_a_chat_waits_as_told(
    bot: ExtBot[Any], limiter: TidegateLimiter, clock: VirtualClock
) -> None:
    async with bot:
        assert await limiter.process_request(**request(bot, [RetryAfter(8), True]))
        assert clock.monotonic() == pytest.approx(8, abs=0.01)


@pytest.mark.parametrize(("endpoint", "data"), [("setMyCommands", {}), ("sendMessage", {"chat_id": CHAT})])
async def test_refusals_without_end_are_told_as_the_library_does(
    bot: ExtBot[Any], limiter: TidegateLimiter, clock: VirtualClock, endpoint: str, data: dict[str, Any]
) -> None:
    refusals: list[TelegramError | bool] = [RetryAfter(9), RetryAfter(9), RetryAfter(9), True]
    async with bot:
        with pytest.raises(RetryAfter, match="Flood control exceeded") as caught:
            await limiter.process_request(**request(bot, refusals, endpoint, **data))
    assert not isinstance(caught.value, LimitedError)
    assert refusals == [True]  # TELEGRAM_MAX_RETRIES are 3 here
    assert clock.monotonic() == pytest.approx(18, abs=0.1)


async def test_a_refused_call_without_a_chat_does_not_outlive_the_application(
    bot: ExtBot[Any], limiter: TidegateLimiter, clock: VirtualClock
) -> None:
    async with bot:
        waiting = asyncio.create_task(limiter.process_request(**request(bot, [RetryAfter(3600), True])))
        await clock.sleep(1)
    with pytest.raises(ClosedError, match="setMyCommands was not made"):
        await waiting
    assert clock.monotonic() < 2


async def test_a_callback_of_no_bot_is_refused_by_name(limiter: TidegateLimiter) -> None:
    async def nobodys() -> bool:
        return True

    with pytest.raises(BadInputError, match="the limiter is for ExtBot"):
        await limiter.process_request(nobodys, (), {}, "getMe", {}, None)


async def test_bad_arguments_are_refused_before_anything_is_sent(
    bot: ExtBot[Any], telegram: SimulatedTelegram
) -> None:
    async with bot:
        with pytest.raises(BadInputError, match="rate_limit_args has 'prio'"):
            await bot.send_message(CHAT, "hello", rate_limit_args={"prio": "low"})
    assert made(telegram) == []


async def test_calls_of_the_library_count_in_stats(
    bot: ExtBot[Any], gate: Tidegate, telegram: SimulatedTelegram
) -> None:
    telegram.set_limits(Limits(burst=1, private=Rate(1, 5)))
    async with bot:
        await bot.send_message(CHAT, "one")
        await bot.send_message(CHAT, "two")
        stats = await gate.stats()
    assert (stats.direct_refused, stats.direct) == (
        telegram.report()["refused"],
        telegram.report()["requests"],
    )


async def test_others_are_told_of_each_call_with_its_text_and_its_message(
    bot: ExtBot[Any], gate: Tidegate
) -> None:
    calls: list[CallAttempted] = []
    gate.core.events.subscribe(CallAttempted, calls.append)
    async with bot:
        first = await bot.send_message(7, "Hello")
        await bot.send_message(7, "again", reply_to_message_id=first.message_id)

    one, two = (call for call in calls if call.method == "sendMessage")
    assert (one.chat_id, one.content(), one.result()["message_id"]) == (
        7,
        {"text": "Hello"},
        first.message_id,
    )
    assert two.content() == {"text": "again", "reply_parameters": {"message_id": first.message_id}}


def test_others_are_told_of_updates_that_the_library_itself_handles() -> None:
    events = EventStream()
    received: list[UpdateReceived] = []
    events.subscribe(UpdateReceived, received.append)
    ReplyTracker(BotId(42), events).check_update(Update(5))
    assert [(one.bot, one.content()) for one in received] == [(42, {"update_id": 5})]
