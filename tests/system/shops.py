"""The shops of `examples/`, open against a simulator: in this process, or in one of their own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

import fork_server
import shop_aiogram.bot
import shop_ptb.bot
from shop.config import Config
from system.bots.aiogram_shop import serving
from system.bots.ptb_shop import running
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.entities import Json
from tidegate.sim.telegram.http import TelegramServer

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
TOKEN: Final = "42:shop"
OWNER: Final = 1
FAST: Final = dict.fromkeys(("TIDEGATE_BOT_RATE", "TIDEGATE_CHAT_RATE", "TIDEGATE_GROUP_RATE"), "10000/1")
OURS: Final = ("TIDEGATE_", "TELEGRAM_", "SHOP_")


class Street:
    """Where the shop is, and its customers."""

    def __init__(self, server: TelegramServer, folder: Path, library: str) -> None:
        bot = server.telegram.world.bot(TOKEN)
        assert bot is not None
        self.server = server
        self.folder = folder
        self.store = folder / "tidegate.db"
        self.library = library
        self._bot = bot
        self._people: dict[int, Person] = {}

    def person(self, number: int) -> Person:
        """The same one each time."""
        if number not in self._people:
            self._people[number] = Person(self.server.telegram, self._bot, number)
        return self._people[number]

    @property
    def owner(self) -> Person:
        return self.person(OWNER)

    @property
    def refused(self) -> int:
        """429s so far."""
        return int(self.server.telegram.report()["refused"])

    def content(self, message: Json) -> bytes:
        """The bytes of a message's document, or of its photo."""
        file = message["document"] if "document" in message else message["photo"][-1]
        return self.server.telegram.world.files[file["file_id"]].content

    def environment(self, **variables: str) -> dict[str, str]:
        return {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "SHOP_OWNER": str(OWNER),
            "TELEGRAM_API_URL": self.server.url,
            "SHOP_DATABASE": str(self.folder / "shop.db"),
            "TIDEGATE_STORE": str(self.store),
            **variables,
        }

    @asynccontextmanager
    async def shop(self, **variables: str) -> AsyncIterator[None]:
        """Open while the body runs, and closed well after it; its folder stays."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment(**FAST | variables).items():
                patch.setenv(name, value)
            opened = await asyncio.to_thread(OPENINGS[self.library], Config.read())
        async with opened:
            yield

    @asynccontextmanager
    async def interrupted_shop(self, **variables: str) -> AsyncIterator[None]:
        """Open while the body runs; what waits for its turn after that has to go on waiting.

        python-telegram-bot finishes its handlers before it stops, so that it takes a kill -9.
        """
        if self.library == "ptb":
            async with self._process(**variables):
                yield
        else:
            async with self.shop(**variables):
                yield

    @asynccontextmanager
    async def _process(self, **variables: str) -> AsyncIterator[None]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        process = await fork_server.create_process(
            sys.executable,
            "-m",
            f"shop_{self.library}",
            cwd=EXAMPLES,
            stderr=asyncio.subprocess.DEVNULL,
            env=kept | self.environment(**FAST | variables),
        )
        try:
            yield
        finally:
            process.kill()
            await process.wait()


def _open_aiogram(config: Config) -> AbstractAsyncContextManager[object]:
    return serving(*shop_aiogram.bot.build(config))


def _open_ptb(config: Config) -> AbstractAsyncContextManager[object]:
    return _polling(shop_ptb.bot.build(config))


@asynccontextmanager
async def _polling(app: shop_ptb.bot.App) -> AsyncIterator[None]:
    """As `run_polling` does."""
    async with running(app) as updater:
        assert app.post_init is not None
        await app.post_init(app)
        await updater.start_polling(timeout=5)
        yield
        await updater.stop()


OPENINGS: Final[Mapping[str, Callable[[Config], AbstractAsyncContextManager[object]]]] = {
    "aiogram": _open_aiogram,
    "ptb": _open_ptb,
}
