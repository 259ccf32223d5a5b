"""What came of the payment demo: one table, and whether its targets were met."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.demo.payment.town import Town
from tidegate.outbox.base import Stats

WITHIN: Final = 60.0  # seconds from paying to being told, for everybody
DELTA_MEDIAN: Final = 3.0  # seconds, where only what changed is asked for
FLAWS: Final = ("refused", "lost", "doubled", "dead", "parked", "unconfirmed", "waiting")


def measured(town: Town, stats: Stats) -> dict[str, Any]:
    """In the vocabulary of all reports. `refused` and `requests` are of both sides together; `p50_ms` and so
    on: from paying to the confirmation, of those who have it.
    """
    telegram, books = town.telegram.telegram.report(), town.books.noco.report()
    return {
        "users": town.users,
        **_people(town.stages(), town),
        **_waits(town.waits()),
        **_messages(stats, int(telegram["accepted"])),
        "requests": telegram["requests"] + books["requests"],
        "refused": telegram["refused"] + books["refused"],
        "doubled": sum(customer.doubled for customer in town.customers),
        "telegram": _side(telegram, limit=30),
        "nocodb": _side(books, limit=5),
    }


def passed(report: Mapping[str, Any]) -> bool:
    """No 429 from either side, nothing lost or doubled, everybody told within 60 s; by deltas the median
    below 3 s.
    """
    done = report["confirmed"] + report["cancelled"] == report["users"]
    in_time = report["max_ms"] <= 1000 * WITHIN
    quick = report["mode"] != "delta" or report["p50_ms"] < 1000 * DELTA_MEDIAN
    return done and in_time and quick and not any(report[flaw] for flaw in FLAWS)


def report_table(report: Mapping[str, Any]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, title="What came of it", title_justify="left", show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    for name, value in _rows(report):
        table.add_row(name, value)
    return Group(table, Text(verdict(report)))


def verdict(report: Mapping[str, Any]) -> str:
    """One sentence that claims no more than was seen."""
    left = report["users"] - report["confirmed"] - report["cancelled"]
    if left and not report["refused"]:
        return f"It ended before {left:,} of {report['users']:,} people were done: give it more --seconds."
    median = f", half of them within {DELTA_MEDIAN:g} s" if report["mode"] == "delta" else ""
    target = f"no 429, nothing lost or doubled, everybody told within {WITHIN:g} s of paying{median}"
    return f"The target, {target}: {'met' if report['passed'] else 'missed'}."


def _people(stages: Counter[str], town: Town) -> dict[str, int]:
    paid = sum(customer.paid_at is not None for customer in town.customers)
    return {
        "ordered": sum(customer.order is not None for customer in town.customers),
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
    """In milliseconds; 0 where nothing was measured."""
    return round(1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 1) if ordered else 0.0


def _messages(stats: Stats, arrived: int) -> dict[str, int]:
    """`lost`: delivered, as the store has it, and not at Telegram."""
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
