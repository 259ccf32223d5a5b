"""`python -m repair_bot` runs the bot on aiogram, `python -m repair_bot ptb` on python-telegram-bot."""

import logging
import os
import sys

from repair_bot.workshops import Workshops
from tidegate import TidegateError


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs addresses, which hold the token
    if (token := os.environ.get("TELEGRAM_BOT_TOKEN")) is None:
        sys.exit("repair_bot: set TELEGRAM_BOT_TOKEN, and TELEGRAM_API_URL for a simulated Telegram")
    if "ptb" in sys.argv:
        from repair_bot.with_ptb import build  # noqa: PLC0415  (either library may be missing)
    else:
        from repair_bot.with_aiogram import build  # type: ignore[assignment]  # noqa: PLC0415
    try:
        build(token, os.environ.get("TELEGRAM_API_URL"), Workshops()).run_polling()
    except (TidegateError, OSError) as error:  # it could not start
        sys.exit(f"repair_bot: {error}")


main()
