"""The subjects of `overhead.py`: one call of a bot whose network answers at once, with and without a gate."""

import asyncio
import datetime as dt
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tidegate import Tidegate
from tidegate.delivery.transport import ApiAnswer
from tidegate.model import Rate
from tidegate.pacing.rules import Rules
from tidegate.settings import Settings

TOKEN: Final = "42:overhead"
# Never binds; a slot cools long before a chat has its next call, as with real people, so that
# nothing of the chat is left by then.
MANY: Final = Rate(10**6, 0.02)
ROOMY: Final = Rules(bot=MANY, private=MANY, group=MANY, actions=(MANY,))
WAITING: Final = 5_000  # messages of the broadcast

Call = Callable[[int], Awaitable[object]]  # to a chat


class Network:
    """Answers at once, and lets others run after so many calls: with 1, calls overlap.

    Not after each where there is one at a time. A loop that goes around for nothing, thousands of times a
    second, lets go of the interpreter's lock each time and wakes the store's thread in vain: 15 µs that no
    bot pays whose network takes its time.
    """

    def __init__(self) -> None:
        self.pause_after = 1
        self._calls = 0

    async def answer(self) -> None:
        self._calls += 1
        if self._calls % self.pause_after == 0:
            await asyncio.sleep(0)


network = Network()


class Stuck:
    """A transport of the gate that answers when `answers` is set: until then, queued messages wait."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def call(self, *_: object, **__: object) -> ApiAnswer:
        await self.answers.wait()
        return ApiAnswer(200, {"ok": True, "result": {"message_id": 1}})

    async def close(self) -> None: ...


@asynccontextmanager
async def opened(store: str, *, broadcast: bool = False) -> AsyncIterator[Tidegate]:
    """A gate that delivers; with a broadcast that waits for its turns while the body runs."""
    wire = Stuck()
    gate = Tidegate(store, rules=ROOMY, wire=wire, settings=Settings.model_construct())
    async with gate:
        gate.add_bot(TOKEN)
        await gate.start()
        if broadcast:
            news = ({"chat_id": 10**6 + reader, "text": "News"} for reader in range(WAITING))
            await gate.send_many(news, priority="low")
        yield gate
        wire.answers.set()
        await gate.drained()
        await gate.stop()


def aiogram_bot(gate: Tidegate | None) -> Call:
    """`bot.send_message` of aiogram, with a session that answers at once."""
    from aiogram import Bot  # noqa: PLC0415  (slow to import: only who uses it pays for it)
    from aiogram.client.session.base import BaseSession  # noqa: PLC0415
    from aiogram.types import Chat, Message  # noqa: PLC0415

    answer = Message(message_id=1, date=dt.datetime.now(dt.UTC), chat=Chat(id=1, type="private"), text="Hi")

    class NullSession(BaseSession):
        async def close(self) -> None: ...

        async def make_request(self, *_: object, **__: object) -> Any:  # noqa: ANN401
            await network.answer()
            return answer

        async def stream_content(self, *_: object, **__: object) -> AsyncIterator[bytes]:  # type: ignore[override]
            yield b""

    bot = Bot(TOKEN, session=NullSession())
    if gate is not None:
        gate.attach(None, bot)
    return lambda chat: bot.send_message(chat, "Hello")


@asynccontextmanager
async def ptb_bot(limiter: Any) -> AsyncIterator[Call]:  # noqa: ANN401  (the library's, or ours)
    """`bot.send_message` of python-telegram-bot, with a request that answers at once."""
    from telegram.ext import ExtBot  # noqa: PLC0415
    from telegram.request import BaseRequest  # noqa: PLC0415

    sent = {"message_id": 1, "date": 1, "chat": {"id": 1, "type": "private"}, "text": "Hi"}
    me = {"id": 42, "is_bot": True, "first_name": "Bot", "username": "bot"}

    class NullRequest(BaseRequest):
        read_timeout = None

        async def initialize(self) -> None: ...

        async def shutdown(self) -> None: ...

        async def do_request(self, url: str, *_: object, **__: object) -> tuple[int, bytes]:
            await network.answer()
            return 200, json.dumps({"ok": True, "result": me if url.endswith("getMe") else sent}).encode()

    bot = ExtBot(TOKEN, request=NullRequest(), get_updates_request=NullRequest(), rate_limiter=limiter)
    async with bot:
        yield lambda chat: bot.send_message(chat, "Hello")


@asynccontextmanager
async def aiogram(folder: Path) -> AsyncIterator[Mapping[str, Call]]:
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(opened("memory://"))
        file = await stack.enter_async_context(opened(str(folder / "tidegate.db")))
        yield {"plain": aiogram_bot(None), "memory": aiogram_bot(memory), "file": aiogram_bot(file)}


@asynccontextmanager
async def aiogram_beside_a_broadcast(folder: Path) -> AsyncIterator[Mapping[str, Call]]:
    async with opened(str(folder / "busy.db"), broadcast=True) as gate:
        yield {"plain": aiogram_bot(None), "file, a broadcast waits": aiogram_bot(gate)}


@asynccontextmanager
async def ptb(folder: Path) -> AsyncIterator[Mapping[str, Call]]:
    from telegram.ext import AIORateLimiter  # noqa: PLC0415

    own = AIORateLimiter(overall_max_rate=10**9, group_max_rate=10**9)
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(opened("memory://"))
        file = await stack.enter_async_context(opened(str(folder / "tidegate.db")))
        limiters = {"plain": None, "AIORateLimiter": own, "memory": memory.ptb(), "file": file.ptb()}
        yield {name: await stack.enter_async_context(ptb_bot(limiter)) for name, limiter in limiters.items()}
