"""How the public examples of python-telegram-bot run inside a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
import telegram
import uvicorn
from telegram.ext import Application

from system.bots.run_examples import ended_by_itself

TELEGRAM = "https://api.telegram.org"


def point_at(url: str, patch: pytest.MonkeyPatch) -> None:
    """Let the library take the simulator for Telegram where an example says nothing else."""
    usual = telegram.Bot.__init__

    def point(self: telegram.Bot, *args: Any, **options: Any) -> None:  # noqa: ANN401  (whatever a bot takes)
        for name, path in (("base_url", "/bot"), ("base_file_url", "/file/bot")):
            assert options.get(name, TELEGRAM + path) == TELEGRAM + path
            options[name] = url + path
        usual(self, *args, **options)

    patch.setattr(telegram.Bot, "__init__", point)


@asynccontextmanager
async def application(module: ModuleType, patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A python-telegram-bot example: what `run_polling` does, in this loop."""
    found: list[tuple[Application[Any, Any, Any, Any, Any, Any], dict[str, Any]]] = []
    patch.setattr(Application, "run_polling", lambda self, **options: found.append((self, options)))
    module.main()
    [(made, options)] = found
    assert made.updater is not None
    async with made:
        await made.updater.start_polling(**options)
        await made.start()
        try:
            yield
        finally:
            await made.updater.stop()
            await made.stop()


@asynccontextmanager
async def starlette(module: ModuleType, patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A python-telegram-bot example with a web server of its own behind `module.SOCKET`."""
    found: list[uvicorn.Server] = []
    serve = uvicorn.Server.serve

    async def start(self: uvicorn.Server) -> None:
        found.append(self)
        await serve(self, [module.SOCKET])

    patch.setattr(uvicorn.Server, "serve", start)
    patch.setattr(uvicorn.Config, "configure_logging", lambda _: None)  # it would stay so for other tests
    async with ended_by_itself(module.main()):
        yield
        found[0].should_exit = True
