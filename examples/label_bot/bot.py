"""Puts the label bot together, and runs it on Telegram, or beside a simulated one if no token is set."""

import asyncio
import logging
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import AiogramError

from label_bot.blocking import BlockingHandlers
from label_bot.config import Config
from label_bot.handlers import LabelHandlers
from label_bot.jobs import gate, take_payment
from label_bot.orders import Orders
from label_bot.reports import Reports
from label_bot.texts import LabelTexts
from tidegate import TidegateError
from tidegate.sim import Limits, TelegramServer

SIMULATED_TOKEN: Final = "42:simulated"  # noqa: S105  (of a bot that exists in the simulator only)
BLOCKING: Final = "--blocking"

log = logging.getLogger("label_bot")


def build(config: Config, *, blocking: bool = False) -> tuple[Dispatcher, Bot]:
    bot = Bot(config.token, session=AiohttpSession(api=TelegramAPIServer.from_base(config.api_url)))
    dispatcher = Dispatcher()

    # This is Tidegate (its third line is in jobs.py): calls wait their turn, updates survive a crash, and
    # the jobs run while the bot does.
    gate.attach(dispatcher, bot, updates="durable", throttle=True)

    # A signed event becomes a job.
    if config.payment_secret is not None:
        gate.on_hook("payments", config.payment_secret)(take_payment)

    orders, texts = Orders(gate), LabelTexts(config.texts)
    Reports(gate, texts).register()
    handlers = (BlockingHandlers if blocking else LabelHandlers)(gate, orders, texts, config.services)
    dispatcher.startup.register(orders.open)
    dispatcher.include_router(handlers.router())
    return dispatcher, bot


async def run(config: Config, *, blocking: bool) -> None:
    dispatcher, bot = build(config, blocking=blocking)
    for line in config.switched_off():
        log.warning(line)
    if config.payment_secret is None:
        await dispatcher.start_polling(bot)
        return
    polling = asyncio.create_task(dispatcher.start_polling(bot, handle_signals=False))
    hooks = asyncio.create_task(gate.serve(config.host, config.port, webhook=False))  # ends with Ctrl-C
    await asyncio.wait((polling, hooks), return_when=asyncio.FIRST_COMPLETED)
    if not polling.done():
        await dispatcher.stop_polling()
    hooks.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(polling, hooks)


async def run_simulated() -> int:
    """Simulate Telegram here, and run the bot in a process of its own, on files that end with it."""
    async with TelegramServer(limits=Limits()) as telegram:
        telegram.telegram.world.bot(SIMULATED_TOKEN)  # messages to it wait until it is there
        sys.stdout.write(_how_to(telegram.url))
        sys.stdout.flush()
        with tempfile.TemporaryDirectory(prefix="label-bot-") as folder:
            given = {
                "TELEGRAM_BOT_TOKEN": SIMULATED_TOKEN,
                "TELEGRAM_API_URL": telegram.url,
                "TIDEGATE_STORE": str(Path(folder, "tidegate.db")),
            }
            command = (sys.executable, "-m", "label_bot", *sys.argv[1:])
            bot = await asyncio.create_subprocess_exec(*command, env=os.environ | given)
            with suppress(NotImplementedError):  # on Windows
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C reaches the bot by itself
                loop.add_signal_handler(signal.SIGTERM, bot.terminate)
            return await bot.wait()


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    try:
        if os.environ.get("TELEGRAM_BOT_TOKEN"):
            asyncio.run(run(Config.read(), blocking=BLOCKING in sys.argv))
        else:
            sys.exit(asyncio.run(run_simulated()))
    except (TidegateError, AiogramError, OSError) as error:  # it could not start
        sys.exit(f"label_bot: {error}")


def _how_to(telegram: str) -> str:
    order = "/order 2.5 kg; Jane Doe; Main St 1; 12345 Berlin"
    return "\n".join(
        [
            "TELEGRAM_BOT_TOKEN is not set, so Telegram is simulated, and nothing is kept. Be a user:",
            f"""  curl -d '{{"bot": 42, "user": 1001, "text": "{order}"}}' {telegram}/sim/say""",
            f"  curl '{telegram}/sim/log?chat=1001'\n",
        ]
    )
