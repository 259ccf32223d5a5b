"""`tidegate demo`: a naive bot and one with Tidegate do the same work side by side, and are measured."""

import asyncio
import logging
import math
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, svg, terminal
from tidegate.cli.demo import chart
from tidegate.cli.demo.bots import TOKEN, WRITERS, DemoWorld, GatedBot, UnpacedBot
from tidegate.cli.progress import Meter, sparkline
from tidegate.clock import Clock
from tidegate.gate import Tidegate
from tidegate.outbox.port import OutboxStats
from tidegate.settings import Settings

TARGET = 0.85  # of the limit, while messages wait; round trips cost the rest
FLAWS = ("refused", "dead", "parked", "out_of_order", "doubled")


def passed(gated: dict[str, Any]) -> bool:
    """Check Tidegate's target: no 429, nothing dead, parked, doubled or out of order; and the whole broadcast
    delivered, or on average at least 85 % of the limit used.
    """
    flawless = not any(gated[flaw] for flaw in FLAWS)
    # Messages that wait are of the broadcast, apart from the replies that are still due.
    finished = gated["waiting"] <= gated["unanswered"]
    return flawless and (finished or gated["avg_rps"] >= TARGET * gated["limit_rps"])


def report_table(report: dict[str, Any]) -> RenderableType:
    naive, gated = report["naive"], report["tidegate"]
    table = Table(box=box.SIMPLE_HEAD, title="What both bots got", title_justify="left")
    table.add_column(style="dim")
    table.add_column("naive", justify="right", style="bold")
    table.add_column("Tidegate", justify="right", style="bold")
    for (name, left), (_, right) in zip(_rows(naive), _rows(gated), strict=True):
        table.add_row(name, left, right)
    return Group(table, Text(lesson(report)), Text(_fine_print(report), style="dim"))


def _rows(side: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("requests", f"{side['requests']:,}"),
        (f"most in a second ({side['limit_rps']} allowed)", f"{side['peak_rps']:,}"),
        ("refused (429)", f"{side['refused']:,}"),
        ("refused, of all requests", share(side)),
        ("messages to send", f"{side['accepted']:,}"),
        ("delivered", f"{side['delivered']:,}"),
        ("still waiting", f"{side['waiting']:,}"),
        ("dead, parked", f"{side['dead']:,}, {side['parked']:,}"),
        ("doubled, out of order", f"{side['doubled']:,}, {side['out_of_order']:,}"),
        ("people answered, not yet", f"{side['replies']:,}, {side['unanswered']:,}"),
        ("a reply took (median)", wait(side, "p50_ms")),
        ("a reply took (99th percentile)", wait(side, "p99_ms")),
    ]


def lesson(report: dict[str, Any]) -> str:
    """Return the result in one sentence."""
    naive, gated = report["naive"], report["tidegate"]
    if not naive["refused"] and not gated["refused"]:
        return "No request was refused: this load is below Telegram's limits, try more --people."
    return (
        f"In these {report['seconds']:g} s, under Telegram's published limits as simulated here, "
        f"{share(naive)} of the naive bot's requests were refused, and {_replies(naive)}; "
        f"of Tidegate's, {share(gated) if gated['refused'] else 'none'} were refused, and {_replies(gated)}; "
        f"{naive['delivered']:,} and {gated['delivered']:,} messages were delivered."
    )


def share(side: dict[str, Any]) -> str:
    return f"{100 * side['refused_share']:.1f} %"


def wait(side: dict[str, Any], percentile: str) -> str:
    return f"{side[percentile]:,.0f} ms" if side["replies"] else "none yet"


def _replies(side: dict[str, Any]) -> str:
    if not side["replies"]:
        return "nobody got a reply"
    return f"99 % of its replies came within {math.ceil(side['p99_ms']):,} ms"


def _fine_print(report: dict[str, Any]) -> str:
    return (
        f"Tidegate's own target, no flaw and {100 * TARGET:.0f} % of the limit or all delivered: "
        f"{'met' if report['passed'] else 'missed'}. "
        "All numbers were measured just now, at Telegram's end of the wire."
    )


