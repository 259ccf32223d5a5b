"""Sets up the shop and runs it."""

import logging
import sys
from typing import Any

from telegram.error import InvalidToken, NetworkError
from telegram.ext import Application

from shop.book import Book
from shop.config import BadConfigError, Config
from shop.news import News
from shop.pages import Pages
from shop.texts import read_texts
from shop_ptb.checkout import Checkout
from shop_ptb.owner import Owner
from shop_ptb.shopping import Shopping
from tidegate import Tidegate, TidegateError

App = Application[Any, Any, Any, Any, Any, Any]


def build(config: Config) -> App:
    texts, products = read_texts(config.texts)
    pages, book = Pages(texts, products), Book(config.database)

    gate = Tidegate()
    news = News(gate, book, texts, config.owner)
    builder = (
        Application.builder()
        .token(config.token)
        .base_url(f"{config.api_url}/bot")
        .base_file_url(f"{config.api_url}/file/bot")
        .post_init(lambda _: news.resume())
    )
    # This is Tidegate, with its import and the gate. Every call waits its turn. Queued messages and updates
    # survive a restart. Customers are served side by side, each in order.
    application: App = gate.attach(builder).build()
    application.add_handlers(Owner(pages, book, news, gate, config.owner).handlers())
    application.add_handler(Checkout(pages, book).handler())
    application.add_handlers(Shopping(pages, book).handlers())
    return application


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs addresses, which hold the token
    try:
        build(Config.read()).run_polling()
    except (BadConfigError, TidegateError, NetworkError) as error:  # it could not start
        sys.exit(f"shop: {error}")
    except InvalidToken:
        sys.exit("shop: Telegram does not know this TELEGRAM_BOT_TOKEN")  # its own text holds the token
