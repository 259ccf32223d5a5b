"""The bot of `flood.py` in aiogram: it repeats what people say."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramRetryAfter
from aiogram.types import Message
from benchmarks.flood_telegram import TOKEN

from tidegate import Tidegate

Result = TypeVar("Result")
Send = Callable[[int, str], Awaitable[object]]


async def once(call: Callable[[], Awaitable[Result]]) -> Result:
    return await call()


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """Send in the usual loop: sleep for as long as Telegram says, then send again."""
    while True:
        try:
            return await call()
        except TelegramRetryAfter as error:
            await asyncio.sleep(error.retry_after)


@asynccontextmanager
async def running(url: str, kind: str, gate: Tidegate | None) -> AsyncIterator[Send]:
    """Poll while the body runs. Yields a function that sends a text to a user, as handlers do."""
    bot = Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(url)))
    dispatcher, make = Dispatcher(), patiently if kind == "retries" else once

    @dispatcher.message()
    async def answer(message: Message) -> None:
        await make(lambda: message.answer(f"You said: {message.text}"))

    async def send(chat: int, text: str) -> object:
        return await make(lambda: bot.send_message(chat, text))

    if gate is not None:
        gate.attach(dispatcher, bot)
    started = asyncio.Event()
    dispatcher.startup.register(started.set)
    polling = asyncio.create_task(dispatcher.start_polling(bot, handle_signals=False))
    await started.wait()
    yield send
    await dispatcher.stop_polling()
    await polling
