"""Types of the handlers, in terms of python-telegram-bot."""

from typing import Any, TypeVar

from telegram import CallbackQuery, Chat, InlineKeyboardButton, InlineKeyboardMarkup, Message, Update
from telegram.ext import CallbackContext, ExtBot

from shop.pages import Page
from tidegate import CallOptions

T = TypeVar("T")
Data = dict[Any, Any]
Context = CallbackContext[ExtBot[CallOptions], Data, Data, Data]


def chat_of(update: Update) -> Chat:
    """Return the private chat with the customer: its id is that of the customer."""
    return _there(update.effective_chat)


def message_of(update: Update) -> Message:
    return _there(update.message)


def query_of(update: Update) -> CallbackQuery:
    return _there(update.callback_query)


def data_of(context: Context) -> Data:
    """The data of one customer."""
    return _there(context.user_data)


def keyboard(page: Page) -> InlineKeyboardMarkup:
    return InlineKeyboardMarkup(
        [
            [InlineKeyboardButton(button.text, callback_data=button.data) for button in row]
            for row in page.buttons
        ]
    )


def _there(part: T | None) -> T:
    """A handler whose updates have what it needs."""
    if part is None:
        raise LookupError("the update has no such part")
    return part
