"""The checkout: from a cart to an order."""

import warnings

from telegram import Update
from telegram.ext import (
    CallbackQueryHandler,
    CommandHandler,
    ConversationHandler,
    MessageHandler,
    filters,
)
from telegram.warnings import PTBUserWarning

from shop.book import Book
from shop.pages import Pages
from shop_ptb.updates import Context, chat_of, data_of, keyboard, message_of, query_of
from tidegate import CallOptions

ADDRESS, RECIPIENT, CONFIRMATION = range(3)
END = ConversationHandler.END
TEXT = filters.TEXT & ~filters.COMMAND


class Checkout:
    def __init__(self, pages: Pages, book: Book) -> None:
        self._pages = pages
        self._book = book

    async def begin(self, update: Update, _: Context) -> int:
        await query_of(update).answer()
        if not await self._book.cart(chat_of(update).id):
            await chat_of(update).send_message(self._pages.texts("cart_empty"))
            return END
        await chat_of(update).send_message(self._pages.texts("ask_address"))
        return ADDRESS

    async def take_address(self, update: Update, context: Context) -> int:
        data_of(context)["address"] = message_of(update).text
        await message_of(update).reply_text(self._pages.texts("ask_recipient"))
        return RECIPIENT

    async def take_recipient(self, update: Update, context: Context) -> int:
        data = data_of(context)
        data["recipient"] = message_of(update).text
        cart = await self._book.cart(chat_of(update).id)
        page = self._pages.summary(cart, data["address"], data["recipient"])
        await message_of(update).reply_text(page.text, reply_markup=keyboard(page))
        return CONFIRMATION

    async def confirm(self, update: Update, context: Context) -> int:
        query, customer, data = query_of(update), chat_of(update).id, data_of(context)
        await query.answer()
        lines = self._pages.lines(await self._book.cart(customer))
        order = await self._book.place_order(customer, data["address"], data["recipient"], lines)
        if order is None:
            await query.edit_message_text(self._pages.texts("cart_empty"))
            return END
        await query.edit_message_text(self._pages.texts("ordered", number=order.number))
        # Stored before anything else: it is sent, also if the bot is restarted before.
        await context.bot.send_document(
            customer,
            self._pages.receipt(order),
            filename=self._pages.texts("receipt_file", number=order.number),
            rate_limit_args=CallOptions(queue=True),
        )
        return END

    async def cancel(self, update: Update, _: Context) -> int:
        await query_of(update).answer()
        await query_of(update).edit_message_text(self._pages.texts("cancelled"))
        return END

    async def cancel_by_command(self, update: Update, _: Context) -> int:
        await message_of(update).reply_text(self._pages.texts("cancelled"))
        return END

    def handler(self) -> ConversationHandler[Context]:
        with warnings.catch_warnings():
            # It warns that buttons of different messages are not distinguished, which is not needed here.
            warnings.simplefilter("ignore", PTBUserWarning)
            return ConversationHandler(
                entry_points=[CallbackQueryHandler(self.begin, "^checkout$")],
                states={
                    ADDRESS: [MessageHandler(TEXT, self.take_address)],
                    RECIPIENT: [MessageHandler(TEXT, self.take_recipient)],
                    CONFIRMATION: [
                        CallbackQueryHandler(self.confirm, "^confirm$"),
                        CallbackQueryHandler(self.cancel, "^cancel$"),
                    ],
                },
                fallbacks=[CommandHandler("cancel", self.cancel_by_command)],
                allow_reentry=True,
            )
