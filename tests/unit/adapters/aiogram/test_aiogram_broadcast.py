"""A broadcast whose letters are methods of aiogram, beside a bot that goes on answering."""

from collections.abc import Mapping
from typing import Any

import pytest
from aiogram.methods import GetMe, SendMessage, SendPhoto
from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup

from tidegate.errors import BadInputError
from unit.adapters.aiogram.stage import Stage

BUTTONS = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="Buy", callback_data="buy")]])
PEOPLE = [{"chat_id": 1000 + number, "name": f"P{number}"} for number in range(60)]


async def test_each_gets_a_letter_made_with_aiogram(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)

    def letter(row: Mapping[str, Any]) -> SendMessage | None:
        if row["name"] == "P7":
            return None
        return SendMessage(chat_id=row["chat_id"], text=f"Hello {row['name']}", reply_markup=BUTTONS)

    async with stage.gate, stage.gate.worker():
        campaign = await stage.gate.broadcast("sale", PEOPLE, letter)
        reply = await stage.bot.send_message(1, "beside it")
        report = await campaign.finished()

    texts = {entry.text for entry in stage.telegram.request_log.log}
    assert reply.text == "beside it"
    assert report.delivered == 59
    assert "Hello P8" in texts
    assert "Hello P7" not in texts
    assert stage.refused == 0


async def test_a_keyboard_of_the_library_goes_with_a_template(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate, stage.gate.worker():
        campaign = await stage.gate.broadcast("sale", PEOPLE[:3], "Hi {name}", reply_markup=BUTTONS)
        report = await campaign.finished()
        tickets = await stage.gate.outbox.records(limit=10)

    assert report.delivered == 3
    assert tickets[0].result["reply_markup"]["inline_keyboard"][0][0]["callback_data"] == "buy"


async def test_a_letter_that_cannot_be_one_is_told(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        with pytest.raises(BadInputError, match="only calls to a chat"):
            await stage.gate.broadcast("a", PEOPLE[:1], lambda _: GetMe())
        with pytest.raises(BadInputError, match="a letter is text"):
            await stage.gate.broadcast("b", PEOPLE[:1], lambda _: 7)


async def test_a_file_is_named_once_for_all_by_who_can(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)

    def letter(row: Mapping[str, Any]) -> SendPhoto:
        return SendPhoto(chat_id=row["chat_id"], photo="file-id", caption=str(row["name"]))

    async with stage.gate:
        campaign = await stage.gate.broadcast("photo", PEOPLE[:3], letter)
        records = await stage.gate.outbox.records(limit=10)
        await campaign.cancel()

    assert [record.message.method for record in records] == ["sendPhoto"] * 3
    assert {record.message.params["photo"] for record in records} == {"file-id"}
