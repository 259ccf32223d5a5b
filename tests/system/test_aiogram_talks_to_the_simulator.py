"""An unmodified aiogram bot takes the simulator for Telegram."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    TelegramBadRequest,
    TelegramConflictError,
    TelegramForbiddenError,
    TelegramMigrateToChat,
    TelegramRetryAfter,
    TelegramUnauthorizedError,
)
from aiogram.methods import SendMessage, SendPhoto
from aiogram.types import BufferedInputFile, Message, WebhookInfo

from system.bots import aiogram_shop
from system.bots.aiogram_shop import bot_of, listening
from system.bots.scenes import (
    CROWDED,
    GENEROUS,
    GROWING,
    PICTURE,
    SCENES,
    SECRET,
    STRANGER,
    TOKEN,
    Opening,
    Scene,
    Visit,
    strict_telegram,
)
from tidegate.sim.telegram.http import TelegramServer


@pytest.fixture(scope="module", params=[aiogram_shop.polling, aiogram_shop.webhook])
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


@pytest.mark.parametrize("scene", SCENES)
async def test_conversation(scene: Scene, open_shop: TelegramServer) -> None:
    await scene(Visit(open_shop.telegram))


async def test_edit_without_a_change_is_refused(bot: Bot, visit: Visit) -> None:
    sent = await bot.send_message(visit.customer.id, "same", reply_markup=aiogram_shop.BUTTONS)

    with pytest.raises(TelegramBadRequest, match="message is not modified"):
        await sent.edit_text("same", reply_markup=aiogram_shop.BUTTONS)


async def test_blocked_bot_may_not_write(bot: Bot, visit: Visit) -> None:
    visit.customer.blocks()

    with pytest.raises(TelegramForbiddenError, match="bot was blocked by the user"):
        await bot.send_message(visit.customer.id, "are you there?")


async def test_stranger_is_not_found(bot: Bot) -> None:
    with pytest.raises(TelegramBadRequest, match="chat not found"):
        await bot.send_message(STRANGER, "hello")


async def test_flood_says_when_to_come_back(bot: Bot) -> None:
    await bot.send_message(CROWDED, "one")
    await bot.send_message(CROWDED, "two")

    with pytest.raises(TelegramRetryAfter) as refusal:
        await bot.send_message(CROWDED, "three")

    assert refusal.value.retry_after in {59, 60}


async def test_migrated_group_says_where_it_is(bot: Bot, telegram: TelegramServer) -> None:
    moved_to = telegram.telegram.world.migrate(GROWING, telegram.telegram.clock.now())

    with pytest.raises(TelegramMigrateToChat) as refusal:
        await bot.send_message(GROWING, "hello")

    assert refusal.value.migrate_to_chat_id == moved_to
    assert (await bot.send_message(moved_to, "hello")).chat.type == "supergroup"


async def test_unknown_token_is_unauthorized(telegram: TelegramServer) -> None:
    async with bot_of(telegram, "43:guessed") as impostor:
        with pytest.raises(TelegramUnauthorizedError):
            await impostor.get_me()


async def test_of_two_pollers_one_is_in_conflict_and_one_is_served(bot: Bot, visit: Visit) -> None:
    polls = {asyncio.create_task(bot.get_updates(timeout=30)) for _ in range(2)}

    [refused], [waiting] = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
    with pytest.raises(TelegramConflictError, match="terminated by other getUpdates request"):
        await refused

    visit.customer.says("hello")
    assert [update.message.text for update in await waiting if update.message] == ["hello"]


async def test_poll_is_in_conflict_with_a_webhook(bot: Bot, visit: Visit) -> None:
    async with listening(Dispatcher(), bot_of_nowhere()) as url:
        await bot.set_webhook(url)

        with pytest.raises(TelegramConflictError, match="webhook is active"):
            await bot.get_updates()

    await bot.delete_webhook()
    visit.customer.says("hello")
    assert len(await bot.get_updates()) == 1


@pytest.mark.usefixtures("visit")
async def test_webhook_elsewhere_than_on_loopback_is_refused(bot: Bot) -> None:
    with pytest.raises(TelegramBadRequest, match="loopback"):
        await bot.set_webhook("https://shop.example/hook")

    assert not (await bot.get_webhook_info()).url


async def test_webhook_that_fails_gets_the_update_again(bot: Bot, visit: Visit) -> None:
    seen: list[int] = []

    async def stumble_once(message: Message) -> SendMessage:
        seen.append(message.message_id)
        if len(seen) == 1:
            raise RuntimeError("answered 500")
        return message.answer("at last")

    async with listening(dispatching(stumble_once), bot) as url:
        await bot.set_webhook(url, secret_token=SECRET)
        answer = await visit.ask("hello")
        info = await bot.get_webhook_info()

    assert answer["text"] == "at last"
    assert seen == [seen[0]] * 2
    assert info.pending_update_count == 0
    assert str(info.last_error_message).startswith("Wrong response from the webhook: 500")


async def test_webhook_info_tells_of_a_wrong_secret_until_it_is_right(bot: Bot, visit: Visit) -> None:
    async with listening(aiogram_shop.dispatcher(), bot) as url:
        await bot.set_webhook(url, secret_token="wrong", max_connections=7, allowed_updates=["message"])
        visit.customer.says("hello")
        info = await first_failure(bot)
        await bot.set_webhook(url, secret_token=SECRET)
        answer = await visit.customer.hears()

    assert str(info.last_error_message).startswith("Wrong response from the webhook: 401")
    assert info.last_error_date is not None
    assert (info.url, info.max_connections, info.allowed_updates) == (url, 7, ["message"])
    assert info.pending_update_count == 1
    assert answer["text"] == "You said: hello"


async def test_deliveries_in_flight_never_exceed_max_connections(bot: Bot, visit: Visit) -> None:
    inside, most = 0, 0
    full, opened = asyncio.Event(), asyncio.Event()

    async def wait_inside(message: Message) -> SendMessage:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 2:
            full.set()
        await opened.wait()
        inside -= 1
        return message.answer("served")

    async with listening(dispatching(wait_inside), bot) as url:
        await bot.set_webhook(url, secret_token=SECRET, max_connections=2)
        people = [Visit(visit.telegram).customer for _ in range(6)]  # one chat has one in flight at most
        for person in people:
            person.says("hello")
        await full.wait()
        info = await bot.get_webhook_info()  # a third delivery would be here by now
        opened.set()
        for person in people:
            await person.hears()

    assert info.pending_update_count == 6
    assert most == 2


async def test_reply_in_the_answer_to_a_webhook_needs_no_call(bot: Bot, visit: Visit) -> None:
    async def reply(message: Message) -> SendMessage:
        return message.reply("here", reply_markup=aiogram_shop.BUTTONS)

    async with listening(dispatching(reply), bot_of_nowhere()) as url:
        await bot.set_webhook(url, secret_token=SECRET)
        heard = await visit.ask("hello")

    assert heard["text"] == "here"
    assert heard["reply_to_message"]["text"] == "hello"
    assert visit.customer.buttons() == ["buy:tea", "buy:coffee"]


async def test_upload_in_the_answer_to_a_webhook_arrives(bot: Bot, visit: Visit) -> None:
    async def show(message: Message) -> SendPhoto:
        return message.answer_photo(BufferedInputFile(PICTURE, "teapot.png"), caption="here")

    async with listening(dispatching(show), bot_of_nowhere()) as url:
        await bot.set_webhook(url, secret_token=SECRET)
        heard = await visit.ask("hello")

    assert visit.content(heard["photo"][-1]) == PICTURE
    assert heard["caption"] == "here"


def dispatching(handler: Callable[..., object]) -> Dispatcher:
    dispatcher = Dispatcher()
    dispatcher.message.register(handler)
    return dispatcher


def bot_of_nowhere() -> Bot:
    """Calls of its own would fail: nothing listens there."""
    return Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base("http://127.0.0.1:1")))


async def first_failure(bot: Bot) -> WebhookInfo:
    while (info := await bot.get_webhook_info()).last_error_message is None:
        pass
    return info
