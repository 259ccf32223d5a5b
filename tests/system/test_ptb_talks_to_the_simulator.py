"""An unmodified python-telegram-bot application takes the simulator for Telegram."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from blockbuster import BlockBuster
from telegram import Bot, WebhookInfo
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    RetryAfter,
)

from system.bots import ptb_shop
from system.bots.ptb_shop import application, bot_of, listen, running
from system.bots.scenes import (
    CROWDED,
    GENEROUS,
    GROWING,
    SCENES,
    SECRET,
    STRANGER,
    Opening,
    Scene,
    Visit,
    strict_telegram,
)
from tidegate.sim.telegram.http import TelegramServer


@pytest.fixture(scope="module", params=[ptb_shop.polling, ptb_shop.webhook])
async def open_shop(request: pytest.FixtureRequest) -> AsyncIterator[TelegramServer]:
    opening: Opening = request.param
    async with TelegramServer(limits=GENEROUS) as server, opening(server):
        yield server


@pytest.fixture(scope="module")
async def telegram() -> AsyncIterator[TelegramServer]:
    async with strict_telegram() as server:
        yield server


@pytest.fixture(scope="module")
async def bot(telegram: TelegramServer) -> AsyncIterator[Bot]:
    async with bot_of(telegram) as bot:
        yield bot


@pytest.fixture
async def visit(telegram: TelegramServer, bot: Bot) -> Visit:
    """To a bot that has no webhook, and no update left from another test."""
    await bot.delete_webhook(drop_pending_updates=True)
    return Visit(telegram.telegram)


@pytest.fixture(autouse=True)
def blocking_calls_of_the_library(no_blocking_calls: BlockBuster) -> None:
    """python-telegram-bot resolves its own path when an application is built, which is once."""
    for function in no_blocking_calls.functions.values():
        function.can_block_in("telegram/ext/_application.py", "__init__")


@pytest.mark.parametrize("scene", SCENES)
async def test_conversation(scene: Scene, open_shop: TelegramServer) -> None:
    await scene(Visit(open_shop.telegram))


async def test_edit_without_a_change_is_refused(bot: Bot, visit: Visit) -> None:
    sent = await bot.send_message(visit.customer.id, "same", reply_markup=ptb_shop.BUTTONS)

    with pytest.raises(BadRequest, match="Message is not modified"):
        await sent.edit_text("same", reply_markup=ptb_shop.BUTTONS)


async def test_blocked_bot_may_not_write(bot: Bot, visit: Visit) -> None:
    visit.customer.blocks()

    with pytest.raises(Forbidden, match="bot was blocked by the user"):
        await bot.send_message(visit.customer.id, "are you there?")


async def test_stranger_is_not_found(bot: Bot) -> None:
    with pytest.raises(BadRequest, match="Chat not found"):
        await bot.send_message(STRANGER, "hello")


async def test_flood_says_when_to_come_back(bot: Bot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "1")  # the form that the next major version will have
    await bot.send_message(CROWDED, "one")
    await bot.send_message(CROWDED, "two")

    with pytest.raises(RetryAfter) as refusal:
        await bot.send_message(CROWDED, "three")

    assert refusal.value.retry_after in {timedelta(seconds=59), timedelta(seconds=60)}


async def test_migrated_group_says_where_it_is(bot: Bot, telegram: TelegramServer) -> None:
    moved_to = telegram.telegram.world.migrate(GROWING, telegram.telegram.clock.now())

    with pytest.raises(ChatMigrated) as refusal:
        await bot.send_message(GROWING, "hello")

    assert refusal.value.new_chat_id == moved_to
    assert (await bot.send_message(moved_to, "hello")).chat.type == "supergroup"


async def test_unknown_token_is_invalid(telegram: TelegramServer) -> None:
    with pytest.raises(InvalidToken):
        async with bot_of(telegram, "43:guessed"):
            pass


async def test_of_two_pollers_one_is_in_conflict_and_one_is_served(
    telegram: TelegramServer, bot: Bot, visit: Visit
) -> None:
    async with bot_of(telegram) as other:  # a bot keeps one connection for polling
        polls = {asyncio.create_task(poller.get_updates(timeout=30)) for poller in (bot, other)}

        [refused], [waiting] = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(Conflict, match="terminated by other getUpdates request"):
            await refused

        visit.customer.says("hello")
        assert [update.message.text for update in await waiting if update.message] == ["hello"]


async def test_poll_is_in_conflict_with_a_webhook(telegram: TelegramServer, bot: Bot, visit: Visit) -> None:
    async with running(application(telegram)) as updater:
        await listen(updater, SECRET)

        with pytest.raises(Conflict, match="webhook is active"):
            await bot.get_updates()
        await updater.stop()

    await bot.delete_webhook()
    visit.customer.says("hello")
    assert len(await bot.get_updates()) == 1


@pytest.mark.usefixtures("visit")
async def test_webhook_elsewhere_than_on_loopback_is_refused(bot: Bot) -> None:
    with pytest.raises(BadRequest, match="loopback"):
        await bot.set_webhook("https://shop.example/hook")

    assert not (await bot.get_webhook_info()).url


async def test_webhook_info_tells_of_a_wrong_secret_until_it_is_right(
    telegram: TelegramServer, bot: Bot, visit: Visit
) -> None:
    async with running(application(telegram)) as updater:
        await listen(updater, SECRET)
        url = (await bot.get_webhook_info()).url
        await bot.set_webhook(url, secret_token="wrong", max_connections=7, allowed_updates=["message"])
        visit.customer.says("hello")
        info = await first_failure(bot)
        await bot.set_webhook(url, secret_token=SECRET)
        answer = await visit.customer.hears()
        await updater.stop()

    assert str(info.last_error_message).startswith("Wrong response from the webhook: 403")
    assert info.last_error_date is not None
    assert (info.url, info.max_connections, info.allowed_updates) == (url, 7, ("message",))
    assert info.pending_update_count == 1
    assert answer["text"] == "You said: hello"


async def first_failure(bot: Bot) -> WebhookInfo:
    while (info := await bot.get_webhook_info()).last_error_message is None:
        pass
    return info
