"""The servers of `webhook.py`. Each runs in a process of its own, says its port, and ends with SIGTERM.

Then it prints how many updates it kept, in its store or, where it has none, by its handler.
"""

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from tidegate.clock import Clock
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import ClaimedItem, bot_source
from tidegate.inbound.server import serve
from tidegate.inbound.signed_hooks import Hook
from tidegate.inbound.webhook_app import WebhookApp, webhook_secret
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.inbox import SqliteInbox

BOT = 42
TOKEN = f"{BOT}:AAbbccddeeffgghhiijjkkllmmnnoopp"
SECRET = webhook_secret(TOKEN)
PATH = f"/webhook/telegram/{BOT}"
STORE = "tidegate.db"


_started = 0.0  # processor time


def say(port: int) -> None:
    global _started  # noqa: PLW0603  (one server in a process)
    _started = time.process_time()
    print(port, flush=True)


class Gate:
    """What is needed of one: a bot and its inbox."""

    hooks: Mapping[str, Hook] = {}

    def __init__(self, folder: Path, *, handles: bool) -> None:
        self._file = StoreFile(folder / STORE)
        self._handles = handles
        self.handled = 0
        self.waited = 0

    def registry(self) -> HandlerRegistry:
        return self._registry

    def secret_of(self, bot_id: int) -> str | None:
        return SECRET if bot_id == BOT else None

    async def problems(self) -> dict[str, str]:
        return {}

    def notes(self) -> list[str]:
        return []

    async def start(self) -> None:
        await self._file.open()
        self._registry = HandlerRegistry(SqliteInbox(self._file, Clock()), Clock())
        if self._handles:
            self._registry.register(bot_source(BOT), self._handle)
            await self._registry.start()

    async def stop(self) -> None:
        if self._handles:
            await self._registry.stop()
        self.waited = (await self._registry.stats()).waiting
        await self._file.close()

    async def _handle(self, _: ClaimedItem) -> None:
        self.handled += 1


async def tidegate(folder: Path, *, handles: bool) -> int:
    gate = Gate(folder, handles=handles)
    await serve(WebhookApp(gate), port=0, on_ready=say)
    return gate.handled + gate.waited


async def aiogram(_: Path) -> int:
    """As its documentation shows it: answered at once, handled in the background, held in memory alone."""
    from aiogram import Bot, Dispatcher  # noqa: PLC0415  (only for its own measurement)
    from aiogram.types import Message  # noqa: PLC0415
    from aiogram.webhook.aiohttp_server import SimpleRequestHandler  # noqa: PLC0415
    from aiohttp import web  # noqa: PLC0415

    dispatcher, handled = Dispatcher(), 0

    @dispatcher.message()
    async def count(_: Message) -> None:
        nonlocal handled
        handled += 1

    app = web.Application()
    SimpleRequestHandler(dispatcher, Bot(TOKEN), secret_token=SECRET).register(app, path=PATH)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    say(runner.addresses[0][1])
    await _told_to_end()
    await runner.cleanup()
    return handled


async def ptb(_: Path) -> int:
    """The server that `run_webhook` starts: an update goes into a queue in memory."""
    import tornado.netutil  # noqa: PLC0415  (only for its own measurement)
    from telegram import Bot  # noqa: PLC0415
    from telegram.ext._utils.webhookhandler import WebhookAppClass  # noqa: PLC0415
    from tornado.httpserver import HTTPServer  # noqa: PLC0415

    queue: asyncio.Queue[object] = asyncio.Queue()
    server = HTTPServer(WebhookAppClass(PATH, Bot(TOKEN), queue, SECRET))
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    say(sockets[0].getsockname()[1])
    await _told_to_end()
    server.stop()
    return queue.qsize()


async def _told_to_end() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()


Serve = Callable[[Path], Awaitable[int]]
SERVERS: dict[str, Serve] = {
    "tidegate": lambda folder: tidegate(folder, handles=False),
    "tidegate-handled": lambda folder: tidegate(folder, handles=True),
    "aiogram": aiogram,
    "ptb": ptb,
}


async def run(name: str, folder: Path) -> None:
    kept = await SERVERS[name](folder)
    print(json.dumps({"kept": kept, "cpu": time.process_time() - _started}), flush=True)
