"""Showing products and filling the cart."""

from collections.abc import Sequence
from typing import Any

from telegram import Update
from telegram.ext import BaseHandler, CallbackQueryHandler, CommandHandler, MessageHandler, filters

from shop.book import Book
from shop.pages import Pages
from shop.picture import draw
from shop_ptb.updates import Context, chat_of, keyboard, message_of, query_of


class Shopping:
    def __init__(self, pages: Pages, book: Book) -> None:
        self._pages = pages
        self._book = book

    async def greet(self, update: Update, _: Context) -> None:
        chat = chat_of(update)
        name = chat.full_name or ""
        await self._book.welcome(chat.id, name)
        page = self._pages.greeting(name)
        await chat.send_message(page.text, reply_markup=keyboard(page))

    async def show_menu(self, update: Update, _: Context) -> None:
        await query_of(update).answer()
        page = self._pages.menu()
        await chat_of(update).send_message(page.text, reply_markup=keyboard(page))

    async def show_product(self, update: Update, _: Context) -> None:
        product = self._pages.products.get(_product_in(update))
        if product is None:
            await query_of(update).answer(self._pages.texts("sold_out"))
            return
        await query_of(update).answer()
        page, photo = self._pages.card(product), draw(product.colour)
        await chat_of(update).send_photo(photo, caption=page.text, reply_markup=keyboard(page))

    async def buy(self, update: Update, _: Context) -> None:
        product = self._pages.products.get(_product_in(update))
        if product is None:
            await query_of(update).answer(self._pages.texts("sold_out"))
            return
        await self._book.change_cart(chat_of(update).id, product.id, +1)
        await query_of(update).answer(self._pages.texts("added", name=product.name))

    async def show_cart(self, update: Update, _: Context) -> None:
        await query_of(update).answer()
        page = self._pages.cart(await self._book.cart(chat_of(update).id))
        await chat_of(update).send_message(page.text, reply_markup=keyboard(page))

    async def change_cart(self, update: Update, _: Context) -> None:
        query, customer = query_of(update), chat_of(update).id
        await query.answer()
        by = +1 if (query.data or "").startswith("more:") else -1
        await self._book.change_cart(customer, _product_in(update), by)
        page = self._pages.cart(await self._book.cart(customer))
        await query.edit_message_text(page.text, reply_markup=keyboard(page))

    async def show_orders(self, update: Update, _: Context) -> None:
        orders = await self._book.orders_of(chat_of(update).id)
        await message_of(update).reply_text(self._pages.history(orders))

    async def explain(self, update: Update, _: Context) -> None:
        await message_of(update).reply_text(self._pages.texts("lost"))

    def handlers(self) -> Sequence[BaseHandler[Update, Context, Any]]:
        private = filters.ChatType.PRIVATE
        return [
            CommandHandler("start", self.greet, private),
            CommandHandler("orders", self.show_orders, private),
            MessageHandler(private, self.explain),
            CallbackQueryHandler(self.show_menu, "^menu$"),
            CallbackQueryHandler(self.show_cart, "^cart$"),
            CallbackQueryHandler(self.show_product, "^show:"),
            CallbackQueryHandler(self.buy, "^buy:"),
            CallbackQueryHandler(self.change_cart, "^(more|fewer):"),
        ]


def _product_in(update: Update) -> str:
    return (query_of(update).data or "").partition(":")[2]
