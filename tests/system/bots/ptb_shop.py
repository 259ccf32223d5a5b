"""The shop as an ordinary python-telegram-bot application, and the two ways it gets its updates."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, InputMediaPhoto, Message, Update
from telegram.ext import (
    Application,
    CallbackQueryHandler,
    ChatMemberHandler,
    CommandHandler,
    ContextTypes,
    ConversationHandler,
    MessageHandler,
    Updater,
    filters,
)
from tornado.netutil import bind_sockets

from system.bots.scenes import OWNER, PAPER, PICTURE, PRICES, SECRET, TOKEN
from tidegate.sim.telegram.http import TelegramServer

Shop = Application[Any, Any, Any, Any, Any, Any]
Context = ContextTypes.DEFAULT_TYPE
TEXT = filters.TEXT & ~filters.COMMAND
ADDRESS, NAME = range(2)
BUTTONS = InlineKeyboardMarkup(
    [[InlineKeyboardButton(what.title(), callback_data=f"buy:{what}") for what in PRICES]]
)


def message_of(update: Update) -> Message:
    assert update.message is not None
    return update.message


async def greet(update: Update, _: Context) -> None:
    assert update.effective_user is not None
    await message_of(update).reply_text(f"Welcome, {update.effective_user.full_name}!", reply_markup=BUTTONS)


async def sell(update: Update, _: Context) -> None:
    query = update.callback_query
    assert query is not None
    assert query.data is not None
    await query.answer("Good choice")
    await query.edit_message_text(f"You chose {query.data.removeprefix('buy:')}.")


async def tell_price(update: Update, context: Context) -> None:
    assert context.args is not None
    what, count = context.args
    await message_of(update).reply_text(f"{count} {what} = {int(count) * PRICES[what]}")


async def begin_order(update: Update, _: Context) -> int:
    await message_of(update).reply_text("Where to?")
    return ADDRESS


async def take_address(update: Update, context: Context) -> int:
    assert context.user_data is not None
    context.user_data["address"] = message_of(update).text
    await message_of(update).reply_text("For whom?")
    return NAME


async def take_name(update: Update, context: Context) -> int:
    assert context.user_data is not None
    message = message_of(update)
    await message.reply_text(f"For {message.text}, to {context.user_data['address']}.")
    return ConversationHandler.END


async def send_picture(update: Update, _: Context) -> None:
    message = message_of(update)
    sent = await message.reply_photo(PICTURE, filename="teapot.png")
    await message.reply_photo(sent.photo[-1], caption="again")


async def send_paper(update: Update, _: Context) -> None:
    message = message_of(update)
    sent = await message.reply_document(PAPER, filename="prices.txt")
    assert sent.document is not None
    await message.reply_document(sent.document.file_id)


async def send_album(update: Update, _: Context) -> None:
    items = [
        InputMediaPhoto(PICTURE + number, caption=caption)
        for number, caption in ((b"1", "one"), (b"2", "two"), (b"3", "three"))
    ]
    sent = await message_of(update).reply_media_group(items)
    await message_of(update).reply_text(f"{sum(bool(item.photo) for item in sent)} pictures")


async def think(update: Update, _: Context) -> None:
    shown = await message_of(update).reply_chat_action("typing")
    await message_of(update).reply_text("Hmm." if shown else "Cannot think.")


async def repeat(update: Update, _: Context) -> None:
    message = message_of(update)
    original = await message.reply_text("Fresh tea!")
    copy = await original.copy(message.chat_id)
    await original.forward(message.chat_id)
    await original.delete()
    await message.reply_text(f"deleted {original.message_id}, copy is {copy.message_id}")


async def look_up(update: Update, context: Context) -> None:
    message = message_of(update)
    chat = await context.bot.get_chat(message.chat_id)
    member = await chat.get_member(message.chat_id)
    await message.reply_text(f"{chat.type}: {chat.full_name}, @{member.user.username}, {member.status}")


async def download(update: Update, context: Context) -> None:
    message = message_of(update)
    sent = await message.reply_document(PAPER, filename="prices.txt")
    assert sent.document is not None
    file = await context.bot.get_file(sent.document.file_id)
    await message.reply_text(bytes(await file.download_as_bytearray()).decode())


async def report_change(update: Update, context: Context) -> None:
    change = update.my_chat_member
    assert change is not None
    before, after = change.old_chat_member.status, change.new_chat_member.status
    await context.bot.send_message(OWNER, f"{change.from_user.full_name}: {before} → {after}")


async def echo(update: Update, _: Context) -> None:
    message = message_of(update)
    await message.reply_text(f"You said: {message.text}", do_quote=True)


def application(server: TelegramServer) -> Shop:
    builder = Application.builder().token(TOKEN)
    shop = builder.base_url(f"{server.url}/bot").base_file_url(f"{server.url}/file/bot").build()
    order = ConversationHandler(
        entry_points=[CommandHandler("order", begin_order)],
        states={ADDRESS: [MessageHandler(TEXT, take_address)], NAME: [MessageHandler(TEXT, take_name)]},
        fallbacks=[],
    )
    shop.add_handlers(
        [
            order,
            CommandHandler("start", greet),
            CommandHandler("price", tell_price),
            CommandHandler("picture", send_picture),
            CommandHandler("paper", send_paper),
            CommandHandler("album", send_album),
            CommandHandler("think", think),
            CommandHandler("repeat", repeat),
            CommandHandler("whoami", look_up),
            CommandHandler("download", download),
            MessageHandler(TEXT, echo),
            CallbackQueryHandler(sell),
            ChatMemberHandler(report_change, ChatMemberHandler.MY_CHAT_MEMBER),
        ]
    )
    return shop


def bot_of(server: TelegramServer, token: str = TOKEN) -> Bot:
    return Bot(token, base_url=f"{server.url}/bot", base_file_url=f"{server.url}/file/bot")


@asynccontextmanager
async def polling(server: TelegramServer) -> AsyncIterator[None]:
    async with running(application(server)) as updater:
        await updater.start_polling(timeout=5)
        yield
        await updater.stop()


@asynccontextmanager
async def webhook(server: TelegramServer) -> AsyncIterator[None]:
    async with running(application(server)) as updater:
        await listen(updater, SECRET)
        yield
        await updater.stop()


async def listen(updater: Updater, secret: str) -> None:
    """Set a webhook on a free port of loopback."""
    # `unix` takes any socket that listens: no other process can snatch its port before it is used.
    [socket] = bind_sockets(0, "127.0.0.1")
    url = f"http://127.0.0.1:{socket.getsockname()[1]}/hook"
    await updater.start_webhook(unix=socket, url_path="hook", webhook_url=url, secret_token=secret)


@asynccontextmanager
async def running(shop: Shop) -> AsyncIterator[Updater]:
    assert shop.updater is not None
    async with shop:
        await shop.start()
        yield shop.updater
        await shop.stop()
