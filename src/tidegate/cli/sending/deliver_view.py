"""A worker as a picture while it runs: how fast it goes, what waits, what went wrong."""

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidegate.cli.meter import Meter, sparkline
from tidegate.cli.sending.deliver_report import Run
from tidegate.outbox.base import Stats

WIDTH = 80  # fits a terminal of 80 columns and 24 lines
MARKS = 50  # seconds of a sparkline
LINES = ("high", "normal", "low", "retry")
GOOD_RATE = 30  # the height of a full mark, unless there was a higher one: Telegram's limit for a bot


class DeliverView:
    """Remembers what it drew, to know how fast things go."""

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name
        self._delivered, self._refused = Meter(MARKS), Meter(MARKS)

    def picture(self) -> RenderableType:
        report, stats = self._run.report(), self._run.stats
        self._delivered.read(self._run.seconds, report["delivered"])
        self._refused.read(self._run.seconds, report["refused"])
        pulse, refusals = self._delivered.history(), self._refused.history()
        top = max(GOOD_RATE, *pulse, *refusals)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", min_width=9)
        grid.add_column(no_wrap=True)
        grid.add_row("now", Text(f"{self._delivered.per_second():,}/s", style="bold"))
        grid.add_row("delivered", Text(sparkline(pulse, top), style="green"))
        grid.add_row("429s", Text(sparkline(refusals, top), style="red"))
        grid.add_row()
        grid.add_row("delivered", _number(report["delivered"], "bold green"))
        grid.add_row("in flight", _number(stats.sending))
        grid.add_row("waiting", _waiting(stats))
        grid.add_row(
            "dead",
            _number(report["dead"], _alarm(report["dead"])) + _ended(report["parked"], report["expired"]),
        )
        grid.add_row("429s", _number(report["refused"], _alarm(report["refused"])))
        title = Text(f"Delivering from {self._name}", style="bold")
        hint = Text(f"for {report['seconds']:,.0f} s · Ctrl-C ends it, after what is in flight", style="dim")
        return Panel(grid, title=title, subtitle=hint, width=WIDTH, padding=(1, 2), border_style="cyan")


def _waiting(stats: Stats) -> Text:
    parts = " · ".join(f"{name} {getattr(stats, name):,}" for name in LINES)
    return _number(stats.waiting) + Text(f"  {parts}", style="dim")


def _ended(parked: int, expired: int) -> Text:
    return Text(f"  parked {parked:,} · expired {expired:,}", style="dim")


def _number(count: int, style: str = "bold") -> Text:
    return Text(f"{count:,}", style=style)


def _alarm(count: int) -> str:
    return "bold red" if count else "bold"
