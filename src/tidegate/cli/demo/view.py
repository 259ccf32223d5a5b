"""The demo as a picture while it runs: the naive bot on the left, the one with Tidegate on the right."""

import math
from collections.abc import Callable
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.cli.demo.report import share, wait
from tidegate.cli.demo.stage import WRITERS
from tidegate.cli.meter import Meter, sparkline
from tidegate.clock import Clock

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
            SideView("naive: sends, and retries", "yellow"),
            SideView("with Tidegate", "cyan"),
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
        measured = "Two bots, two simulated Telegrams, real HTTP: measured now, nothing is staged."
        return Group(Text(work, style="bold"), Text(measured, style="dim"))

    def _progress(self, elapsed: float) -> RenderableType:
        left = max(0, math.ceil(self._seconds - elapsed))
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(ratio=1)
        grid.add_column(justify="right", no_wrap=True)
        bar = ProgressBar(total=self._seconds, completed=elapsed, width=None, complete_style="cyan")
        grid.add_row(bar, Text(f"{left} s left · Ctrl-C ends it", style="dim"))
        return grid


class SideView:
    """One bot. Remembers what it drew, to know how fast things go."""

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
    """A bar up to twice the limit, which is marked in its middle; what is beyond it is red."""
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
