"""Puts the habit bot together, and runs it on Telegram, or on a simulated one if no token is set."""

import asyncio
import logging
import os
import sys
from typing import Any, Final

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import AiogramError

from habit_bot.config import Config
from habit_bot.handlers import HabitHandlers
from habit_bot.journal import Journal
from habit_bot.texts import Phrases
from tidegate import DueReminder, Tidegate, TidegateError
from tidegate.sim import Limits, TelegramServer

SIMULATED_TOKEN: Final = "42:simulated"  # noqa: S105  (of a bot that exists in the simulator only)


def build(config: Config, gate: Tidegate | None = None) -> tuple[Dispatcher, Bot]:
    bot = Bot(config.token, session=AiohttpSession(api=TelegramAPIServer.from_base(config.api_url)))
    dispatcher = Dispatcher()

    # This is Tidegate, with its import: every call waits its turn, and reminders fire while the bot runs.
    gate = gate or Tidegate()
    gate.attach(dispatcher, bot)

    journal = Journal(gate)
    handlers = HabitHandlers(gate, journal, Phrases(config.texts))

    # A text that is made when it is due: the statistics of the week, each Sunday.
    @gate.reminders.handler("week")
    async def week(due: DueReminder) -> str | None:
        user = await journal.user(due.reminder.user_id)
        return None if user is None else await handlers.week(user)

    # Somebody who has blocked the bot is reminded no more. The habits stay, in case of a return.
    @gate.on_dead
    async def forget(message: Any, reason: str) -> None:  # noqa: ANN401  (a Message of Tidegate)
        if reason == "blocked":
            await gate.reminders.forget(message.chat_id)

    dispatcher.startup.register(journal.open)
    dispatcher.include_router(handlers.router())
    return dispatcher, bot


async def run() -> None:
    if os.environ.get("TELEGRAM_BOT_TOKEN"):
        dispatcher, bot = build(Config.read())
        await dispatcher.start_polling(bot)
        return
    async with TelegramServer(limits=Limits()) as telegram:
        sys.stdout.write(_how_to(telegram.url))
        sys.stdout.flush()
        config = Config.read(
            {**os.environ, "TELEGRAM_BOT_TOKEN": SIMULATED_TOKEN, "TELEGRAM_API_URL": telegram.url}
        )
        dispatcher, bot = build(config, Tidegate("memory://"))
        await dispatcher.start_polling(bot)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(run())
    except (TidegateError, AiogramError, OSError) as error:  # it could not start
        sys.exit(f"habit_bot: {error}")


def _how_to(telegram: str) -> str:
    return "\n".join(
        [
            "TELEGRAM_BOT_TOKEN is not set, so Telegram is simulated, and nothing is kept. Be a user:",
            f"""  curl -d '{{"bot": 42, "user": 1001, "text": "/zone Europe/Berlin"}}' {telegram}/sim/say""",
            f"""  curl -d '{{"bot": 42, "user": 1001, "text": "/add 09:00 Read"}}' {telegram}/sim/say""",
            f"  curl '{telegram}/sim/log?chat=1001'\n",
        ]
    )
