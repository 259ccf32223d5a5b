"""Commands for the owner. For other users they do not exist."""

from collections.abc import Sequence
from typing import Any

from telegram import Update
from telegram.ext import BaseHandler, CommandHandler, filters

from shop.book import Book
from shop.news import News
from shop.pages import Pages
from shop_ptb.updates import Context, message_of
from tidegate import Tidegate


class Owner:
    def __init__(self, pages: Pages, book: Book, news: News, gate: Tidegate, owner: int) -> None:
        self._pages = pages
        self._book = book
        self._news = news
        self._gate = gate
        self._only = filters.User(owner)

    async def publish(self, update: Update, _: Context) -> None:
        message = message_of(update)
        text = (message.text or "").partition(" ")[2]  # context.args would lose its line breaks
        await message.reply_text(await self._news.publish(text.strip()))

    async def show_stats(self, update: Update, _: Context) -> None:
        text = await self._pages.stats(await self._book.counts(), self._gate)
        await message_of(update).reply_text(text)

    def handlers(self) -> Sequence[BaseHandler[Update, Context, Any]]:
        return [
            CommandHandler("news", self.publish, self._only),
            CommandHandler("stats", self.show_stats, self._only),
        ]
