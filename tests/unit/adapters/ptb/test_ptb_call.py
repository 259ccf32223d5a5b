"""One request, as the library hands it to its limiter."""

from typing import Any

import pytest
from rich.pretty import pretty_repr
from telegram import InputFile, InputMediaPhoto
from telegram.ext import ExtBot

from simulated import TOKEN
from tidegate.adapters.ptb.call import CallOptions, PtbCall

CHAT = 7
FILE = InputFile(b"x", "tea.bin")
KNOWN = "AgACAgIAAxkBAAIB"


@pytest.mark.parametrize(
    ("data", "uploads"),
    [
        ({"document": FILE}, True),
        ({"document": KNOWN, "thumbnail": FILE}, True),
        ({"media": [InputMediaPhoto(KNOWN), InputMediaPhoto(b"x")]}, True),
        ({"media": InputMediaPhoto(b"x")}, True),
        ({"document": KNOWN}, False),
        ({"media": [InputMediaPhoto("https://example.org/x.png")]}, False),
        ({"text": "x", "reply_markup": None}, False),
    ],
)
async def test_a_call_uploads_if_it_carries_a_file(
    bot: ExtBot[Any], data: dict[str, Any], *, uploads: bool
) -> None:
    assert call_of(bot, **data).has_upload is uploads


async def test_the_token_of_a_call_is_not_in_what_rich_shows(bot: ExtBot[Any]) -> None:
    shown = pretty_repr(call_of(bot, text="x"))

    assert "sendMessage to 7" in shown
    assert TOKEN not in shown


def call_of(bot: ExtBot[Any], **data: object) -> PtbCall:
    given = {"chat_id": CHAT, **data}
    return PtbCall(
        callback=bot._do_post,  # noqa: SLF001  (what the library hands over)
        args=(),
        kwargs={},
        endpoint="sendMessage",
        data=given,
        bot=bot,
        options=CallOptions(),
    )
