"""A bot that polls until it is stopped: `stoppable.py LIBRARY SWITCH HANDLER URL STORE`.

LIBRARY is aiogram or ptb; SWITCH is plain, attached or durable; HANDLER is what it does with a text: reply,
sleep, or block a thread. It says when a handler begins, and when the library has returned. A plain bot
imports nothing of Tidegate.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidegate import Tidegate

TOKEN: Final = "42:stoppable"
HOUR: Final = 3600.0
SWITCHES: Final[dict[str, dict[str, Any]]] = {"attached": {}, "durable": {"updates": "durable"}}
SCRIPT: Final = str(Path(__file__).resolve())

Reply = Callable[[str], Awaitable[Any]]


async def reply(send: Reply) -> None:
    await send("hello")


async def sleep(_send: Reply) -> None:
    await asyncio.sleep(HOUR)  # noqa: TID251  (a process of its own)


async def block_a_thread(_send: Reply) -> None:
    await asyncio.to_thread(threading.Event().wait, HOUR)


HANDLERS: Final = {"reply": reply, "sleep": sleep, "thread": block_a_thread}


def run_aiogram(url: str, gate: "Tidegate | None", switches: dict[str, Any], handler: str) -> None:
    from aiogram import Bot, Dispatcher  # noqa: PLC0415  (one library for each process)
    from aiogram.client.session.aiohttp import AiohttpSession  # noqa: PLC0415
    from aiogram.client.telegram import TelegramAPIServer  # noqa: PLC0415
    from aiogram.types import Message  # noqa: PLC0415

    dispatcher = Dispatcher()
    bot = Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(url)))

    @dispatcher.message()
    async def handle(message: Message) -> None:
        say("handling")
        await HANDLERS[handler](message.answer)

    if gate is not None:
        gate.attach(dispatcher, bot, **switches)
    dispatcher.run_polling(bot)


def run_ptb(url: str, gate: "Tidegate | None", switches: dict[str, Any], handler: str) -> None:
    from telegram import Update  # noqa: PLC0415
    from telegram.ext import Application, MessageHandler, filters  # noqa: PLC0415

    builder = Application.builder().token(TOKEN).base_url(f"{url}/bot").concurrent_updates(True)  # noqa: FBT003
    if gate is not None:
        gate.attach(builder, **switches)
    application = builder.build()

    async def handle(update: Update, _context: object) -> None:
        assert update.effective_message is not None
        say("handling")
        await HANDLERS[handler](update.effective_message.reply_text)

    application.add_handler(MessageHandler(filters.TEXT, handle))
    application.run_polling()


def say(what: str) -> None:
    sys.stdout.write(f"{what} {time.monotonic()}\n")  # noqa: TID251
    sys.stdout.flush()


def main(library: str, switch: str, handler: str, url: str, store: str) -> None:
    gate = None
    if switch != "plain":
        from tidegate import Tidegate  # noqa: PLC0415

        gate = Tidegate(store)
    run = run_aiogram if library == "aiogram" else run_ptb
    run(url, gate, SWITCHES.get(switch, {}), handler)
    say("returned")


if __name__ == "__main__":
    main(*sys.argv[1:])
