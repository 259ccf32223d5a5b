"""The buttons of a page as an aiogram keyboard."""

from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup

from shop.pages import Page


def keyboard(page: Page) -> InlineKeyboardMarkup:
    return InlineKeyboardMarkup(
        inline_keyboard=[
            [InlineKeyboardButton(text=button.text, callback_data=button.data) for button in row]
            for row in page.buttons
        ]
    )
