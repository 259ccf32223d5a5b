"""The demo as pictures: while it runs, and what came of it."""

from collections.abc import Callable
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.cli.meter import Meter, sparkline
from tidegate.clock import Clock

WIDTH = 88
NEXT = "Tidegate's pacing, made so that nothing is refused, comes next: see the README."


class DemoView:
    def __init__(self, report: Callable[[], dict[str, Any]], seconds: int, clock: Clock) -> None:
        self._report, self._seconds, self._clock = report, seconds, clock
        self._started = clock.monotonic()
        self._requests, self._refused, self._delivered = (Meter(min(50, seconds)) for _ in range(3))

    def picture(self) -> RenderableType:
        report, now = self._report(), self._clock.monotonic()
        # Counted from the start, so that the last whole second is complete.
        elapsed = now - self._started
        self._requests.read(elapsed, report["requests"])
        self._refused.read(elapsed, report["refused"])
        self._delivered.read(elapsed, report["delivered"])
        parts = (self._rates(report), Text(), self._pulse(report), Text(), _numbers(report), Text())
        progress = ProgressBar(total=self._seconds, completed=elapsed, width=None, complete_style="cyan")
        title = Text("A naive bot meets Telegram's limits", style="bold")
        return Panel(Group(*parts, progress), title=title, width=WIDTH, padding=(1, 2), border_style="cyan")

    def _rates(self, report: dict[str, Any]) -> RenderableType:
        limit = report["limit_rps"]
        grid = _grid()
        rows = (("asks Telegram", self._requests, "yellow"), ("gets through", self._delivered, "green"))
        for name, meter, style in rows:
            rate = meter.per_second()
            bar = ProgressBar(
                total=2 * limit, completed=rate, width=28, complete_style=style, finished_style=style
            )
            over = " over the limit" if rate > limit else ""
            grid.add_row(name, bar, Text.assemble((f"{rate}/s", f"bold {style}"), f" of {limit}/s{over}"))
        return grid

    def _pulse(self, report: dict[str, Any]) -> RenderableType:
        top = max(report["limit_rps"], *self._requests.history())
        grid = _grid()
        grid.add_row("requests", Text(sparkline(self._requests.history(), top), style="yellow"))
        grid.add_row("refused", Text(sparkline(self._refused.history(), top), style="red"))
        return grid


def _grid() -> Table:
    """Rows whose names line up with those of the other grids."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=13, style="dim")
    return grid


def _numbers(report: dict[str, Any]) -> RenderableType:
    grid = _grid()
    grid.add_row(
        "delivered", Text(f"{report['delivered']:,} of {report['accepted']:,} messages", style="bold")
    )
    grid.add_row("429s", Text(_refusals(report), style="bold red" if report["refused"] else "bold"))
    grid.add_row("people wait", Text(_waits(report), style="bold"))
    return grid


def report_table(report: dict[str, Any]) -> RenderableType:
    """What the naive bot got, and one sentence about it."""
    table = Table(
        box=box.SIMPLE_HEAD, show_header=False, title="What the naive bot got", title_justify="left"
    )
    table.add_column(style="dim")
    table.add_column(style="bold")
    rows = (
        (
            "requests",
            f"{report['requests']:,}, up to {report['peak_rps']} in a second ({report['limit_rps']} allowed)",
        ),
        ("refused (429)", _refusals(report)),
        ("delivered", f"{report['delivered']:,} of {report['accepted']:,} messages"),
        ("not in time", f"{report['waiting']:,} messages, {report['unanswered']:,} people without a reply"),
        ("a reply took", _waits(report)),
    )
    for row in rows:
        table.add_row(*row)
    return Group(table, Text(lesson(report)), Text(NEXT, style="dim"))


def lesson(report: dict[str, Any]) -> str:
    """What was seen, in one sentence that claims no more."""
    if not report["refused"]:
        return "This broadcast was too small to reach Telegram's limits: try more --people."
    return (
        f"Retrying is not pacing: under Telegram's published limits, simulated here, {_share(report)} "
        f"of what this bot sent was refused, and its slowest replies took {report['p99_ms'] / 1000:.1f} s."
    )


def _refusals(report: dict[str, Any]) -> str:
    return f"{report['refused']:,} ({_share(report)} of all requests)"


def _share(report: dict[str, Any]) -> str:
    return f"{100 * report['refused_share']:.1f} %"


def _waits(report: dict[str, Any]) -> str:
    return f"{report['p50_ms']:,.0f} ms at the median, {report['p99_ms']:,.0f} ms at the 99th percentile"
