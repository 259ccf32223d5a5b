"""Methods of aiogram that are queued instead of awaited."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from aiogram import Bot
from aiogram.client.default import DefaultBotProperties
from aiogram.enums import ParseMode
from aiogram.methods import (
    EditMessageText,
    GetMe,
    RestrictChatMember,
    SendDocument,
    SendMediaGroup,
    SendMessage,
    SendPoll,
    TelegramMethod,
)
from aiogram.types import (
    BufferedInputFile,
    ChatPermissions,
    FSInputFile,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    InputMediaPhoto,
    Message,
    URLInputFile,
)
from aiohttp import ClientConnectionError

from tidegate.adapters.aiogram.queued_method import MAX_UPLOAD_BYTES, fields_of
from tidegate.errors import BadInputError, ClosedError, DeadError
from tidegate.model import File
from unit.adapters.aiogram.stage import TOKEN, Stage

ALICE = 1001


def document(bot: Bot, file: InputFile) -> SendDocument:
    return SendDocument(chat_id=ALICE, document=file).as_(bot)


BUTTONS = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="Buy", callback_data="buy")]])


async def test_a_queued_method_is_delivered_and_gives_what_aiogram_gives(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate, stage.gate.worker():
        method = SendMessage(chat_id=ALICE, text="Hi", reply_markup=BUTTONS).as_(stage.bot)
        ticket = await stage.gate.queue(method, priority="low", dedup_key="hello")
        again = await stage.gate.queue(method, dedup_key="hello")
        sent = await ticket.delivered(timeout=10)
        await sent.edit_text("Hello")

    assert isinstance(sent, Message)
    assert (sent.text, sent.chat.id) == ("Hi", ALICE)
    assert sent.reply_markup is not None
    assert sent.reply_markup.inline_keyboard[0][0].callback_data == "buy"
    assert ticket.fresh
    assert (again.id, again.fresh) == (ticket.id, False)
    assert len(stage.arrivals()) == 1


async def test_a_call_that_was_not_awaited_is_queued_as_well(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate, stage.gate.worker():
        ticket = await stage.gate.queue(stage.bot.send_message(ALICE, "Hi"), priority="low")
        record = await stage.gate.outbox.find(ticket.id)
        await ticket.delivered(timeout=10)
        direct = await stage.bot.send_message(ALICE, "and this one is made")

    assert record is not None
    assert (record.message.method, record.message.priority) == ("sendMessage", "low")
    assert direct.text == "and this one is made"
    assert len(stage.session.made) == 1


@pytest.mark.parametrize(
    ("option", "says"), [("dedupkey", "'dedup_key' may be meant"), ("foo", "is no option")]
)
async def test_a_misspelt_option_is_told(stage: Stage, option: str, says: str) -> None:
    stage.gate.attach(None, stage.bot)
    options: dict[str, Any] = {option: "x"}
    async with stage.gate:
        with pytest.raises(BadInputError, match=says):
            await stage.gate.queue(SendMessage(chat_id=ALICE, text="Hi").as_(stage.bot), **options)


async def test_a_misspelt_parameter_that_aiogram_passes_on_is_told(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    typo: dict[str, Any] = {"parse_mod": "HTML"}
    async with stage.gate:
        with pytest.raises(BadInputError, match="'parse_mode' may be meant"):
            await stage.gate.queue(SendMessage(chat_id=ALICE, text="Hi", **typo).as_(stage.bot))
        with pytest.raises(BadInputError, match="'parse_mode' may be meant"):
            await stage.gate.broadcast(
                "news", [ALICE], lambda _: SendMessage(chat_id=ALICE, text="Hi", **typo)
            )


class NewerSendMessage(SendMessage):
    """That of a later aiogram, with a parameter of a later Bot API."""

    sparkle: bool | None = None


async def test_a_parameter_of_a_newer_aiogram_is_queued(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    fields: dict[str, Any] = {"chat_id": ALICE, "text": "Hi", "sparkle": True}
    call = NewerSendMessage(**fields)
    async with stage.gate:
        ticket = await stage.gate.queue(call.as_(stage.bot))
        record = await stage.gate.outbox.find(ticket.id)

    assert record is not None
    assert record.message.params == {"text": "Hi", "sparkle": True}


async def test_a_script_without_a_dispatcher_delivers_what_it_queues(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    for name in ("today", "tomorrow"):
        async with stage.gate:
            ticket = await stage.gate.queue(stage.bot.send_message(ALICE, "Hi"))
            await ticket.delivered(timeout=10)
            campaign = await stage.gate.broadcast(name, [1, 2], "hello")
            report = await campaign.finished()
        assert report.delivered == 2

        with pytest.raises(ClosedError, match="came too late"):
            await stage.bot.send_message(ALICE, "nobody is there")


async def test_a_file_that_cannot_be_downloaded_is_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise ClientConnectionError("no route")

    monkeypatch.setattr(stage.session, "stream_content", fail)
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        with pytest.raises(BadInputError, match="could not be downloaded"):
            await stage.gate.queue(document(stage.bot, URLInputFile("http://x/a")))


async def test_a_coroutine_that_calls_nobody_is_not_queued(stage: Stage) -> None:
    async def nothing() -> None:
        pass

    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        with pytest.raises(BadInputError, match="nothing was queued"):
            await stage.gate.queue(nothing())
        with pytest.raises(BadInputError, match="only calls to a chat"):
            await stage.gate.queue(stage.bot.get_me())


async def test_a_call_of_a_bot_that_is_not_attached_is_said_to_have_been_made(stage: Stage) -> None:
    async with stage.gate:
        with pytest.raises(BadInputError, match="has run already: its bot is not attached to this gate"):
            await stage.gate.queue(stage.bot.send_message(ALICE, "Hi"))


async def test_a_bot_of_the_library_says_which_bot_is_meant(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    stage.gate.add_bot("43:other")
    async with stage.gate:
        ticket = await stage.gate.send(bot=stage.bot, chat_id=ALICE, text="x")
        record = await stage.gate.outbox.find(ticket.id)

    assert record is not None
    assert record.message.bot == 42


async def test_a_queued_method_that_dies_says_why(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate, stage.gate.worker():
        ticket = await stage.gate.queue(EditMessageText(text="x", chat_id=ALICE, message_id=9).as_(stage.bot))
        with pytest.raises(DeadError, match="message to edit not found"):
            await ticket.delivered(timeout=10)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (GetMe(), "only calls to a chat"),
        (SendMessage(chat_id=1, text="Hi"), "has no bot"),
        ("message.answer", "that was not awaited"),
    ],
)
async def test_what_cannot_be_queued_is_told(stage: Stage, method: TelegramMethod[Any], text: str) -> None:
    stage.gate.attach(None, stage.bot)
    if isinstance(method, GetMe):
        method = method.as_(stage.bot)
    async with stage.gate:
        with pytest.raises(BadInputError, match=text):
            await stage.gate.queue(method)


async def test_defaults_of_the_bot_are_filled_in(stage: Stage) -> None:
    default = DefaultBotProperties(parse_mode=ParseMode.HTML, link_preview_is_disabled=True)
    bot = Bot(TOKEN, session=stage.session, default=default)

    fields = await fields_of(SendMessage(chat_id=ALICE, text="<b>x</b>"), bot, stage.clock)

    assert fields["parse_mode"] == "HTML"
    assert fields["link_preview_options"] == {"is_disabled": True}
    plain = await fields_of(SendMessage(chat_id=ALICE, text="x", parse_mode=None), bot, stage.clock)
    assert "parse_mode" not in plain


async def test_times_become_what_telegram_reads(stage: Stage) -> None:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    closing = SendPoll(chat_id=ALICE, question="?", options=["a", "b"], close_date=at)
    restricting = RestrictChatMember(
        chat_id=-1, user_id=2, permissions=ChatPermissions(), until_date=dt.timedelta(hours=1)
    )

    assert (await fields_of(closing, stage.bot, stage.clock))["close_date"] == round(at.timestamp())
    until = (await fields_of(restricting, stage.bot, stage.clock))["until_date"]
    assert until == round(stage.clock.now() + 3600)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "teapot.png"
    path.write_bytes(b"on disk")
    return path


async def test_files_are_kept_by_their_path_or_by_what_they_hold(stage: Stage, picture: Path) -> None:
    files = (
        FSInputFile(picture),
        BufferedInputFile(b"in memory", "a.png"),
        URLInputFile("http://x/a", filename="b.png"),
    )
    album = SendMediaGroup(chat_id=ALICE, media=[InputMediaPhoto(media=file, caption="x") for file in files])

    fields = await fields_of(album, stage.bot, stage.clock)

    assert [item["media"] for item in fields["media"]] == [
        File(path=str(picture), name="teapot.png"),
        File(content=b"in memory", name="a.png"),
        File(content=b"from the net", name="b.png"),
    ]
    assert {item["type"] for item in fields["media"]} == {"photo"}


async def test_a_file_that_cannot_be_sent_is_told_before_anything_is_stored(
    stage: Stage, tmp_path: Path
) -> None:
    stage.gate.attach(None, stage.bot)
    async with stage.gate:
        with pytest.raises(BadInputError, match="cannot be read"):
            await stage.gate.queue(document(stage.bot, FSInputFile(tmp_path / "gone.png")))
        with pytest.raises(BadInputError, match="Telegram takes no more"):
            await stage.gate.queue(document(stage.bot, BufferedInputFile(bytes(MAX_UPLOAD_BYTES + 1), "x")))

        assert (await stage.gate.stats()).waiting == 0
