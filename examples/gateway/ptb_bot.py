"""A bot with python-telegram-bot behind the gateway: it repeats what people say, and queues the news.

TELEGRAM_BOT_TOKEN=42:any python ptb_bot.py

A bot in Python need not go through the gateway: `gate.attach(builder)` does the same inside it. This is for
several programs with one bot, and for tokens that must not leave a machine.
"""

import os

from telegram import Bot, Update
from telegram.ext import (
    AIORateLimiter,
    Application,
    CommandHandler,
    ContextTypes,
    MessageHandler,
    filters,
)
from telegram.request import HTTPXRequest

GATEWAY = os.environ.get("TELEGRAM_API_URL", "http://127.0.0.1:8081")


async def answer(update: Update, _: ContextTypes.DEFAULT_TYPE) -> None:
    if update.message is not None:
        await update.message.reply_text(f"You said: {update.message.text}")


async def news(update: Update, context: ContextTypes.DEFAULT_TYPE) -> None:
    if update.message is not None:
        queue: Bot = context.bot_data["queue"]
        await queue.send_message(update.message.chat_id, "News for you")


def main() -> None:
    token = os.environ["TELEGRAM_BOT_TOKEN"]
    builder = Application.builder().token(token)
    builder.base_url(f"{GATEWAY}/bot").base_file_url(f"{GATEWAY}/file/bot")
    # The gateway answers 429 only if the turn of a call comes later than 4 s: then this waits as it is told.
    # The limits themselves are the gateway's business.
    builder.rate_limiter(AIORateLimiter(overall_max_rate=0, group_max_rate=0, max_retries=10))
    application = builder.build()
    # Calls of this bot are queued: answered at once, delivered in their turn, also after a restart.
    request = HTTPXRequest(httpx_kwargs={"headers": {"X-Tidegate": "queue; priority=low"}})
    application.bot_data["queue"] = Bot(token, base_url=f"{GATEWAY}/bot", request=request)
    application.add_handler(CommandHandler("news", news))
    application.add_handler(MessageHandler(filters.TEXT, answer))
    application.run_polling()


if __name__ == "__main__":
    main()
