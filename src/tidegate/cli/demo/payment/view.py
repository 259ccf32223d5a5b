"""The payment demo as a picture while it runs: how far people are, and how hard both services are asked."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.cli.demo.view import MARKS, gauge
from tidegate.cli.meter import Meter, sparkline

# Fits a terminal of 80 columns and 24 lines.
WIDTH: Final = 80
# What people see of themselves, in the order in which they go through it.
STEPS: Final = {
    "coming": ("coming",),
    "choosing": ("choosing", "ordering"),
    "ordered": ("ordered", "cancelling"),
    "paid, not told": ("paid",),
    "confirmed": ("confirmed",),
    "cancelled": ("cancelled",),
}


class PaymentView:
    """`report` and `stages` are asked at each look. Remembers what it drew, to know how fast things go."""

    def __init__(
        self, report: Callable[[], Mapping[str, Any]], stages: Callable[[], Counter[str]], *, seconds: int
    ) -> None:
        self._report, self._stages, self._seconds = report, stages, seconds
        self._sides = {"telegram": SideView("Telegram", "cyan"), "nocodb": SideView("NocoDB", "magenta")}

    def picture(self) -> RenderableType:
        report = self._report()
        elapsed = report["seconds"]
        sides = Table.grid(expand=True)
        for _ in self._sides:
            sides.add_column(ratio=1)
        sides.add_row(*(view.picture(report[name], elapsed) for name, view in self._sides.items()))
        frame = Table.grid()
        frame.add_column(width=WIDTH)
        for part in (_headline(report), self._people(report["users"]), sides, self._foot(report)):
            frame.add_row(part)
        return frame

    def _people(self, users: int) -> RenderableType:
        stages, grid = self._stages(), Table.grid(padding=(0, 1), expand=True)
        grid.add_column(min_width=15, style="dim")
        grid.add_column(justify="right", min_width=5, style="bold")
        grid.add_column(ratio=1)
        for name, parts in STEPS.items():
            here = sum(stages[part] for part in parts)
            grid.add_row(name, f"{here:,}", ProgressBar(total=users, completed=here, complete_style="green"))
        return Panel(grid, title=Text("people", style="bold"))

    def _foot(self, report: Mapping[str, Any]) -> RenderableType:
        median, longest = report["p50_ms"] / 1000, report["max_ms"] / 1000
        told = f"told {median:.1f} s after paying (median), {longest:.1f} s at most"
        left = max(0, math.ceil(self._seconds - report["seconds"]))
        return Group(Text(told, style="bold"), Text(f"{left} s left at most · Ctrl-C ends it", style="dim"))


class SideView:
    def __init__(self, title: str, style: str) -> None:
        self._title, self._style = title, style
        self._requests = Meter(MARKS)

    def picture(self, side: Mapping[str, Any], elapsed: float) -> RenderableType:
        self._requests.read(elapsed, side["requests"])
        limit, rate = side["limit_rps"], self._requests.per_second()
        grid = Table.grid(padding=(0, 1))
        grid.add_column(min_width=9, style="dim")
        grid.add_row("asked", Text(f"{rate}/s of {limit}/s", style="bold"))
        grid.add_row("", gauge(rate, limit))
        grid.add_row("requests", Text(sparkline(self._requests.history(), 2 * limit), style=self._style))
        refused = "bold red" if side["refused"] else "bold"
        grid.add_row("429s", Text(f"{side['refused']:,} of {side['requests']:,}", style=refused))
        return Panel(grid, title=Text(self._title, style="bold"), border_style=self._style)


def _headline(report: Mapping[str, Any]) -> RenderableType:
    work = f"{report['users']:,} people order, and pay or cancel; the bot asks NocoDB ({report['mode']})."
    return Group(
        Text(work, style="bold"), Text("Both services are simulated, their limits count.", style="dim")
    )
