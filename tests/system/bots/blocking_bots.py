"""Bots whose handlers block the event loop, as bots that call `requests` do: once for each library."""

import gc
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiogram import Dispatcher, F
from aiogram.types import Message
from telegram import Update
from telegram.ext import Application, CallbackContext, MessageHandler, filters

from system.bots.aiogram_shop import bot_of, serving
from system.bots.ptb_shop import running
from system.bots.scenes import TOKEN
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.sim.telegram.http import TelegramServer


def act(text: str) -> None:
    """Do what a user says: "sleep 0.4", "get http://…", "collect", "compute 0.3"."""
    match text.split():
        case ["sleep", seconds]:
            time.sleep(float(seconds))  # noqa: TID251  (what must not be done)
        case ["get", url]:
            urllib.request.urlopen(url).read()  # noqa: S310  (a server of the test)
        case ["collect"]:
            gc.collect()
        case ["compute", seconds]:
            end = Clock().monotonic() + float(seconds)
            while Clock().monotonic() < end:
                pass


async def on_pay(message: Message) -> None:
    act(message.text or "")
    await message.answer("done")


async def on_slow(message: Message) -> None:
    await Clock().sleep(float((message.text or "").removeprefix("wait ")))
    await message.answer("done")


async def pay(update: Update, _context: CallbackContext[Any, Any, Any, Any]) -> None:
    assert update.message is not None
    act(update.message.text or "")
    await update.message.reply_text("done")


@asynccontextmanager
async def aiogram_bot(server: TelegramServer, gate: Tidegate, **options: Any) -> AsyncIterator[None]:  # noqa: ANN401
    dispatcher, bot = Dispatcher(), bot_of(server)
    dispatcher.message.register(on_slow, F.text.startswith("wait "))
    dispatcher.message.register(on_pay)
    gate.attach(dispatcher, bot, **options)
    async with serving(dispatcher, bot):
        yield


@asynccontextmanager
async def ptb_bot(server: TelegramServer, gate: Tidegate, **options: Any) -> AsyncIterator[None]:  # noqa: ANN401
    builder = Application.builder().token(TOKEN).concurrent_updates(True)  # noqa: FBT003
    if options:
        builder = Application.builder().token(TOKEN)
    builder = builder.base_url(f"{server.url}/bot").base_file_url(f"{server.url}/file/bot")
    application = gate.attach(builder, **options).build()
    application.add_handler(MessageHandler(filters.TEXT, pay))
    async with running(application) as updater:
        await updater.start_polling(timeout=5)
        yield
        await updater.stop()
