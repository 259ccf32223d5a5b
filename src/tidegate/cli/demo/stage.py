"""Where a bot of the demo performs: a Telegram of its own, and people who write to it."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from tidegate.cli import loop
from tidegate.sim.telegram import Crowd, Faults, Habits, Latency, Limits
from tidegate.sim.telegram.http import TelegramServer

TOKEN = "42:demo"  # noqa: S105  (of a bot that exists in the simulator only)
WRITERS = 20
EACH_WAY = Latency(5, 40)
# The number that ends each text, here and in the replies, lets the simulator see doubles and disorder.
NEWS = "News for everybody, issue #1"


class Bot(Protocol):
    async def broadcast(self, people: Iterable[int], text: str) -> None: ...

    async def answer(self) -> None: ...


class Stage:
    """Counts at Telegram's end of the wire, in the same way for whichever bot performs."""

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
    async def perform(self, bot: Bot) -> AsyncIterator[None]:
        """While the body runs: the broadcast, and everybody who writes."""
        async with (
            loop.beside(self._crowd.run(self._seconds)),
            loop.beside(bot.answer()),
            loop.beside(bot.broadcast(range(1, self._people + 1), NEWS)),
        ):
            yield

    def report(self, *, dead: int = 0, parked: int = 0) -> dict[str, Any]:
        """In the vocabulary of all reports. `accepted`: what there was to send, the broadcast and a reply to
        everything said; `p50_ms` and `p99_ms`: what those who got a reply waited for it.
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
