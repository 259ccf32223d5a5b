"""The bot of `flood_gateway.py` in pyTelegramBotAPI: it repeats what people say."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from benchmarks.flood_telegram import TOKEN
from telebot import asyncio_helper
from telebot.async_telebot import AsyncTeleBot
from telebot.asyncio_helper import ApiTelegramException
from telebot.types import Message

from tidegate import Tidegate

Result = TypeVar("Result")
Send = Callable[[int, str], Awaitable[object]]
TOO_MANY = 429


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """Send in the usual loop: sleep for as long as Telegram says, then send again."""
    while True:
        try:
            return await call()
        except ApiTelegramException as error:
            if error.error_code != TOO_MANY:
                raise
            await asyncio.sleep(error.result_json["parameters"]["retry_after"])


@asynccontextmanager
async def running(url: str, kind: str, gate: Tidegate | None) -> AsyncIterator[Send]:
    """Poll while the body runs. Yields a function that sends a text to a user, as handlers do."""
    assert (kind, gate) == ("retries", None)
    asyncio_helper.API_URL = f"{url}/bot{{0}}/{{1}}"
    bot = AsyncTeleBot(TOKEN)

    async def answer(message: Message) -> None:
        await patiently(lambda: bot.send_message(message.chat.id, f"You said: {message.text}"))

    async def send(chat: int, text: str) -> object:
        return await patiently(lambda: bot.send_message(chat, text))

    bot.register_message_handler(answer, content_types=["text"])
    polling = asyncio.create_task(bot.polling(non_stop=True, timeout=20))
    yield send
    polling.cancel()
    with suppress(asyncio.CancelledError):
        await polling
    await bot.close_session()  # type: ignore[no-untyped-call]  # telebot's
