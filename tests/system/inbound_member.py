"""A process that handles updates beside others: `inbound_member.py ROLE TERMS`, the terms as JSON.

`webhook` serves a port that it shares; `polling` is an aiogram bot. Both answer "echo …" through the queue.
"""

import logging
import os
import sys
from typing import Any, Final

import msgspec
import uvloop

from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.pacing.rules import Rules
from tidegate.settings import Settings
from tidegate.stores.redis.outbox import RedisOutbox

TOKEN: Final = "42:token"
MANY: Final = Rate(10_000, 1)
LEASE: Final = 2.0  # seconds: what a dead process was sending is sent again soon


class Terms(msgspec.Struct, kw_only=True, frozen=True):
    store: str
    telegram: str
    spool: str
    port: int = 0
    slow: float = 0.02  # seconds that a handler takes


def gate_of(terms: Terms) -> Tidegate:
    settings = Settings(tidegate_spool=terms.spool)
    return Tidegate(terms.store, rules=Rules(bot=MANY, private=MANY, group=MANY), settings=settings)


async def serve(terms: Terms) -> None:
    gate = gate_of(terms)
    gate.add_bot(TOKEN, api_url=terms.telegram)

    @gate.on_update
    async def echo(bot: int, update: dict[str, Any]) -> None:
        message = update["message"]
        await Clock().sleep(terms.slow)
        await gate.send(bot=bot, chat_id=message["chat"]["id"], text=f"echo {message['text']}")

    await gate.serve(port=terms.port, reuse_port=True, on_ready=lambda _: _say("ready"))


async def poll(terms: Terms) -> None:
    from aiogram import Bot, Dispatcher  # noqa: PLC0415  (half a second)
    from aiogram.client.session.aiohttp import AiohttpSession  # noqa: PLC0415
    from aiogram.client.telegram import TelegramAPIServer  # noqa: PLC0415
    from aiogram.types import Message  # noqa: PLC0415

    bot = Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(terms.telegram)))
    dispatcher, gate = Dispatcher(), gate_of(terms)
    gate.attach(dispatcher, bot, updates="durable")

    @dispatcher.message()
    async def echo(message: Message) -> None:
        await Clock().sleep(terms.slow)
        await gate.queue(message.answer(f"echo {message.text}"))

    @dispatcher.startup()
    async def ready() -> None:
        link: Any = getattr(gate.outbox, "link", None)
        _say(link.me)

    await dispatcher.start_polling(bot, polling_timeout=2)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=f"{os.getpid()} %(asctime)s %(name)s %(message)s")
    assert RedisOutbox.__init__.__kwdefaults__ is not None
    RedisOutbox.__init__.__kwdefaults__["lease"] = LEASE
    roles = {"webhook": serve, "polling": poll}
    uvloop.run(roles[sys.argv[1]](msgspec.json.decode(sys.argv[2], type=Terms)))
