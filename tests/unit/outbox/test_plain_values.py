"""Objects of bot libraries, as `send` takes them."""

import datetime as dt

import pytest
from aiogram.enums import ParseMode
from aiogram.types import InlineKeyboardButton as AiogramButton
from aiogram.types import InlineKeyboardMarkup as AiogramKeyboard
from aiogram.types import InputMediaPhoto
from telegram import InlineKeyboardButton, InlineKeyboardMarkup

from tidegate import File
from tidegate.errors import BadInputError
from tidegate.outbox.admission import plain_value

WANTED = {"inline_keyboard": [[{"text": "Buy", "callback_data": "buy"}]]}


@pytest.mark.parametrize(
    "keyboard",
    [
        AiogramKeyboard(inline_keyboard=[[AiogramButton(text="Buy", callback_data="buy")]]),
        InlineKeyboardMarkup([[InlineKeyboardButton("Buy", callback_data="buy")]]),
        WANTED,
    ],
)
def test_keyboards_of_both_libraries_are_the_same(keyboard: object) -> None:
    assert plain_value({"reply_markup": keyboard}) == {"reply_markup": WANTED}


def test_values_that_json_has_stay_and_the_rest_becomes_them() -> None:
    file, at = File(content=b"x", name="x"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    assert plain_value(
        {"a": [1, 2.5, True, None], "f": file, "at": at, "mode": ParseMode.HTML, "none": None}
    ) == {
        "a": [1, 2.5, True, None],
        "f": file,
        "at": round(at.timestamp()),
        "mode": "HTML",
    }


def test_what_the_bot_has_set_for_all_is_left_out() -> None:
    assert plain_value(InputMediaPhoto(media="id")) == {"type": "photo", "media": "id"}


@pytest.mark.parametrize("value", [object(), {1, 2}, b"raw"])
def test_what_cannot_be_sent_is_named(value: object) -> None:
    with pytest.raises(BadInputError, match=f"a {type(value).__name__} cannot be sent"):
        plain_value({"text": value})
