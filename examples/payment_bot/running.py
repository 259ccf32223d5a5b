"""Runs the bot: on the real services, or on simulated ones if none is named."""

import asyncio
import logging
import os
import sys

from aiogram.exceptions import AiogramError

from payment_bot.bot import PaymentBot
from payment_bot.config import BadConfigError, Config, is_simulated
from payment_bot.simulated import simulated
from tidegate import Tidegate
from tidegate.errors import TidegateError


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def run() -> None:
    if is_simulated():
        async with simulated(os.environ) as (config, how_to):
            say(how_to)
            # The books end with this process, and so does who waits for them.
            await PaymentBot(config, gate=Tidegate("memory://"), say=say).run()
    else:
        await PaymentBot(Config.read(), say=say).run()


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(run())
    except (BadConfigError, TidegateError, AiogramError, OSError) as error:  # it could not begin
        sys.exit(f"payment_bot: {error}")
