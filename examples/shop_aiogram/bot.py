"""Sets up the shop and runs it."""

import logging
import sys

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import AiogramError
from aiogram.fsm.storage.memory import SimpleEventIsolation

from shop.book import Book
from shop.config import BadConfigError, Config
from shop.news import News
from shop.pages import Pages
from shop.texts import read_texts
from shop_aiogram import checkout, owner, shopping
from tidegate import Tidegate, TidegateError


def build(config: Config) -> tuple[Dispatcher, Bot]:
    session = AiohttpSession(api=TelegramAPIServer.from_base(config.api_url))
    bot = Bot(config.token, session=session)
    dispatcher = Dispatcher(events_isolation=SimpleEventIsolation())  # clicks of a customer in order

    # This is Tidegate, with its import. Every call waits its turn; queued messages survive a restart.
    gate = Tidegate()
    gate.attach(dispatcher, bot)

    texts, products = read_texts(config.texts)
    book = Book(config.database)
    news = News(gate, book, texts, config.owner)
    dispatcher.workflow_data.update(pages=Pages(texts, products), book=book, news=news)
    dispatcher.startup.register(news.resume)
    dispatcher.include_routers(owner.router_for(config.owner), checkout.router(), shopping.router())
    return dispatcher, bot


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    try:
        dispatcher, bot = build(Config.read())
        dispatcher.run_polling(bot)
    except (BadConfigError, TidegateError, AiogramError) as error:  # it could not start
        sys.exit(f"shop: {error}")
