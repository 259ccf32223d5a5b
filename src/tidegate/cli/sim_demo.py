"""`tidegate sim demo`: a naive bot meets Telegram's limits, over real HTTP, and is measured."""

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp

from tidegate.cli import loop, terminal
from tidegate.cli.demo_view import DemoView, report_table
from tidegate.cli.naive_bot import NaiveBot
from tidegate.clock import Clock
from tidegate.sim.telegram import Crowd, Faults, Habits, Latency, Limits
from tidegate.sim.telegram.http import TelegramServer

TOKEN = "42:naive"  # noqa: S105  (of a bot that exists in the simulator only)
WRITERS = 20
EACH_WAY = Latency(5, 40)


class Demo:
    """One simulator, one bot, 20 people who write to it."""

    def __init__(self, *, seconds: int, people: int, seed: int) -> None:
        self.seconds, self.people, self.seed = seconds, people, seed
        faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
        self.limits = Limits()
        self.server = TelegramServer(limits=self.limits, faults=faults, seed=seed)
        known = self.server.telegram.world.bot(TOKEN)
        assert known is not None  # noqa: S101  (an open world takes any well-formed token)
        self.crowd = Crowd(
            self.server.telegram, known, users=WRITERS, habits=Habits(patience=float(seconds)), seed=seed
        )
        self.bot: NaiveBot | None = None

    def report(self) -> dict[str, Any]:
        """In the vocabulary of all reports; `p50_ms` and `p99_ms` are what people waited for a reply."""
        seen, people = self.server.telegram.report(), self.crowd.report()
        accepted = self.bot.accepted if self.bot else 0
        delivered = self.bot.delivered if self.bot else 0
        return {
            "bot": "naive",
            "people": self.people,
            "requests": seen["requests"],
            "accepted": accepted,
            "delivered": delivered,
            "waiting": accepted - delivered,
            "refused": seen["refused"],
            "refused_share": round(seen["refused"] / max(1, seen["requests"]), 4),
            "avg_rps": seen["avg_rps"],
            "peak_rps": seen["peak_rps"],
            "limit_rps": self.limits.bot.count,
            "replies": people["answered"],
            "unanswered": people["said"] - people["answered"],
            "p50_ms": people["p50_ms"],
            "p99_ms": people["p99_ms"],
            "seconds": seen["seconds"],
            "seed": self.seed,
        }


def show(*, seconds: int, people: int, seed: int, as_json: bool) -> None:
    """Blocks for so many seconds, or until Ctrl-C, then reports."""
    demo = Demo(seconds=seconds, people=people, seed=seed)
    loop.run(_live(demo, as_json=as_json))
    if as_json:
        terminal.put_json(demo.report())
    else:
        terminal.put(report_table(demo.report()))


async def _live(demo: Demo, *, as_json: bool) -> None:
    clock, stop = Clock(), loop.stop_signal()
    watched = terminal.is_watched() and not as_json
    if not watched:
        say = terminal.note if as_json else terminal.put_line
        say(f"A naive bot meets Telegram's limits for {demo.seconds} s (Ctrl-C ends it earlier)")
    async with demo.server, aiohttp.ClientSession() as session:
        demo.bot = NaiveBot(session, f"{demo.server.url}/bot{TOKEN}", clock)
        async with (
            loop.beside(demo.crowd.run(demo.seconds)),
            loop.beside(demo.bot.answer()),
            loop.beside(demo.bot.broadcast(range(1, demo.people + 1), "News for everybody!")),
        ):
            with suppress(TimeoutError):
                async with clock.timeout(demo.seconds):
                    await (_watch(demo, stop, clock) if watched else stop.wait())


async def _watch(demo: Demo, stop: asyncio.Event, clock: Clock) -> None:
    view = DemoView(demo.report, demo.seconds, clock)
    with terminal.drawing(view.picture) as draw:
        async for _ in loop.frames(stop, clock):
            draw()
