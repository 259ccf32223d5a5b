"""Showing products and filling the cart."""

from aiogram import F, Router
from aiogram.filters import Command, CommandStart
from aiogram.types import BufferedInputFile, CallbackQuery, Message

from shop.book import Book
from shop.pages import Pages
from shop.picture import draw
from shop_aiogram.keyboard import keyboard
from tidegate import Tidegate


async def greet(message: Message, pages: Pages, book: Book) -> None:
    name = message.chat.full_name
    await book.welcome(message.chat.id, name)
    page = pages.greeting(name)
    await message.answer(page.text, reply_markup=keyboard(page))


async def show_menu(query: CallbackQuery, pages: Pages) -> None:
    await query.answer()
    if isinstance(query.message, Message):
        page = pages.menu()
        await query.message.answer(page.text, reply_markup=keyboard(page))


async def show_product(query: CallbackQuery, pages: Pages) -> None:
    product = pages.products.get(_product_in(query))
    if product is None:
        await query.answer(pages.texts("sold_out"))
        return
    await query.answer()
    if isinstance(query.message, Message):
        page, photo = pages.card(product), BufferedInputFile(draw(product.colour), f"{product.id}.png")
        await query.message.answer_photo(photo, caption=page.text, reply_markup=keyboard(page))


async def buy(query: CallbackQuery, pages: Pages, book: Book) -> None:
    product = pages.products.get(_product_in(query))
    if product is None:
        await query.answer(pages.texts("sold_out"))
        return
    await book.change_cart(query.from_user.id, product.id, +1)
    await query.answer(pages.texts("added", name=product.name))


async def show_cart(query: CallbackQuery, pages: Pages, book: Book) -> None:
    await query.answer()
    if isinstance(query.message, Message):
        page = pages.cart(await book.cart(query.from_user.id))
        await query.message.answer(page.text, reply_markup=keyboard(page))


async def change_cart(query: CallbackQuery, pages: Pages, book: Book, gate: Tidegate) -> None:
    await query.answer()
    by = +1 if (query.data or "").startswith("more:") else -1
    await book.change_cart(query.from_user.id, _product_in(query), by)
    if isinstance(query.message, Message):
        page = pages.cart(await book.cart(query.from_user.id))
        edit = query.message.edit_text(page.text, reply_markup=keyboard(page))
        # After fast clicks the customer sees the latest cart next, not each one in turn.
        await gate.queue(edit, coalesce_key=f"cart:{query.message.message_id}:{query.from_user.id}")


async def show_orders(message: Message, pages: Pages, book: Book) -> None:
    await message.answer(pages.history(await book.orders_of(message.chat.id)))


async def explain(message: Message, pages: Pages) -> None:
    await message.answer(pages.texts("lost"))


def router() -> Router:
    here = Router(name="shopping")
    here.message.filter(F.chat.type == "private")
    here.message.register(greet, CommandStart())
    here.message.register(show_orders, Command("orders"))
    here.message.register(explain)
    here.callback_query.register(show_menu, F.data == "menu")
    here.callback_query.register(show_cart, F.data == "cart")
    here.callback_query.register(show_product, F.data.startswith("show:"))
    here.callback_query.register(buy, F.data.startswith("buy:"))
    here.callback_query.register(change_cart, F.data.startswith(("more:", "fewer:")))
    return here


def _product_in(query: CallbackQuery) -> str:
    return (query.data or "").partition(":")[2]
