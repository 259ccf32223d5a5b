"""Which calls take their time on the way, as they carry files."""

from typing import Any

import pytest
from aiogram.methods import (
    EditMessageMedia,
    SendDocument,
    SendMediaGroup,
    SendMessage,
    SendPaidMedia,
    SendPhoto,
    TelegramMethod,
)
from aiogram.types import (
    BufferedInputFile,
    FSInputFile,
    InputMediaPhoto,
    InputPaidMediaPhoto,
    LinkPreviewOptions,
    URLInputFile,
)

from tidegate.adapters.aiogram.session_middleware import has_upload

FILE = BufferedInputFile(b"x", "x.png")
KNOWN = "AgACAgIAAxkBAAIB"


@pytest.mark.parametrize(
    "method",
    [
        SendPhoto(chat_id=1, photo=FILE),
        SendPhoto(chat_id=1, photo=FSInputFile("x.png")),
        SendPhoto(chat_id=1, photo=URLInputFile("https://example.org/x.png")),
        SendDocument(chat_id=1, document=KNOWN, thumbnail=FILE),
        SendMediaGroup(chat_id=1, media=[InputMediaPhoto(media=KNOWN), InputMediaPhoto(media=FILE)]),
        SendPaidMedia(chat_id=1, star_count=1, media=[InputPaidMediaPhoto(media=FILE)]),
        EditMessageMedia(chat_id=1, message_id=1, media=InputMediaPhoto(media=FILE)),
    ],
)
def test_a_call_with_a_file_uploads(method: TelegramMethod[Any]) -> None:
    assert has_upload(method)


@pytest.mark.parametrize(
    "method",
    [
        SendMessage(chat_id=1, text="x", link_preview_options=LinkPreviewOptions(is_disabled=True)),
        SendPhoto(chat_id=1, photo=KNOWN),
        SendMediaGroup(chat_id=1, media=[InputMediaPhoto(media="https://example.org/x.png")]),
        EditMessageMedia(chat_id=1, message_id=1, media=InputMediaPhoto(media=KNOWN)),
    ],
)
def test_a_call_with_what_telegram_has_or_fetches_does_not(method: TelegramMethod[Any]) -> None:
    assert not has_upload(method)
