"""Runs the bot on the real services, or on simulated ones if none is configured."""

import asyncio
import logging
import os
import sys

from aiogram.exceptions import AiogramError, TelegramUnauthorizedError

from payment_bot.bot import PaymentBot
from payment_bot.config import BadConfigError, Books, Config, is_simulated
from payment_bot.simulated import simulated
from tidegate import NocoDb, Tidegate, TidegateError, UpstreamAwayError, UpstreamRefusedError


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def look_into(books: Books) -> None:
    """Check the table. Raises BadConfigError if this token has no such table."""
    async with NocoDb.at(books.url, books.token) as nocodb:
        try:
            await nocodb.table(books.table).count()
        except UpstreamRefusedError as error:
            why = f"NocoDB does not know its token or its table ({error.status})"
            raise BadConfigError(f"NOCODB_URL cannot be used: {why}") from None
        except UpstreamAwayError as error:
            say(f"NocoDB is not there yet, and is tried again: {error}")


async def run() -> None:
    if is_simulated():
        async with simulated(os.environ) as (config, how_to):
            say(how_to)
            # The simulated table ends with this process, and so do its subscriptions.
            await PaymentBot(config, gate=Tidegate("memory://"), say=say).run()
    else:
        config = Config.read()
        await look_into(config.books)
        await PaymentBot(config, say=say).run()


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(run())
    except TelegramUnauthorizedError:
        sys.exit("payment_bot: Telegram does not know TELEGRAM_BOT_TOKEN: copy it from @BotFather")
    except (BadConfigError, TidegateError, AiogramError, OSError) as error:  # it could not start
        sys.exit(f"payment_bot: {error}")
