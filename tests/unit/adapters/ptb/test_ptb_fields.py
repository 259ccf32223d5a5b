"""Parameters of python-telegram-bot as values that can be stored and sent."""

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from telegram import (
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    InputMediaPhoto,
    InputMediaVideo,
    LinkPreviewOptions,
    MessageEntity,
    ReplyParameters,
)
from telegram.constants import ParseMode, PollLimit

from tidegate.adapters.ptb.queued_call import plain_fields
from tidegate.errors import BadInputError
from tidegate.model import File


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("text", "text"),
        (7, 7),
        (True, True),
        (ParseMode.HTML, "HTML"),
        (PollLimit.MAX_OPTION_NUMBER, int(PollLimit.MAX_OPTION_NUMBER)),
        (datetime(2026, 1, 5, 9, tzinfo=UTC), 1_767_603_600),
        (datetime(2026, 1, 5, 9), 1_767_603_600),  # noqa: DTZ001  (the library takes it for UTC)
        (timedelta(minutes=1), 60),
        (timedelta(seconds=1.5), 1.5),
        ([1, ParseMode.HTML], [1, "HTML"]),
        ({"a": timedelta(seconds=1), "b": None}, {"a": 1}),
        (
            InlineKeyboardMarkup([[InlineKeyboardButton("Tea", callback_data="buy:tea")]]),
            {"inline_keyboard": [[{"text": "Tea", "callback_data": "buy:tea"}]]},
        ),
        ((MessageEntity("bold", 0, 4),), [{"type": "bold", "offset": 0, "length": 4}]),
        (LinkPreviewOptions(is_disabled=True), {"is_disabled": True}),
        (ReplyParameters(message_id=5), {"message_id": 5}),
    ],
)
def test_a_value_becomes_what_is_sent(value: object, sent: object) -> None:
    converted = plain_fields({"field": value})
    assert converted == {"field": sent}
    assert type(converted["field"]) is type(sent)


def test_what_is_not_set_is_left_out() -> None:
    assert plain_fields({"chat_id": 1, "caption": None}) == {"chat_id": 1}


def test_files_are_found_wherever_they_are() -> None:
    album = [
        InputMediaPhoto(b"one", caption="first", filename="1.png"),
        InputMediaVideo(b"two", thumbnail=b"small", duration=timedelta(seconds=3), filename="2.mp4"),
        InputMediaPhoto("AgAC-a-file-id"),
    ]
    photo, video, known = plain_fields({"media": album})["media"]
    assert photo == {
        "type": "photo",
        "media": File(content=b"one", name="1.png"),
        "caption": "first",
    }
    assert video["media"] == File(content=b"two", name="2.mp4")
    assert video["thumbnail"].content == b"small"
    assert video["duration"] == 3
    assert known["media"] == "AgAC-a-file-id"


def test_an_open_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "prices.txt"
    path.write_bytes(b"Tea: 2")
    with path.open("rb") as handle:
        handle.read(3)
        lazy = InputFile(handle, read_file_handle=False)
        assert plain_fields({"document": lazy}) == {"document": File(content=b"Tea: 2", name="prices.txt")}


def closed_file() -> InputFile:
    handle = io.BytesIO(b"gone")
    file = InputFile(handle, filename="gone.txt", read_file_handle=False)
    handle.close()
    return file


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"document": b"raw"}, "document holds a bytes, which cannot be queued: give a file as InputFile"),
        ({"document": io.BytesIO()}, "document holds a BytesIO"),
        ({"options": [{"text": object()}]}, "text holds a object"),
        ({"document": closed_file()}, "document is a file that cannot be read to be queued"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(data: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        plain_fields(data)
