"""The two bots of the demo, one naive and one with Tidegate, and the simulated Telegram each has."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import aiohttp

from tidegate.cli import loop
from tidegate.cli.demo.chart import BotTimeline
from tidegate.clock import Clock
from tidegate.errors import OutcomeUnknownError
from tidegate.gate import Tidegate
from tidegate.sim.telegram import Crowd, Faults, Habits, Latency, Limits
from tidegate.sim.telegram.http import TelegramServer

IN_FLIGHT = 20
POLL_SECONDS = 10


class UnpacedBot:
    """A bot without pacing that retries when it is refused. It exists only to be measured."""

    def __init__(self, session: aiohttp.ClientSession, address: str, clock: Clock) -> None:
        self._session, self._address, self._clock = session, address, clock

    async def broadcast(self, people: Iterable[int], text: str) -> None:
        """Send to everybody, as fast as 20 requests in flight allow."""
        rest = iter(people)
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(self._send_to_each(rest, text))

    async def answer(self) -> None:
        """Answer everybody who writes, each in a task of its own, until cancelled."""
        offset = 0
        async with asyncio.TaskGroup() as replies:
            while True:
                updates = await self._call("getUpdates", {"offset": offset, "timeout": POLL_SECONDS})
                for update in updates.get("result", []):
                    offset = update["update_id"] + 1
                    replies.create_task(self._send(update["message"]["chat"]["id"], f"You said #{offset}"))

    async def _send_to_each(self, people: Iterator[int], text: str) -> None:
        for person in people:
            await self._send(person, text)

    async def _send(self, chat: int, text: str) -> None:
        while True:
            answer = await self._call("sendMessage", {"chat_id": chat, "text": text})
            if answer["ok"]:
                return
            await self._clock.sleep(answer.get("parameters", {}).get("retry_after", 1))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post(f"{self._address}/{method}", json=params) as response:
            answer: dict[str, Any] = await response.json()
            return answer


class GatedBot:
    """The same bot with Tidegate, without pacing or retries of its own. Needs an open gate and a worker."""

    def __init__(self, gate: Tidegate) -> None:
        self._gate = gate

    async def broadcast(self, people: Iterable[int], text: str) -> None:
        """Put a message for everybody. Returns when all are accepted, long before all are delivered."""
        news = ({"chat_id": person, "text": text} for person in people)
        await self._gate.send_many(news, priority="low")

    async def answer(self) -> None:
        """Answer everybody who writes, each in a task of its own, until cancelled."""
        offset = 0
        async with asyncio.TaskGroup() as replies:
            while True:
                poll = {"offset": offset, "timeout": POLL_SECONDS}
                for update in await self._call("getUpdates", poll):
                    offset = update["update_id"] + 1
                    reply = {"chat_id": update["message"]["chat"]["id"], "text": f"You said #{offset}"}
                    replies.create_task(self._call("sendMessage", reply))

    async def _call(self, method: str, params: dict[str, Any]) -> Any:  # noqa: ANN401  (Telegram's result)
        with suppress(
            OutcomeUnknownError
        ):  # after a suspend of the machine: polls are repeated, replies are not
            return await self._gate.call(method, params)
        return []


TOKEN = "42:demo"  # noqa: S105  (of a bot that exists in the simulator only)
WRITERS = 20
EACH_WAY = Latency(5, 40)
# The simulator detects doubles and disorder by the number at the end of a text.
NEWS = "News for everybody, issue #1"


class DemoBot(Protocol):
    async def broadcast(self, people: Iterable[int], text: str) -> None: ...

    async def answer(self) -> None: ...


class DemoWorld:
    """A simulated Telegram for one bot, with people who write to it. Counts at Telegram's end of the wire."""

    def __init__(self, *, seconds: int, people: int, seed: int) -> None:
        self._seconds, self._people = seconds, people
        self._limits = Limits()
        faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
        self.server = TelegramServer(limits=self._limits, faults=faults, seed=seed)
        known = self.server.telegram.world.bot(TOKEN)
        assert known is not None  # noqa: S101  (an open world takes any well-formed token)
        habits = Habits(patience=float(seconds))
        self._crowd = Crowd(self.server.telegram, known, users=WRITERS, habits=habits, seed=seed)

    @asynccontextmanager
    async def perform(self, bot: DemoBot) -> AsyncIterator[None]:
        """Run the broadcast, and the people who write, while the body runs."""
        async with (
            loop.beside(self._crowd.run(self._seconds)),
            loop.beside(bot.answer()),
            loop.beside(bot.broadcast(range(1, self._people + 1), NEWS)),
        ):
            yield

    def timeline(self, began: float, seconds: int) -> BotTimeline:
        log = self.server.telegram.request_log.log
        return BotTimeline.of(log, self._crowd.replies, began=began, seconds=seconds)

    def report(self, *, dead: int = 0, parked: int = 0) -> dict[str, Any]:
        """Return the counts under the shared keys. `accepted` is the messages to send: the broadcast, and a
        reply to each message; `p50_ms` and `p99_ms` are the waits for replies.
        """
        seen, people = self.server.telegram.report(), self._crowd.report()
        accepted = self._people + people["said"]
        delivered = seen["accepted"] - seen["doubled"]
        return {
            "people": self._people,
            "requests": seen["requests"],
            "accepted": accepted,
            "delivered": delivered,
            "waiting": accepted - delivered - dead - parked,
            "refused": seen["refused"],
            "refused_share": round(seen["refused"] / max(1, seen["requests"]), 4),
            "avg_rps": seen["avg_rps"],
            "peak_rps": seen["peak_rps"],
            "limit_rps": self._limits.bot.count,
            "replies": people["answered"],
            "unanswered": people["said"] - people["answered"],
            "p50_ms": people["p50_ms"],
            "p99_ms": people["p99_ms"],
            "dead": dead,
            "parked": parked,
            "out_of_order": seen["out_of_order"],
            "doubled": seen["doubled"],
        }
