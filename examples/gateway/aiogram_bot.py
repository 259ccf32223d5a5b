"""A bot with aiogram behind the gateway: it repeats what people say, and queues the news.

TELEGRAM_BOT_TOKEN=42:any python aiogram_bot.py

A bot in Python need not go through the gateway: `gate.attach(dp, bot)` does the same inside it. This is for
several programs with one bot, and for tokens that must not leave a machine.
"""

import asyncio
import os

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.session.middlewares.base import BaseRequestMiddleware, NextRequestMiddlewareType
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramRetryAfter
from aiogram.filters import Command
from aiogram.methods import Response, TelegramMethod
from aiogram.methods.base import TelegramType
from aiogram.types import Message
from aiohttp import ClientSession

GATEWAY = TelegramAPIServer.from_base(os.environ.get("TELEGRAM_API_URL", "http://127.0.0.1:8081"))


class WaitAndRetry(BaseRequestMiddleware):
    """The gateway answers 429 only if the turn of a call comes later than 4 s: wait as long as it says."""

    async def __call__(
        self,
        make_request: NextRequestMiddlewareType[TelegramType],
        bot: Bot,
        method: TelegramMethod[TelegramType],
    ) -> Response[TelegramType]:
        while True:
            try:
                return await make_request(bot, method)
            except TelegramRetryAfter as error:
                await asyncio.sleep(error.retry_after)


class QueuingSession(AiohttpSession):
    """Calls are queued: answered at once, delivered in their turn, also after a restart of the bot."""

    async def create_session(self) -> ClientSession:
        session = await super().create_session()
        session.headers["X-Tidegate"] = "queue; priority=low"
        return session


async def main() -> None:
    token = os.environ["TELEGRAM_BOT_TOKEN"]
    bot = Bot(token, session=AiohttpSession(api=GATEWAY))
    bot.session.middleware(WaitAndRetry())
    queue = Bot(token, session=QueuingSession(api=GATEWAY))
    dispatcher = Dispatcher()

    @dispatcher.message(Command("news"))
    async def news(message: Message) -> None:
        await queue.send_message(message.chat.id, "News for you")

    @dispatcher.message()
    async def answer(message: Message) -> None:
        await message.answer(f"You said: {message.text}")

    try:
        await dispatcher.start_polling(bot)
    finally:
        await queue.session.close()


if __name__ == "__main__":
    asyncio.run(main())
