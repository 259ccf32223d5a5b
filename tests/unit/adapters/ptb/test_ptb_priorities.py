"""Who goes first: replies by themselves, where the limiter follows the application."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from telegram import Chat, ChatJoinRequest, InlineQuery, Message, Update, User
from telegram.ext import Application, CallbackContext, ExtBot, MessageHandler, filters

from tidegate import Tidegate
from tidegate.adapters.ptb import TidegateLimiter
from tidegate.adapters.ptb.update_processor import chats_of
from tidegate.model import Rate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import EPOCH, VirtualClock

App = Application[Any, Any, Any, Any, Any, Any]
Context = CallbackContext[ExtBot[Any], Any, Any, Any]
WRITER = User(9, "Ann", is_bot=False)
WHEN = datetime.fromtimestamp(EPOCH, UTC)
UPDATE = Update(1, message=Message(1, WHEN, Chat(9, "private"), text="hello", from_user=WRITER))


@pytest.fixture
async def limiter(clock: VirtualClock, telegram: SimulatedTelegram) -> TidegateLimiter:
    """Of a bot that makes one call a second, so that somebody always waits."""
    rules = Rules(bot=Rate(1, 1), private=Rate(10, 1))
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock), rules=rules)
    return TidegateLimiter(gate.core)


@pytest.fixture
async def app(bot_of: Callable[..., ExtBot[Any]], limiter: TidegateLimiter) -> App:
    return Application.builder().bot(bot_of(limiter)).updater(None).job_queue(None).build()


async def answer(app: App, chat: int = 9, args: str | None = None, *, block: bool = True) -> None:
    """Answer an update twice while others wait; what is sent is in the simulator's ledger."""

    async def reply(_update: Update, context: Context) -> None:
        for _ in range(2):
            await context.bot.send_message(chat, "reply", rate_limit_args=args)

    app.add_handler(MessageHandler(filters.TEXT, reply, block=block))
    async with app:
        await app.start()
        others = [asyncio.create_task(app.bot.send_message(chat, str(chat))) for chat in range(1, 5)]
        await asyncio.sleep(0.1)  # noqa: TID251  (virtual)
        await app.process_update(UPDATE)
        await asyncio.gather(*others)
        await app.stop()


def sent(telegram: SimulatedTelegram) -> list[str]:
    return [entry.text for entry in telegram.request_log.log if entry.text]


@pytest.mark.parametrize("block", [True, False])
async def test_a_reply_goes_before_what_waits(
    app: App, limiter: TidegateLimiter, telegram: SimulatedTelegram, *, block: bool
) -> None:
    limiter.follow(app)
    await answer(app, block=block)
    assert sent(telegram) == ["1", "reply", "reply", "2", "3", "4"]


async def test_a_message_to_somebody_else_is_no_reply(
    app: App, limiter: TidegateLimiter, telegram: SimulatedTelegram
) -> None:
    limiter.follow(app)
    await answer(app, chat=10)
    assert sent(telegram) == ["1", "2", "3", "4", "reply", "reply"]


async def test_unless_it_follows_every_call_counts_as_a_reply(app: App, telegram: SimulatedTelegram) -> None:
    await answer(app)
    assert sent(telegram) == ["1", "2", "3", "4", "reply", "reply"]


async def test_what_is_asked_for_counts_more(
    app: App, limiter: TidegateLimiter, telegram: SimulatedTelegram
) -> None:
    limiter.follow(app)
    await answer(app, args="low")
    assert sent(telegram) == ["1", "reply", "2", "3", "4", "reply"]  # nobody starves: a share comes first


async def test_following_takes_no_update_and_builds_no_context(app: App, limiter: TidegateLimiter) -> None:
    limiter.follow(app)
    async with app:
        await app.process_update(UPDATE)
        await app.process_update("no update at all")
    assert not app.chat_data
    assert not app.user_data


@pytest.mark.parametrize(
    ("update", "chats"),
    [
        (UPDATE, {9, "9"}),
        (Update(1, inline_query=InlineQuery("1", WRITER, "tea", "")), {9, "9"}),
        (
            Update(1, channel_post=Message(1, WHEN, Chat(-100, "channel", username="teashop"))),
            {-100, "-100", "@teashop"},
        ),
        (
            Update(1, chat_join_request=ChatJoinRequest(Chat(-100, "supergroup"), WRITER, WHEN, 99)),
            {9, "9", -100, "-100", 99, "99"},
        ),
        (Update(1), set()),
        ("no update at all", set()),
    ],
)
def test_an_answer_may_go_to_the_chat_and_to_the_person(update: object, chats: set[object]) -> None:
    assert set(chats_of(update)) == chats
