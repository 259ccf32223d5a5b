"""A bot with pyTelegramBotAPI (telebot) behind the gateway: it repeats what people say, and queues the news.

TELEGRAM_BOT_TOKEN=42:any python telebot_bot.py
"""

import os
from typing import Any

import requests
import telebot
from telebot import apihelper
from telebot.types import Message
from telebot.util import antiflood

GATEWAY = os.environ.get("TELEGRAM_API_URL", "http://127.0.0.1:8081")
TOKEN = os.environ["TELEGRAM_BOT_TOKEN"]

apihelper.API_URL = f"{GATEWAY}/bot{{0}}/{{1}}"
apihelper.FILE_URL = f"{GATEWAY}/file/bot{{0}}/{{1}}"

bot = telebot.TeleBot(TOKEN)


def queue(method: str, parameters: dict[str, Any]) -> None:
    """Queue a call: it is answered at once, and delivered in its turn, also after a restart of the bot."""
    requests.post(
        f"{GATEWAY}/bot{TOKEN}/{method}",
        json=parameters,
        headers={"X-Tidegate": "queue; priority=low"},
        timeout=10,
    ).raise_for_status()


@bot.message_handler(commands=["news"])
def news(message: Message) -> None:
    queue("sendMessage", {"chat_id": message.chat.id, "text": "News for you"})


@bot.message_handler(content_types=["text"])
def answer(message: Message) -> None:
    # The gateway answers 429 only if the turn of a call comes later than 4 s: then this waits as it is told.
    antiflood(bot.send_message, message.chat.id, f"You said: {message.text}")


if __name__ == "__main__":
    bot.infinity_polling()
