"""The programs that a how-to shows, run as they stand against a simulator."""

import ast
import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiogram import Bot, Dispatcher
from aiogram.client.session.base import BaseSession
from aiogram.client.telegram import TelegramAPIServer
from telegram.ext import Application, ApplicationBuilder

from system.bots.aiogram_shop import serving
from system.bots.ptb_shop import Shop, running
from tidegate.sim.telegram.http import TelegramServer

DOCS: Final = Path(__file__).parents[2] / "docs"
HOWTOS: Final = DOCS / "howto"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

Opened = AbstractAsyncContextManager[object]


def blocks(page: str) -> list[str]:
    """The Python of a how-to, or of a page that is named with its folder."""
    return _BLOCK.findall(((DOCS if "/" in page else HOWTOS) / page).read_text("utf-8"))


def programs(page: str) -> list[str]:
    """Those that run a bot."""
    return [block for block in blocks(page) if "run_polling(" in block]


def read(block: str, page: str) -> Any:  # noqa: ANN401  (a code object; some await at the top)
    """Raises SyntaxError."""
    return compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@asynccontextmanager
async def run(program: str, token: str, server: TelegramServer) -> AsyncIterator[None]:
    """While the body runs, so does the program, as if this server were Telegram."""
    opened = await asyncio.to_thread(_start, program, token, server)
    async with opened:
        yield


def _start(program: str, token: str, server: TelegramServer) -> Opened:
    found: list[Opened] = []
    with _instead_of_telegram(server, found):
        exec(read(program, "how-to"), {"TOKEN": token, "__name__": "bot"})  # noqa: S102  (our own docs)
    return found[0]


@contextmanager
def _instead_of_telegram(server: TelegramServer, found: list[Opened]) -> Iterator[None]:
    """Whatever would call Telegram calls the server; whatever would run a bot hands it over."""
    api = TelegramAPIServer.from_base(server.url)
    defaults = (api, *(BaseSession.__init__.__defaults__ or ())[1:])
    build = ApplicationBuilder.build

    def build_here(builder: Any) -> object:  # noqa: ANN401  (of any application)
        return build(builder.base_url(f"{server.url}/bot").base_file_url(f"{server.url}/file/bot"))

    def serve(dispatcher: Dispatcher, bot: Bot) -> None:
        found.append(serving(dispatcher, bot))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseSession.__init__, "__defaults__", defaults)
        patch.setattr(ApplicationBuilder, "build", build_here)
        patch.setattr(Dispatcher, "run_polling", serve)
        patch.setattr(Application, "run_polling", lambda app: found.append(_polling(app)))
        yield


@asynccontextmanager
async def _polling(app: Shop) -> AsyncIterator[None]:
    async with running(app) as updater:
        await updater.start_polling(timeout=5)
        yield
        await updater.stop()
