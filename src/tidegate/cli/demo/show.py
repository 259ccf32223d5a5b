"""`tidegate demo`: a naive bot and one with Tidegate do the same work side by side, and are measured."""

import asyncio
import logging
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp

from tidegate.app import Tidegate
from tidegate.cli import loop, terminal
from tidegate.cli.demo.gated_bot import GatedBot
from tidegate.cli.demo.naive_bot import NaiveBot
from tidegate.cli.demo.report import passed, report_table
from tidegate.cli.demo.stage import TOKEN, Stage
from tidegate.cli.demo.view import DemoView
from tidegate.clock import Clock
from tidegate.outbox.base import Stats
from tidegate.settings import Settings

GRACE = 1.0  # seconds for what is in flight at the end; what waits stays where it is


class Demo:
    """Two stages under the same seed, and the gate of the second bot, with its store in `folder`."""

    def __init__(self, *, seconds: int, people: int, seed: int, folder: str) -> None:
        self.seconds, self.people, self.seed = seconds, people, seed
        self.naive, self.gated = (Stage(seconds=seconds, people=people, seed=seed) for _ in range(2))
        # Not the limits of the environment: those are meant for the real Telegram.
        self.gate = Tidegate(Path(folder, "demo.db"), settings=Settings.model_construct())
        # It ends with messages waiting, which the report tells; the gate's own warning would say it twice.
        logging.getLogger("tidegate").setLevel(logging.ERROR)
        self.elapsed = 0.0
        self._stats = Stats()  # at the last look

    async def look(self) -> None:
        self._stats = await self.gate.stats()

    def report(self) -> dict[str, Any]:
        """`seconds`: how long it went on, less than asked for after Ctrl-C."""
        ended = {"dead": self._stats.dead, "parked": self._stats.parked}
        naive, gated = self.naive.report(), self.gated.report(**ended)
        return {
            "seconds": round(self.elapsed, 1),
            "seed": self.seed,
            "naive": naive,
            "tidegate": gated,
            "passed": passed(gated),
        }


def show(*, seconds: int, people: int, seed: int, as_json: bool) -> None:
    """Blocks for so many seconds, or until Ctrl-C, then reports."""
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder:
        demo = Demo(seconds=seconds, people=people, seed=seed, folder=folder)
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
        say(f"Two bots do the same work for {demo.seconds} s, one naive, one with Tidegate (Ctrl-C ends it)")
    async with demo.naive.server, demo.gated.server, aiohttp.ClientSession() as session, demo.gate as gate:
        gate.add_bot(TOKEN, api_url=demo.gated.server.url)
        naive = NaiveBot(session, f"{demo.naive.server.url}/bot{TOKEN}", clock)
        started = clock.monotonic()
        async with gate.worker(grace=GRACE), demo.naive.perform(naive), demo.gated.perform(GatedBot(gate)):
            with suppress(TimeoutError):
                async with clock.timeout(demo.seconds):
                    await (_watch(demo, stop, clock) if watched else stop.wait())
            demo.elapsed = clock.monotonic() - started
        await demo.look()


async def _watch(demo: Demo, stop: asyncio.Event, clock: Clock) -> None:
    view = DemoView(demo.report, seconds=demo.seconds, people=demo.people, clock=clock)
    with terminal.drawing(view.picture) as draw:
        async for _ in loop.frames(stop, clock):
            await demo.look()
            draw()
