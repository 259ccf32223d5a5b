"""aiogram's bots on virtual time: a session that reaches the simulator without a socket."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
from aiogram import Bot, Dispatcher
from aiogram.client.session.base import BaseSession
from aiogram.exceptions import TelegramNetworkError, TelegramServerError
from aiogram.methods import TelegramMethod
from aiogram.methods.base import TelegramType

from tidegate import Tidegate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import ConnectionCut, Limits, SimulatedTelegram, World
from tidegate.sim.telegram.call import Upload
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

TOKEN = "42:token"


class SimSession(BaseSession):
    """`unplugged`: nobody can be reached, and no byte leaves. `broken`: so many calls get a 500.

    `slow`: so many seconds until all of a call has arrived.
    """

    def __init__(self, telegram: SimulatedTelegram) -> None:
        super().__init__()
        self.telegram = telegram
        self.unplugged = False
        self.broken = 0
        self.slow = 0.0
        self.made: list[TelegramMethod[Any]] = []

    async def make_request(
        self,
        bot: Bot,
        method: TelegramMethod[TelegramType],
        timeout: int | None = None,  # noqa: ASYNC109  (aiogram's)
    ) -> TelegramType:
        self.made.append(method)
        if self.unplugged:
            where = aiohttp.client_reqrep.ConnectionKey("127.0.0.1", 1, False, True, None, None, None)  # noqa: FBT003
            raise TelegramNetworkError(method, "no route") from aiohttp.ClientConnectorError(where, OSError())
        if self.broken:
            self.broken -= 1
            raise TelegramServerError(method, "Internal Server Error")
        files: dict[str, Any] = {}
        params = {
            key: prepared
            for key, value in method.model_dump(warnings=False).items()
            if (prepared := self.prepare_value(value, bot=bot, files=files)) is not None
        }
        uploads = {key: await _upload(key, file, bot) for key, file in files.items()}
        try:
            async with self.telegram.clock.timeout(timeout or self.timeout):
                await self.telegram.clock.sleep(self.slow)
                answer = await self.telegram.call(bot.token, method.__api_method__, params, uploads)
        except ConnectionCut as error:
            raise TelegramNetworkError(method, "cut") from aiohttp.ServerDisconnectedError(str(error))
        except TimeoutError as error:
            raise TelegramNetworkError(method, "Request timeout error") from error
        content = answer.raw.decode() if answer.raw is not None else json.dumps(answer.body)
        response = self.check_response(bot, method, answer.status, content)
        result: TelegramType = response.result  # type: ignore[assignment]
        return result

    async def close(self) -> None:
        pass

    async def stream_content(self, *_: object, **__: object) -> AsyncGenerator[bytes, None]:
        yield b"from the net"


async def _upload(key: str, file: Any, bot: Bot) -> Upload:  # noqa: ANN401  (aiogram's InputFile)
    content = b"".join([chunk async for chunk in file.read(bot)])
    return Upload(file.filename or key, "application/octet-stream", content)


class Stage:
    """One bot behind a gate, in memory if not told otherwise, before a Telegram that counts."""

    def __init__(
        self,
        clock: VirtualClock,
        rules: Rules | None = None,
        limits: Limits | None = None,
        *,
        store: str = "memory://",
        telegram: SimulatedTelegram | None = None,
    ) -> None:
        self.clock = clock
        self.tokens = {TOKEN}
        self.telegram = telegram or SimulatedTelegram(clock, limits=limits, world=World(tokens=self.tokens))
        self.gate = Tidegate(store, clock=clock, rules=rules, wire=TelegramWire(self.telegram, clock))
        self.session = SimSession(self.telegram)
        self.bot = Bot(TOKEN, session=self.session)
        self.dispatcher = Dispatcher()

    def arrivals(self, method: str = "sendMessage") -> list[float]:
        """When calls of this method arrived, in seconds from the first."""
        times = [entry.at for entry in self.telegram.request_log.log if entry.method == method]
        return [round(time - times[0], 2) for time in times]

    @property
    def refused(self) -> int:
        refused: int = self.telegram.report()["refused"]
        return refused
