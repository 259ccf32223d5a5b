"""Commands for the owner. For other users they do not exist."""

from aiogram import F, Router
from aiogram.filters import Command, CommandObject
from aiogram.types import Message

from shop.book import Book
from shop.news import News
from shop.pages import Pages
from tidegate import Tidegate


async def publish(message: Message, command: CommandObject, news: News) -> None:
    await message.answer(await news.publish(command.args or ""))


async def show_stats(message: Message, pages: Pages, book: Book, gate: Tidegate) -> None:
    await message.answer(await pages.stats(await book.counts(), gate))


def router_for(owner: int) -> Router:
    here = Router(name="owner")
    here.message.filter(F.from_user.id == owner)
    here.message.register(publish, Command("news"))
    here.message.register(show_stats, Command("stats"))
    return here
