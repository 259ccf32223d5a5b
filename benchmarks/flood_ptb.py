"""The bot of `flood.py` in python-telegram-bot: it repeats what people say."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from benchmarks.flood_telegram import TOKEN
from telegram import Update
from telegram.error import RetryAfter
from telegram.ext import AIORateLimiter, Application, ContextTypes, MessageHandler, filters

from tidegate import Tidegate

Result = TypeVar("Result")
Send = Callable[[int, str], Awaitable[object]]
OWN_RETRIES: Final = 10


async def once(call: Callable[[], Awaitable[Result]]) -> Result:
    return await call()


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """Send in the usual loop: sleep for as long as Telegram says, then send again."""
    while True:
        try:
            return await call()
        except RetryAfter as error:
            wait = error.retry_after  # seconds now, a timedelta in the next major version
            await asyncio.sleep(wait if isinstance(wait, int) else wait.total_seconds())


@asynccontextmanager
async def running(url: str, kind: str, gate: Tidegate | None) -> AsyncIterator[Send]:
    """Poll while the body runs. Yields a function that sends a text to a user, as handlers do."""
    builder = Application.builder().token(TOKEN).base_url(f"{url}/bot").concurrent_updates(True)  # noqa: FBT003
    limiter: Any = None  # the builder's type changes with it
    if gate is not None:
        limiter = gate.ptb()
    elif kind == "AIORateLimiter":
        limiter = AIORateLimiter(max_retries=OWN_RETRIES)
    if limiter is not None:
        builder.rate_limiter(limiter)
    app, make = builder.build(), patiently if kind == "retries" else once

    async def answer(update: Update, _: ContextTypes.DEFAULT_TYPE) -> None:
        message = update.message
        assert message is not None
        await make(lambda: message.reply_text(f"You said: {message.text}"))

    async def send(chat: int, text: str) -> object:
        return await make(lambda: app.bot.send_message(chat, text))

    app.add_handler(MessageHandler(filters.TEXT, answer))
    assert app.updater is not None
    async with app:
        await app.start()
        await app.updater.start_polling()
        yield send
        await app.updater.stop()
        await app.stop()
