"""The checkout: from a cart to an order."""

from aiogram import F, Router
from aiogram.filters import Command
from aiogram.fsm.context import FSMContext
from aiogram.fsm.state import State, StatesGroup
from aiogram.types import BufferedInputFile, CallbackQuery, Message

from shop.book import Book
from shop.pages import Pages
from shop_aiogram.keyboard import keyboard
from tidegate import Tidegate


class Checkout(StatesGroup):
    address = State()
    recipient = State()
    confirmation = State()


async def begin(query: CallbackQuery, state: FSMContext, pages: Pages, book: Book) -> None:
    await query.answer()
    if not isinstance(query.message, Message):
        return
    if not await book.cart(query.from_user.id):
        await query.message.answer(pages.texts("cart_empty"))
        return
    await state.set_state(Checkout.address)
    await query.message.answer(pages.texts("ask_address"))


async def take_address(message: Message, state: FSMContext, pages: Pages) -> None:
    await state.update_data(address=message.text)
    await state.set_state(Checkout.recipient)
    await message.answer(pages.texts("ask_recipient"))


async def take_recipient(message: Message, state: FSMContext, pages: Pages, book: Book) -> None:
    data = await state.update_data(recipient=message.text)
    await state.set_state(Checkout.confirmation)
    page = pages.summary(await book.cart(message.chat.id), data["address"], data["recipient"])
    await message.answer(page.text, reply_markup=keyboard(page))


async def confirm(query: CallbackQuery, state: FSMContext, pages: Pages, book: Book, gate: Tidegate) -> None:
    await query.answer()
    data = await state.get_data()
    await state.clear()
    customer = query.from_user.id
    lines = pages.lines(await book.cart(customer))
    order = await book.place_order(customer, data["address"], data["recipient"], lines)
    if not isinstance(query.message, Message):
        return
    if order is None:
        await query.message.edit_text(pages.texts("cart_empty"))
        return
    await query.message.edit_text(pages.texts("ordered", number=order.number))
    file = BufferedInputFile(pages.receipt(order), pages.texts("receipt_file", number=order.number))
    # On disk when this returns: it is sent, also if the bot is restarted before.
    await gate.queue(query.message.answer_document(file))


async def cancel(query: CallbackQuery, state: FSMContext, pages: Pages) -> None:
    await query.answer()
    await state.clear()
    if isinstance(query.message, Message):
        await query.message.edit_text(pages.texts("cancelled"))


async def cancel_by_command(message: Message, state: FSMContext, pages: Pages) -> None:
    await state.clear()
    await message.answer(pages.texts("cancelled"))


def router() -> Router:
    here = Router(name="checkout")
    here.callback_query.register(begin, F.data == "checkout")
    here.message.register(cancel_by_command, Command("cancel"))
    here.message.register(take_address, Checkout.address, F.text, ~F.text.startswith("/"))
    here.message.register(take_recipient, Checkout.recipient, F.text, ~F.text.startswith("/"))
    here.callback_query.register(confirm, Checkout.confirmation, F.data == "confirm")
    here.callback_query.register(cancel, Checkout.confirmation, F.data == "cancel")
    return here
