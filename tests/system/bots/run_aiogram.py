"""How the public examples of aiogram run inside a test."""

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from signal import SIGINT, SIGTERM
from types import ModuleType
from typing import Any

import aiogram
import pytest
from aiogram.client.telegram import PRODUCTION
from aiohttp import web

from system.bots.run_examples import ended_by_itself
from tidegate import Tidegate


def point_at(url: str, patch: pytest.MonkeyPatch) -> None:
    """Let aiogram take the simulator for Telegram where an example says nothing else."""
    patch.setitem(vars(PRODUCTION), "base", f"{url}/bot{{token}}/{{method}}")
    patch.setitem(vars(PRODUCTION), "file", f"{url}/file/bot{{token}}/{{path}}")


@asynccontextmanager
async def polling(module: ModuleType, patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """An aiogram example whose `main` polls, or says that it wants to."""
    found: list[tuple[aiogram.Dispatcher, tuple[aiogram.Bot, ...]]] = []
    start_polling = aiogram.Dispatcher.start_polling

    async def start(self: aiogram.Dispatcher, *bots: aiogram.Bot, **options: Any) -> None:  # noqa: ANN401
        found.append((self, bots))
        await start_polling(self, *bots, **options)

    patch.setattr(aiogram.Dispatcher, "start_polling", start)
    patch.setattr(aiogram.Dispatcher, "run_polling", lambda self, *bots: found.append((self, bots)))
    started = module.main()
    if not inspect.isawaitable(started):  # run_polling would make a loop of its own
        [(dispatcher, bots)] = found
        started = start_polling(dispatcher, *bots)
    async with ended_by_itself(started):
        yield
        await found[0][0].stop_polling()
    for signal in (SIGINT, SIGTERM):  # the example has taken them
        asyncio.get_running_loop().remove_signal_handler(signal)


@asynccontextmanager
async def routing(module: ModuleType, patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """An aiogram example that is only a router: it gets a bot, which answers whatever is left to it."""
    dispatcher, rest = aiogram.Dispatcher(), aiogram.Router()
    dispatcher.include_routers(module.router, rest)

    @rest.message()
    async def answer(message: aiogram.types.Message) -> None:
        await message.answer("What?")

    async def main() -> None:
        bot = aiogram.Bot(module.TOKEN)
        Tidegate(module.STORE).attach(dispatcher, bot)
        await dispatcher.start_polling(bot)

    module.main = main  # type: ignore[attr-defined]
    async with polling(module, patch):
        yield


@asynccontextmanager
async def serving(module: ModuleType, patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """An aiogram example that waits for its updates behind `module.SOCKET`."""
    found: list[web.Application] = []
    patch.setattr(
        module.web if hasattr(module, "web") else module, "run_app", lambda app, **_: found.append(app)
    )
    module.main()
    runner = web.AppRunner(found[0])
    try:
        await runner.setup()
        await web.SockSite(runner, module.SOCKET).start()
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def once(module: ModuleType, patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """An example that does one thing and ends."""
    patch.setattr(sys, "argv", module.ARGUMENTS)
    await module.main()
    yield
