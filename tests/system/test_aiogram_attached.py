"""An ordinary aiogram bot behind a gate: nothing changes for it but that nothing is refused."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.methods import SendMessage, SendPhoto
from aiogram.types import BufferedInputFile, FSInputFile, Message, URLInputFile
from aiohttp import ClientSession

from system.bots import aiogram_shop
from system.bots.aiogram_shop import bot_of
from system.bots.scenes import GENEROUS, MANY, PICTURE, SCENES, TOKEN, Scene, Visit
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.errors import OutcomeUnknownError
from tidegate.model import Rate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import Faults, Latency
from tidegate.sim.telegram.http import TelegramServer

ROOMY = Rules(bot=MANY, private=MANY, group=MANY, actions=(MANY,))
Opening = Callable[[TelegramServer, Tidegate], AbstractAsyncContextManager[None]]


@pytest.fixture(scope="module", params=[aiogram_shop.polling, aiogram_shop.webhook])
async def open_shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TelegramServer]:
    opening: Opening = request.param
    gate = Tidegate(tmp_path_factory.mktemp("shop") / "tidegate.db", rules=ROOMY)
    async with TelegramServer(limits=GENEROUS) as server, opening(server, gate):
        yield server


@pytest.mark.parametrize("scene", SCENES)
async def test_conversation(scene: Scene, open_shop: TelegramServer) -> None:
    await scene(Visit(open_shop.telegram))


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(limits=GENEROUS) as server:
        yield server


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "teapot.png"
    path.write_bytes(PICTURE)
    return path


async def test_uploads_of_every_kind_are_queued_and_arrive(telegram: TelegramServer, picture: Path) -> None:
    visit, bot = Visit(telegram.telegram), bot_of(telegram)
    gate = Tidegate(picture.with_name("tidegate.db"), rules=ROOMY)
    gate.attach(None, bot)
    chat = visit.customer.id
    async with bot, gate:
        seen = await bot.send_document(chat, FSInputFile(picture))
        assert seen.document is not None
        file = await bot.get_file(seen.document.file_id)
        url = f"{telegram.url}/file/bot{TOKEN}/{file.file_path}"
        methods = [
            SendPhoto(chat_id=chat, photo=FSInputFile(picture)),
            SendPhoto(chat_id=chat, photo=BufferedInputFile(PICTURE, "teapot.png")),
            SendPhoto(chat_id=chat, photo=URLInputFile(url, filename="teapot.png")),
        ]
        tickets = [await gate.queue(method.as_(bot)) for method in methods]
        sent = [await ticket.delivered(timeout=10) for ticket in tickets]

    contents = {visit.content({"file_id": message.photo[-1].file_id}) for message in sent if message.photo}
    assert contents == {PICTURE}
    assert len(sent) == 3


async def test_what_waits_outlives_the_bot_and_goes_with_the_next(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    visit, store = Visit(telegram.telegram), tmp_path / "tidegate.db"
    bot = bot_of(telegram)
    gate = Tidegate(store, rules=ROOMY)
    gate.attach(None, bot)
    async with bot, gate:
        later = SendMessage(chat_id=visit.customer.id, text="kept").as_(bot)
        await gate.queue(later, not_before=Clock().now() + 0.3)

    async with aiogram_shop.polling(telegram, Tidegate(store, rules=ROOMY)):
        assert (await visit.customer.hears())["text"] == "kept"


async def test_a_session_that_is_closed_under_calls_loses_nothing_and_hangs_nobody(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    bot = bot_of(telegram)
    gate = Tidegate(tmp_path / "tidegate.db", rules=Rules(bot=MANY, private=Rate(1, 0.3), burst=1))
    gate.attach(None, bot)
    async with gate:
        telegram.telegram.faults = Faults(latency_in=Latency.parse("200"))
        direct = [asyncio.create_task(bot.send_message(chat, "direct")) for chat in (1, 1, 2)]
        tickets = [await gate.queue(SendMessage(chat_id=chat, text="queued").as_(bot)) for chat in (3, 3)]
        await Clock().sleep(0.1)

        await bot.session.close()
        ends = await asyncio.gather(*direct, return_exceptions=True)
        telegram.telegram.faults = Faults()
        queued = [await ticket.delivered(timeout=10) for ticket in tickets]
        again = await bot.send_message(1, "after")
        await bot.session.close()

    on_their_way, waiting = (ends[0], ends[2]), ends[1]
    assert all(isinstance(end, OutcomeUnknownError) for end in on_their_way)
    assert isinstance(waiting, Message)  # aiogram opens its session anew
    assert [message.text for message in queued] == ["queued"] * 2
    assert again.text == "after"


async def test_queued_messages_take_the_way_of_a_session_of_ones_own(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    """A proxy, for instance: nothing else knows it."""
    used: list[str] = []

    class Detour(AiohttpSession):
        async def create_session(self) -> ClientSession:
            used.append("detour")
            return await super().create_session()

    bot = Bot(TOKEN, session=Detour(api=TelegramAPIServer.from_base(telegram.url)))
    gate = Tidegate(tmp_path / "tidegate.db", rules=ROOMY)
    gate.attach(None, bot)
    async with bot, gate, gate.worker():
        used.clear()
        ticket = await gate.queue(SendMessage(chat_id=1, text="hi").as_(bot))
        await ticket.delivered(timeout=10)

    assert used == ["detour"]


@pytest.mark.proof  # aiogram takes seconds to start
def test_a_script_without_a_dispatcher_ends(tmp_path: Path) -> None:
    """It forgot to close the gate; that must not keep it from ending."""
    script = """
import asyncio
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from tidegate import Tidegate
from tidegate.sim.telegram.http import TelegramServer

async def main():
    async with TelegramServer() as server:
        session = AiohttpSession(api=TelegramAPIServer.from_base(server.url))
        async with Bot("42:token", session=session) as bot:
            Tidegate("tidegate.db").attach(None, bot)
            print((await bot.send_message(1, "hi")).text)

asyncio.run(main())
"""
    done = subprocess.run(  # noqa: S603  (our own interpreter)
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )

    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr
