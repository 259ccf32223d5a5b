"""A python-telegram-bot bot that polls, to be killed: `polling_ptb.py STORE URL [reply]`.

It says which message it handles, and which it has handled, and answers each in a queue if it is to.
"""

import asyncio
import sys
from typing import Any

from telegram import Update
from telegram.ext import Application, CallbackContext, ExtBot, MessageHandler, filters

from simulated import TOKEN
from tidegate import Tidegate

Context = CallbackContext[ExtBot[Any], Any, Any, Any]


def main(store: str, url: str, *options: str) -> None:
    gate = Tidegate(store)

    async def handle(update: Update, _: Context) -> None:
        message = update.message
        assert message is not None
        _say(f"{message.chat.id} {message.text}")
        if "reply" in options:
            await gate.queue(message.reply_text(f"re {message.text}"))
        await asyncio.sleep(0.02)  # noqa: TID251  (a process of its own)

    builder = Application.builder().token(TOKEN).base_url(f"{url}/bot").job_queue(None)
    application = gate.ptb().equip(builder, throttle=False).build()
    application.add_handler(MessageHandler(filters.TEXT, handle))
    application.run_polling(timeout=5)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
