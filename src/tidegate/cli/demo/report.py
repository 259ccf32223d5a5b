"""What came of the demo: both bots in one table, and one sentence that claims no more than was seen."""

import math
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

TARGET = 0.85  # of the limit, while something waits; the way there and back costs the rest
FLAWS = ("refused", "dead", "parked", "out_of_order", "doubled")


def passed(gated: dict[str, Any]) -> bool:
    """Tidegate's own target: no 429, nothing dead, parked, doubled or out of order; and the whole broadcast
    delivered, or on average at least 85 % of the limit used.
    """
    flawless = not any(gated[flaw] for flaw in FLAWS)
    # Whatever waits beyond the replies that are still owed is the broadcast's.
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
    """What was seen, in one sentence."""
    naive, gated = report["naive"], report["tidegate"]
    if not naive["refused"] and not gated["refused"]:
        return "Nobody was refused: this was too little to reach Telegram's limits, try more --people."
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
        "Nothing is staged: measured here, just now, at Telegram's end of the wire."
    )