# Together they fit a terminal of 80 columns and 24 lines.
WIDTH = 80
MARKS = 24  # a gauge's width, and the seconds of a sparkline


class DemoView:
    def __init__(
        self, report: Callable[[], dict[str, Any]], *, seconds: int, people: int, clock: Clock
    ) -> None:
        self._report, self._seconds, self._people, self._clock = report, seconds, people, clock
        self._started = clock.monotonic()
        self._naive, self._gated = (
            BotPanel("naive: sends, and retries", "yellow"),
            BotPanel("with Tidegate", "cyan"),
        )

    def picture(self) -> RenderableType:
        report = self._report()
        # Counted from the start, so that the last whole second is complete.
        elapsed = self._clock.monotonic() - self._started
        sides = Table.grid(expand=True)
        sides.add_column(ratio=1)
        sides.add_column(ratio=1)
        sides.add_row(
            self._naive.picture(report["naive"], elapsed), self._gated.picture(report["tidegate"], elapsed)
        )
        frame = Table.grid()
        frame.add_column(width=WIDTH)
        for part in (self._headline(), sides, self._progress(elapsed)):
            frame.add_row(part)
        return frame

    def _headline(self) -> RenderableType:
        work = f"A broadcast to {self._people:,} people, and {WRITERS} who write and wait for a reply."
        measured = "Two bots, two simulated Telegrams, real HTTP: all numbers are measured now."
        return Group(Text(work, style="bold"), Text(measured, style="dim"))

    def _progress(self, elapsed: float) -> RenderableType:
        left = max(0, math.ceil(self._seconds - elapsed))
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(ratio=1)
        grid.add_column(justify="right", no_wrap=True)
        bar = ProgressBar(total=self._seconds, completed=elapsed, width=None, complete_style="cyan")
        grid.add_row(bar, Text(f"{left} s left · Ctrl-C stops it", style="dim"))
        return grid


class BotPanel:
    """Draws one bot. It keeps what it drew, to compute rates."""

    def __init__(self, title: str, style: str) -> None:
        self._title, self._style = title, style
        self._requests, self._refused = Meter(MARKS), Meter(MARKS)

    def picture(self, side: dict[str, Any], elapsed: float) -> RenderableType:
        self._requests.read(elapsed, side["requests"])
        self._refused.read(elapsed, side["refused"])
        limit, rate = side["limit_rps"], self._requests.per_second()
        top = 2 * limit  # the same for both, to be compared
        grid = Table.grid(padding=(0, 1))
        grid.add_column(min_width=9, style="dim")
        grid.add_row("asks", Text(f"{rate}/s", style=_alarm(rate > limit)) + Text(f" of {limit}/s"))
        grid.add_row("", gauge(rate, limit))
        grid.add_row("requests", Text(sparkline(self._requests.history(), top), style=self._style))
        grid.add_row("429s", Text(sparkline(self._refused.history(), top), style="red"))
        grid.add_row()
        for row in _numbers(side):
            grid.add_row(*row)
        return Panel(grid, title=Text(self._title, style="bold"), border_style=self._style, padding=(1, 1))


def gauge(rate: int, limit: int) -> Text:
    """Return a bar up to twice the limit, which is marked in the middle; the part beyond it is red."""
    half = MARKS // 2
    within = min(half, round(half * rate / limit))
    beyond = min(half - 1, max(0, math.ceil(half * (rate - limit) / limit)))
    return Text.assemble(
        ("━" * within, "green"),
        ("╌" * (half - within), "dim"),
        ("┃", "bold"),
        ("━" * beyond, "red"),
        ("╌" * (half - 1 - beyond), "dim"),
    )


