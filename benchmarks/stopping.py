"""Measures how long an idle bot takes to end after Ctrl-C, plain and attached to a gate.

    python benchmarks/stopping.py [--rounds 5]

Each bot is a process that polls the simulator. It answers one message, then polls for a second, then gets
SIGINT: the seconds from there until the process has ended are counted. The kinds take turns, round after
round. The store is a new SQLite file for each process.
"""

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tidegate import Tidegate
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.http import TelegramServer

TOKEN: Final = "42:stopping"
IDLE: Final = 1.0  # seconds in which a bot polls before it is stopped
STARTS_WITHIN: Final = 60.0  # seconds


def aiogram(url: str, gate: Tidegate | None, switches: dict[str, Any]) -> None:
    from aiogram import Bot, Dispatcher  # noqa: PLC0415  (one library for each process)
    from aiogram.client.session.aiohttp import AiohttpSession  # noqa: PLC0415
    from aiogram.client.telegram import TelegramAPIServer  # noqa: PLC0415
    from aiogram.types import Message  # noqa: PLC0415

    dispatcher = Dispatcher()
    bot = Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(url)))

    @dispatcher.message()
    async def echo(message: Message) -> None:
        await message.answer("hello")

    if gate is not None:
        gate.attach(dispatcher, bot, **switches)
    dispatcher.run_polling(bot)


def ptb(url: str, gate: Tidegate | None, switches: dict[str, Any]) -> None:
    from telegram import Update  # noqa: PLC0415
    from telegram.ext import Application, MessageHandler, filters  # noqa: PLC0415

    builder = Application.builder().token(TOKEN).base_url(f"{url}/bot").concurrent_updates(True)  # noqa: FBT003
    if gate is not None:
        gate.attach(builder, **switches)
    application = builder.build()

    async def echo(update: Update, _context: object) -> None:
        assert update.effective_message is not None
        await update.effective_message.reply_text("hello")

    application.add_handler(MessageHandler(filters.TEXT, echo))
    application.run_polling()


BOTS: Final[dict[str, tuple[Callable[..., None], bool, dict[str, str]]]] = {
    "aiogram": (aiogram, False, {}),
    "aiogram, attached": (aiogram, True, {}),
    "aiogram, durable": (aiogram, True, {"updates": "durable", "conversations": "store"}),
    "ptb": (ptb, False, {}),
    "ptb, attached": (ptb, True, {}),
    "ptb, durable": (ptb, True, {"updates": "durable"}),
}


def be(kind: str, url: str, folder: str) -> None:
    """Be the bot, in a process of its own."""
    run, attached, switches = BOTS[kind]
    run(url, Tidegate(Path(folder, "tidegate.db")) if attached else None, switches)


async def seconds_to_end(kind: str) -> float:
    async with TelegramServer() as server:
        bot = server.telegram.world.bot(TOKEN)
        assert bot is not None
        person = Person(server.telegram, bot, 7)
        with tempfile.TemporaryDirectory(prefix="tidegate-stopping-") as folder:
            process = await asyncio.create_subprocess_exec(
                sys.executable, __file__, "--be", kind, server.url, folder, stderr=asyncio.subprocess.DEVNULL
            )
            try:
                person.says("hi")
                await person.hears(STARTS_WITHIN)
                await asyncio.sleep(IDLE)
                started = time.monotonic()
                process.send_signal(signal.SIGINT)
                await process.wait()
                return time.monotonic() - started
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


async def measure(rounds: int) -> None:
    found: dict[str, list[float]] = {kind: [] for kind in BOTS}
    for _ in range(rounds):
        for kind, seconds in found.items():
            seconds.append(await seconds_to_end(kind))
    print("| bot | median | longest | beyond the plain bot |")
    print("|---|---|---|---|")
    for kind, seconds in found.items():
        plain = statistics.median(found[kind.split(",")[0]])
        middle = statistics.median(seconds)
        print(f"| {kind} | {middle:.2f} s | {max(seconds):.2f} s | {middle - plain:+.2f} s |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--be"]:
        be(*sys.argv[2:])
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
        parser.add_argument("--rounds", type=int, default=5)
        asyncio.run(measure(parser.parse_args().rounds))
