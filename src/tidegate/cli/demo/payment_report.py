"""The payment demo while it runs and at its end: a picture, a table, and whether the targets were met."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.cli.demo.comparison import MARKS, gauge
from tidegate.cli.demo.customers import PaymentWorld
from tidegate.cli.progress import Meter, sparkline
from tidegate.outbox.port import OutboxStats

TOLD_WITHIN: Final = 62.0  # seconds from payment to confirmation: a minute until the poll, and the way
DELTA_MEDIAN: Final = 3.0  # seconds, in delta mode
DELTA_MEDIAN_FROM: Final = 100  # people: for fewer, a delta poller asks less often
FLAWS: Final = ("refused", "lost", "doubled", "dead", "parked", "unconfirmed", "waiting")


def measured(world: PaymentWorld, stats: OutboxStats) -> dict[str, Any]:
    """Return the counts under the shared keys. `refused` and `requests` are of both services; `p50_ms` and so
    on: from paying to the confirmation, of those who have it.
    """
    telegram, books = world.telegram.telegram.report(), world.books.noco.report()
    return {
        "users": world.users,
        **_people(world.stages(), world),
        **_waits(world.waits()),
        **_messages(stats, int(telegram["accepted"])),
        "requests": telegram["requests"] + books["requests"],
        "refused": telegram["refused"] + books["refused"],
        "doubled": sum(customer.doubled for customer in world.customers),
        "telegram": _side(telegram, limit=30),
        "nocodb": _side(books, limit=5),
    }


def passed(report: Mapping[str, Any]) -> bool:
    """Check the target: no 429, nothing lost or doubled, everybody told within 62 s; in delta mode, the
    median below 3 s if there are 100 people or more.
    """
    done = report["confirmed"] + report["cancelled"] == report["users"]
    in_time = report["max_ms"] <= 1000 * TOLD_WITHIN
    quick = not _has_median_target(report) or report["p50_ms"] < 1000 * DELTA_MEDIAN
    return done and in_time and quick and not any(report[flaw] for flaw in FLAWS)


def report_table(report: Mapping[str, Any]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, title="What came of it", title_justify="left", show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    for name, value in _rows(report):
        table.add_row(name, value)
    return Group(table, Text(verdict(report)))


def verdict(report: Mapping[str, Any]) -> str:
    """Return the result in one sentence."""
    left = report["users"] - report["confirmed"] - report["cancelled"]
    if left and not report["refused"]:
        return f"It ended before {left:,} of {report['users']:,} people were done: give it more --seconds."
    median = f", half of them within {DELTA_MEDIAN:g} s" if _has_median_target(report) else ""
    target = f"no 429, nothing lost or doubled, everybody told within {TOLD_WITHIN:g} s of paying{median}"
    return f"The target, {target}: {'met' if report['passed'] else 'missed'}."


def _has_median_target(report: Mapping[str, Any]) -> bool:
    return bool(report["mode"] == "delta" and report["users"] >= DELTA_MEDIAN_FROM)


def _people(stages: Counter[str], world: PaymentWorld) -> dict[str, int]:
    paid = sum(customer.paid_at is not None for customer in world.customers)
    return {
        "ordered": sum(customer.order is not None for customer in world.customers),
        "paid": paid,
        "confirmed": stages["confirmed"],
        "unconfirmed": paid - stages["confirmed"],
        "cancelled": stages["cancelled"],
    }


def _waits(waits: Sequence[float]) -> dict[str, float]:
    return {
        "p50_ms": _share(waits, 0.50),
        "p99_ms": _share(waits, 0.99),
        "max_ms": _share(waits, 1.0),
    }


def _share(ordered: Sequence[float], share: float) -> float:
    """Return a percentile in milliseconds; 0 if nothing was measured."""
    return round(1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 1) if ordered else 0.0


def _messages(stats: OutboxStats, arrived: int) -> dict[str, int]:
    """Count the messages. `lost` were delivered according to the store, but are not at Telegram."""
    waiting = stats.waiting + stats.sending
    return {
        "accepted": stats.delivered + waiting + stats.dead + stats.parked,
        "delivered": stats.delivered,
        "waiting": waiting,
        "dead": stats.dead,
        "parked": stats.parked,
        "lost": max(0, stats.delivered - arrived),
    }


def _side(seen: Mapping[str, Any], *, limit: int) -> dict[str, Any]:
    picked = {name: seen[name] for name in ("requests", "refused", "avg_rps", "peak_rps")}
    return {**picked, "limit_rps": limit}


def _rows(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    telegram, books, polling = report["telegram"], report["nocodb"], report["polling"]
    return [
        ("people, of whom ordered", f"{report['users']:,}, {report['ordered']:,}"),
        ("paid, confirmed", f"{report['paid']:,}, {report['confirmed']:,}"),
        ("cancelled", f"{report['cancelled']:,}"),
        ("from paying to the confirmation: median", _seconds(report["p50_ms"])),
        ("99th percentile, longest", f"{_seconds(report['p99_ms'])}, {_seconds(report['max_ms'])}"),
        ("messages accepted, delivered", f"{report['accepted']:,}, {report['delivered']:,}"),
        ("lost, doubled", f"{report['lost']:,}, {report['doubled']:,}"),
        ("refused (429) by Telegram, by NocoDB", f"{telegram['refused']:,}, {books['refused']:,}"),
        ("requests to Telegram, to NocoDB", f"{telegram['requests']:,}, {books['requests']:,}"),
        ("of them in a second, on average", f"{telegram['avg_rps']:g}, {books['avg_rps']:g}"),
        ("most in a second", f"{telegram['peak_rps']:,}, {books['peak_rps']:,}"),
        ("polling: cycles, requests", f"{polling['cycles']:,}, {polling['requests']:,}"),
    ]


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:,.1f} s"


# Fits a terminal of 80 columns and 24 lines.
WIDTH: Final = 80
# The stages of a customer, in their order.
STEPS: Final = {
    "coming": ("coming",),
    "choosing": ("choosing", "ordering"),
    "ordered": ("ordered", "cancelling"),
    "paid, not told": ("paid",),
    "confirmed": ("confirmed",),
    "cancelled": ("cancelled",),
}


class PaymentView:
    """Draws the demo from `report` and `stages`. It keeps what it drew, to compute rates."""

    def __init__(
        self, report: Callable[[], Mapping[str, Any]], stages: Callable[[], Counter[str]], *, seconds: int
    ) -> None:
        self._report, self._stages, self._seconds = report, stages, seconds
        self._sides = {
            "telegram": ServicePanel("Telegram", "cyan"),
            "nocodb": ServicePanel("NocoDB", "magenta"),
        }

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
        return Group(Text(told, style="bold"), Text(f"{left} s left at most · Ctrl-C stops it", style="dim"))


class ServicePanel:
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
