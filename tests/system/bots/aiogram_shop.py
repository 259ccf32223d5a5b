"""The shop as an ordinary aiogram bot, and the two ways it gets its updates."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiogram import Bot, Dispatcher, Router
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.filters import Command, CommandObject, CommandStart
from aiogram.fsm.context import FSMContext
from aiogram.fsm.state import State, StatesGroup
from aiogram.methods import SendMessage
from aiogram.types import (
    BufferedInputFile,
    CallbackQuery,
    ChatMemberUpdated,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaPhoto,
    Message,
)
from aiogram.webhook.aiohttp_server import SimpleRequestHandler
from aiohttp import web

from system.bots.scenes import OWNER, PAPER, PICTURE, PRICES, SECRET, TOKEN
from tidegate import Tidegate
from tidegate.sim.telegram.http import TelegramServer

BUTTONS = InlineKeyboardMarkup(
    inline_keyboard=[
        [InlineKeyboardButton(text=what.title(), callback_data=f"buy:{what}") for what in PRICES]
    ]
)


class Order(StatesGroup):
    address = State()
    name = State()


async def greet(message: Message) -> None:
    assert message.from_user is not None
    await message.answer(f"Welcome, {message.from_user.full_name}!", reply_markup=BUTTONS)


async def sell(query: CallbackQuery) -> None:
    assert query.data is not None
    assert isinstance(query.message, Message)
    await query.answer("Good choice")
    await query.message.edit_text(f"You chose {query.data.removeprefix('buy:')}.")


async def tell_price(message: Message, command: CommandObject) -> None:
    assert command.args is not None
    what, count = command.args.split()
    await message.answer(f"{count} {what} = {int(count) * PRICES[what]}")


async def begin_order(message: Message, state: FSMContext) -> None:
    await state.set_state(Order.address)
    await message.answer("Where to?")


async def take_address(message: Message, state: FSMContext) -> None:
    await state.update_data(address=message.text)
    await state.set_state(Order.name)
    await message.answer("For whom?")


async def take_name(message: Message, state: FSMContext) -> None:
    address = (await state.get_data())["address"]
    await state.clear()
    await message.answer(f"For {message.text}, to {address}.")


async def send_picture(message: Message) -> None:
    sent = await message.answer_photo(BufferedInputFile(PICTURE, "teapot.png"))
    assert sent.photo is not None
    await message.answer_photo(sent.photo[-1].file_id, caption="again")


async def send_paper(message: Message) -> None:
    sent = await message.answer_document(BufferedInputFile(PAPER, "prices.txt"))
    assert sent.document is not None
    await message.answer_document(sent.document.file_id)


async def send_album(message: Message) -> None:
    items = [
        InputMediaPhoto(media=BufferedInputFile(PICTURE + number, "teapot.png"), caption=caption)
        for number, caption in ((b"1", "one"), (b"2", "two"), (b"3", "three"))
    ]
    sent = await message.answer_media_group([*items])
    await message.answer(f"{sum(item.photo is not None for item in sent)} pictures")


async def think(message: Message, bot: Bot) -> None:
    shown = await bot.send_chat_action(message.chat.id, "typing")
    await message.answer("Hmm." if shown else "Cannot think.")


async def repeat(message: Message) -> None:
    original = await message.answer("Fresh tea!")
    copy = await original.copy_to(message.chat.id)
    await original.forward(message.chat.id)
    await original.delete()
    await message.answer(f"deleted {original.message_id}, copy is {copy.message_id}")


async def look_up(message: Message, bot: Bot) -> None:
    chat = await bot.get_chat(message.chat.id)
    member = await bot.get_chat_member(chat.id, message.chat.id)
    await message.answer(f"{chat.type}: {chat.full_name}, @{member.user.username}, {member.status}")


async def download(message: Message, bot: Bot) -> None:
    sent = await message.answer_document(BufferedInputFile(PAPER, "prices.txt"))
    assert sent.document is not None
    file = await bot.get_file(sent.document.file_id)
    assert file.file_path is not None
    content = await bot.download_file(file.file_path)
    assert content is not None
    await message.answer(content.read().decode())


async def report_change(change: ChatMemberUpdated, bot: Bot) -> None:
    before, after = change.old_chat_member.status, change.new_chat_member.status
    await bot.send_message(OWNER, f"{change.from_user.full_name}: {before} → {after}")


async def echo(message: Message) -> SendMessage:
    """A method that is returned, not awaited: with a webhook it travels in the answer to the update."""
    return message.reply(f"You said: {message.text}")


def dispatcher() -> Dispatcher:
    shop = Router()
    shop.message.register(greet, CommandStart())
    shop.message.register(tell_price, Command("price"))
    shop.message.register(begin_order, Command("order"))
    shop.message.register(take_address, Order.address)
    shop.message.register(take_name, Order.name)
    shop.message.register(send_picture, Command("picture"))
    shop.message.register(send_paper, Command("paper"))
    shop.message.register(send_album, Command("album"))
    shop.message.register(think, Command("think"))
    shop.message.register(repeat, Command("repeat"))
    shop.message.register(look_up, Command("whoami"))
    shop.message.register(download, Command("download"))
    shop.message.register(echo)
    shop.callback_query.register(sell)
    shop.my_chat_member.register(report_change)
    dispatcher = Dispatcher()
    dispatcher.include_router(shop)
    return dispatcher


def bot_of(server: TelegramServer, token: str = TOKEN) -> Bot:
    return Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(server.url)))


@asynccontextmanager
async def polling(
    server: TelegramServer,
    gate: Tidegate | None = None,
    **options: Any,  # noqa: ANN401  (those of attach)
) -> AsyncIterator[None]:
    shop, bot = dispatcher(), bot_of(server)
    if gate is not None:
        gate.attach(shop, bot, **options)
    async with serving(shop, bot):
        yield


@asynccontextmanager
async def serving(shop: Dispatcher, bot: Bot) -> AsyncIterator[None]:
    """While the dispatcher polls."""
    started = asyncio.Event()
    shop.startup.register(started.set)
    task = asyncio.create_task(shop.start_polling(bot, handle_signals=False, polling_timeout=5))
    task.add_done_callback(lambda _: started.set())  # one that cannot start says so, and nobody waits
    await started.wait()
    if task.done():
        task.result()
    yield
    await shop.stop_polling()
    await task


@asynccontextmanager
async def webhook(server: TelegramServer, gate: Tidegate | None = None) -> AsyncIterator[None]:
    shop = dispatcher()
    async with bot_of(server) as bot, listening(shop, bot) as url:
        if gate is not None:
            gate.attach(shop, bot)
        await shop.emit_startup(bot=bot, **shop.workflow_data)
        await bot.set_webhook(url, secret_token=SECRET)
        yield
        await shop.emit_shutdown(bot=bot, **shop.workflow_data)


@asynccontextmanager
async def listening(shop: Dispatcher, bot: Bot) -> AsyncIterator[str]:
    """The address at which the shop takes updates; Telegram is still to be told of it."""
    handler = SimpleRequestHandler(shop, bot, handle_in_background=False, secret_token=SECRET)
    app = web.Application()
    app.router.add_post("/hook", handler.handle)  # `register` would close the bot's session as well
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    finally:
        await runner.cleanup()
