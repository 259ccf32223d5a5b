"""Four ways to send many messages, as a bot's author would write each."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp
from benchmarks.pacing_ideal import Job

from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.delivery.bot_api import BotApiClient
from tidegate.delivery.transport import ApiAnswer, NoAnswer

# In flight, of those who bound nothing but their connections: enough for 660 calls/s at 45 ms, for 20 bots
# 2,200. More would measure how two cores cope with 429s, and disturb whoever runs beside.
CONNECTIONS: Final = 30
CONNECTIONS_OF_MANY_BOTS: Final = 100
PTB_RETRIES: Final = 10


def token_of(bot: int) -> str:
    return f"{bot}:token"


class Tally:
    """How far a sender is, and the round trips where it can tell them."""

    def __init__(self) -> None:
        self.done = 0.0
        self.started = self.latest = time.perf_counter()  # when sending began, when something was done last
        self.trips: list[tuple[float, float]] = []  # when a call was made, and the seconds it took

    def start(self) -> None:
        """Everything is prepared: the clock runs from here."""
        self.started = time.perf_counter()

    def count(self) -> None:
        self.done += 1
        self.latest = time.perf_counter()

    @property
    def round_trip(self) -> float:
        return sum(seconds for _, seconds in self.trips) / max(1, len(self.trips))


Send = Callable[[Sequence[Job], str, Tally], Awaitable[None]]


class TimedWire(BotApiClient):
    """Tidegate's own client with a stopwatch around each call."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(Clock())
        self._tally = tally
        self.seconds_by_text: dict[str, float] = {}

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,
        deadline: float,
        on_left: Callable[[], None] | None = None,
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,
    ) -> ApiAnswer | NoAnswer:
        started = time.perf_counter()
        try:
            return await super().call(
                token,
                method,
                params,
                api_url=api_url,
                deadline=deadline,
                on_left=on_left,
                on_written=on_written,
                wait_for_upload=wait_for_upload,
            )
        finally:
            seconds = time.perf_counter() - started
            self._tally.trips.append((started, seconds))
            self.seconds_by_text[params["text"]] = seconds


async def tidegate(jobs: Sequence[Job], url: str, tally: Tally) -> None:
    gate = Tidegate("memory://", wire=TimedWire(tally))

    @gate.on_delivered
    async def delivered(_message: object, _result: object) -> None:
        tally.count()

    async with gate:
        for number in dict.fromkeys(job.bot for job in jobs):
            bot = gate.add_bot(token_of(number), api_url=url)
            mine = ({"chat_id": job.chat, "text": job.text} for job in jobs if job.bot == number)
            await gate.send_many(mine, bot=bot)
        tally.start()
        async with gate.worker():
            await gate.drained()


def ptb() -> Send:
    """Its AIORateLimiter with the limits of its documentation, which are its defaults: 30/1 and 20/60."""
    from telegram.ext import AIORateLimiter, ExtBot  # noqa: PLC0415

    async def run(jobs: Sequence[Job], url: str, tally: Tally) -> None:
        bots = {
            number: ExtBot(
                token_of(number),
                base_url=f"{url}/bot",
                rate_limiter=AIORateLimiter(
                    overall_max_rate=30,
                    overall_time_period=1,
                    group_max_rate=20,
                    group_time_period=60,
                    max_retries=PTB_RETRIES,
                ),
            )
            for number in {job.bot for job in jobs}
        }
        await asyncio.gather(*(bot.initialize() for bot in bots.values()))

        async def send(job: Job) -> None:
            await bots[job.bot].send_message(job.chat, job.text)
            tally.count()

        tally.start()
        try:
            await asyncio.gather(*map(send, jobs), return_exceptions=True)
        finally:
            await asyncio.gather(*(bot.shutdown() for bot in bots.values()))

    return run


def aiogram() -> Send:
    """With the usual loop around it: sleep for retry_after, then send again."""
    from aiogram import Bot  # noqa: PLC0415
    from aiogram.client.session.aiohttp import AiohttpSession  # noqa: PLC0415
    from aiogram.client.telegram import TelegramAPIServer  # noqa: PLC0415
    from aiogram.exceptions import TelegramRetryAfter  # noqa: PLC0415

    async def run(jobs: Sequence[Job], url: str, tally: Tally) -> None:
        session = AiohttpSession(api=TelegramAPIServer.from_base(url), limit=_connections(jobs))
        bots = {number: Bot(token_of(number), session=session) for number in {job.bot for job in jobs}}

        async def send(job: Job) -> None:
            while True:
                try:
                    await bots[job.bot].send_message(job.chat, job.text)
                except TelegramRetryAfter as error:
                    await asyncio.sleep(error.retry_after)
                else:
                    return tally.count()

        tally.start()
        try:
            await asyncio.gather(*map(send, jobs))
        finally:
            await session.close()

    return run


async def plain(jobs: Sequence[Job], url: str, tally: Tally) -> None:
    """aiohttp, `gather`, and another try after retry_after."""
    connector = aiohttp.TCPConnector(limit=_connections(jobs))
    no_timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(url, connector=connector, timeout=no_timeout) as session:

        async def send(job: Job) -> None:
            params = {"chat_id": job.chat, "text": job.text}
            while True:
                async with session.post(f"/bot{token_of(job.bot)}/sendMessage", json=params) as response:
                    answer = await response.json()
                if answer["ok"]:
                    return tally.count()
                await asyncio.sleep(answer["parameters"]["retry_after"])

        tally.start()
        await asyncio.gather(*map(send, jobs))


def _connections(jobs: Sequence[Job]) -> int:
    return CONNECTIONS if len({job.bot for job in jobs}) == 1 else CONNECTIONS_OF_MANY_BOTS


# Loading one gives its function: the libraries are slow to import, and only who uses one pays for it.
SENDERS: Final[Mapping[str, Callable[[], Send]]] = {
    "Tidegate": lambda: tidegate,
    "PTB AIORateLimiter": ptb,
    "aiogram, retry loop": aiogram,
    "gather with retry": lambda: plain,
}