def _numbers(side: dict[str, Any]) -> list[tuple[str, Text]]:
    return [
        ("delivered", Text(f"{side['delivered']:,} of {side['accepted']:,}", style="bold")),
        ("waiting", Text(f"{side['waiting']:,}", style="bold")),
        ("429s", Text(f"{side['refused']:,} ({share(side)})", style=_alarm(side["refused"] > 0))),
        ("reply", Text(f"{wait(side, 'p50_ms')} (median)", style="bold")),
        ("", Text(f"{wait(side, 'p99_ms')} (p99)", style="bold")),
    ]


def _alarm(alarming: bool) -> str:  # noqa: FBT001  (a choice of colour)
    return "bold red" if alarming else "bold"


GRACE = 1.0  # seconds for the calls in flight at the end


class ComparisonDemo:
    """Two worlds with the same seed, and the gate of the second bot, with its store in `folder`."""

    def __init__(self, *, seconds: int, people: int, seed: int, folder: str) -> None:
        self.seconds, self.people, self.seed = seconds, people, seed
        self.naive, self.gated = (DemoWorld(seconds=seconds, people=people, seed=seed) for _ in range(2))
        # The limits of the environment are for the real Telegram.
        self.gate = Tidegate(Path(folder, "demo.db"), settings=Settings.model_construct())
        # It ends while messages wait, which the report says; the gate would warn of it again.
        logging.getLogger("tidegate").setLevel(logging.ERROR)
        self.began = self.elapsed = 0.0  # seconds: since the Unix epoch, since the start
        self._stats = OutboxStats()  # at the last look

    async def look(self) -> None:
        self._stats = await self.gate.stats()

    def report(self) -> dict[str, Any]:
        """Return the counts of both bots. `seconds` is less than asked for after Ctrl-C."""
        ended = {"dead": self._stats.dead, "parked": self._stats.parked}
        naive, gated = self.naive.report(), self.gated.report(**ended)
        return {
            "seconds": round(self.elapsed, 1),
            "seed": self.seed,
            "naive": naive,
            "tidegate": gated,
            "passed": passed(gated),
        }

    def chart(self) -> str:
        seconds = max(1, round(self.elapsed))
        timelines = [world.timeline(self.began, seconds) for world in (self.naive, self.gated)]
        return chart.chart(self.report(), timelines)


def show(*, seconds: int, people: int, seed: int, picture: Path | None, as_json: bool) -> None:
    """Run for so many seconds, or until Ctrl-C, then print the report, and draw it into the file."""
    if picture is not None:
        svg.reserve(picture)
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder:
        demo = ComparisonDemo(seconds=seconds, people=people, seed=seed, folder=folder)
        loop.run(_live(demo, as_json=as_json))
    if picture is not None:
        svg.save(picture, demo.chart())
    terminal.report(demo.report(), report_table(demo.report()), as_json=as_json)


async def _live(demo: ComparisonDemo, *, as_json: bool) -> None:
    clock, stop = Clock(), loop.stop_signal()
    watched = terminal.is_watched() and not as_json
    if not watched:
        work = f"Two bots do the same work for {demo.seconds} s, one naive, one with Tidegate"
        terminal.announce(f"{work} (Ctrl-C stops it)", as_json=as_json)
    async with demo.naive.server, demo.gated.server, aiohttp.ClientSession() as session, demo.gate as gate:
        gate.add_bot(TOKEN, api_url=demo.gated.server.url)
        naive = UnpacedBot(session, f"{demo.naive.server.url}/bot{TOKEN}", clock)
        started, demo.began = clock.monotonic(), clock.now()
        async with gate.worker(grace=GRACE), demo.naive.perform(naive), demo.gated.perform(GatedBot(gate)):
            with suppress(TimeoutError):
                async with clock.timeout(demo.seconds):
                    await (_watch(demo, stop, clock) if watched else stop.wait())
            demo.elapsed = clock.monotonic() - started
        await demo.look()


async def _watch(demo: ComparisonDemo, stop: asyncio.Event, clock: Clock) -> None:
    view = DemoView(demo.report, seconds=demo.seconds, people=demo.people, clock=clock)
    with terminal.drawing(view.picture) as draw:
        async for _ in loop.frames(stop, clock):
            await demo.look()
            draw()
