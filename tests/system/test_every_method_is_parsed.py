"""What methods return and updates tell is what both libraries know: no field is missing, none unknown."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiogram
import pytest
import telegram
from pydantic import BaseModel
from telegram import TelegramObject

from system.bots import aiogram_calls, aiogram_shop, ptb_calls, ptb_shop
from system.bots.scenes import GENEROUS
from system.bots.stage import GUEST, SUPERGROUP, USER, Stage
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.http import TelegramServer
from tidegate.sim.telegram.methods import METHODS

EVERYTHING = telegram.Update.ALL_TYPES
# Required by aiogram 3.31, and newer than python-telegram-bot 22.8.
NEWER = {"ChatMemberAdministrator.can_send_welcome_messages"}


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(limits=GENEROUS) as running:
        yield running


@pytest.fixture(scope="module")
async def aiogram_bot(server: TelegramServer) -> AsyncIterator[aiogram.Bot]:
    async with aiogram_shop.bot_of(server) as bot:
        yield bot


@pytest.fixture(scope="module")
async def ptb_bot(server: TelegramServer) -> AsyncIterator[telegram.Bot]:
    async with ptb_shop.bot_of(server) as bot:
        yield bot


@pytest.fixture(scope="module")
async def stage(server: TelegramServer) -> Stage:
    return Stage(server.telegram)


@pytest.mark.parametrize("method", METHODS)
async def test_aiogram_knows_the_result(aiogram_bot: aiogram.Bot, stage: Stage, method: str) -> None:
    result = await aiogram_calls.CALLS[method](aiogram_bot, stage)
    assert result is not None
    assert list(surprises(result)) == []


@pytest.mark.parametrize("method", METHODS)
async def test_python_telegram_bot_knows_the_result(ptb_bot: telegram.Bot, stage: Stage, method: str) -> None:
    result = await ptb_calls.CALLS[method](ptb_bot, stage)
    assert result is not None
    assert set(surprises(result)) <= NEWER


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("promoteChatMember", {}),
        ("promoteChatMember", {"can_pin_messages": True}),
        ("restrictChatMember", {"permissions": {}}),
        ("banChatMember", {}),
        ("unbanChatMember", {}),
    ],
)
async def test_both_know_each_standing(
    server: TelegramServer,
    aiogram_bot: aiogram.Bot,
    ptb_bot: telegram.Bot,
    stage: Stage,
    method: str,
    params: dict[str, object],
) -> None:
    server.telegram.handle(stage.bot, method, {"chat_id": SUPERGROUP, "user_id": GUEST} | params)
    for bot in (aiogram_bot, ptb_bot):
        assert set(surprises(await bot.get_chat_member(SUPERGROUP, GUEST))) <= NEWER


async def test_both_know_the_updates(
    server: TelegramServer, aiogram_bot: aiogram.Bot, ptb_bot: telegram.Bot, stage: Stage
) -> None:
    stage.bot.updates.clear()
    stage.bot.updates.allow(EVERYTHING)
    live(server, stage)
    for updates in (
        await aiogram_bot.get_updates(allowed_updates=EVERYTHING),
        await ptb_bot.get_updates(allowed_updates=EVERYTHING),
    ):
        assert len(updates) >= 20
        assert list(surprises(updates)) == []


def live(server: TelegramServer, stage: Stage) -> None:
    """A person does everything that a person can do."""
    person = Person(server.telegram, stage.bot, USER)
    person.says("/start")
    person.edits("hello")
    for kind in ("photo", "document", "video", "animation", "audio", "voice", "video_note", "sticker"):
        person.sends_file(kind, "a.bin", b"content")
    person.shares_contact("+441")
    person.shares_location(51.9, 1.3)
    stage.poll()
    person.votes(1)
    stage.charge()
    stage.shipping()
    stage.pressed()
    stage.inquiry()
    person.blocks()
    person.unblocks()
    guest = Person(server.telegram, stage.bot, GUEST + 1, chat=SUPERGROUP)
    guest.joins()
    guest.departs()


def surprises(value: Any) -> Iterator[str]:  # noqa: ANN401  (whatever a library made of an answer)
    """Fields that the library does not know, however deep."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from surprises(item)
    elif isinstance(value, BaseModel):
        yield from (f"{type(value).__name__}.{name}" for name in value.model_extra or {})
        yield from surprises([part for _, part in value])
    elif isinstance(value, TelegramObject):
        yield from (f"{type(value).__name__}.{name}" for name in value.api_kwargs)
        names = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
        yield from surprises([getattr(value, name, None) for name in names if not name.startswith("_")])
