"""What was measured, for people: one row for each mode, or for each mode and number of users."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.stress.scale import duration, per_second
from tidegate.sim.polling import OURS, Result, Scenario

NUMBERS = ("req/s", "peak", "429s", "shut", "missed", "median", "99 %")
WORDS = {
    "refused": "429s came",
    "doubled": "somebody was told twice",
    "early": "somebody was told who had not paid",
    "avg_rps": "too many requests",
    "within_interval": "somebody was told too late",
}


def results_table(results: Sequence[Result], scenario: Scenario, *, complete: bool = True) -> RenderableType:
    """Fits 80 columns, and reads as well without colours. What was stopped is not judged."""
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, padding=0, title=_title(results), title_justify="left"
    )
    table.add_column("users", no_wrap=True, justify="right")
    table.add_column("mode", no_wrap=True)
    for name in (*NUMBERS, f"in {scenario.interval:g} s", "saved"):
        table.add_column(name, no_wrap=True, justify="right")
    for before, result in zip([None, *results], results, strict=False):
        new = before is None or before.users != result.users
        if before is not None and new:
            table.add_section()
        table.add_row(f"{result.users:,}" if new else "", *_cells(result, scenario))
    return Group(
        table, Text(_legend(scenario), style="dim"), *map(Text, verdict(results) if complete else [])
    )


def _title(results: Sequence[Result]) -> str:
    seed = results[0].seed if results else 0
    return f"Waiting for payments, measured at NocoDB's end (seed {seed})"


def _cells(result: Result, scenario: Scenario) -> list[Text]:
    limit = scenario.rate.count / scenario.rate.seconds
    late = "> " if result.missed else ""
    return [
        Text(result.mode, style="bold"),
        Text(per_second(result.avg_rps), style=_alarm(result.avg_rps > limit)),
        Text(f"{result.peak_rps}", style=_alarm(result.peak_rps > limit)),
        Text(f"{result.refused:,}", style=_alarm(result.refused > 0)),
        Text(f"{result.locked_seconds:.0f} s", style=_alarm(result.locked_seconds > 0)),
        Text(f"{result.missed:,}", style=_alarm(result.missed > 0)),
        Text(duration(result.p50_ms)),
        Text(f"{late}{duration(result.p99_ms)}"),
        Text(f"{100 * result.within_interval:.0f} %", style=_alarm(result.within_interval < 1)),
        Text(f"{max(-999, result.reduction):.0f} %"),
    ]


def _legend(scenario: Scenario) -> str:
    return (
        f"peak: most in one second, {scenario.rate.count} allowed. shut: blocked after a 429. missed: paid, "
        "not told. median, 99 %: from payment to notification; who was missed counts with what he waited. "
        f"saved: against one request per user every {scenario.interval:g} s."
    )


def verdict(results: Sequence[Result]) -> list[str]:
    """What was promised and what came of it, for our modes; what is only compared gets no line."""
    ours = [result for result in results if result.mode in OURS]
    bad = [f"failed: {one.mode}, {one.users:,} users: {_why(one)}" for one in ours if one.flaws]
    slow = [one for one in ours if one.mode == "paced" and one.within_interval < 1]
    lines = bad or [f"passed: no 429, nobody told twice{_in_time(ours)}"] * bool(ours)
    if slow:
        crowds = ", ".join(f"{one.users:,}" for one in slow)
        lines.append(f"paced keeps the limit, but is too slow for {crowds} users: use batch or delta")
    return lines


def _in_time(ours: Sequence[Result]) -> str:
    frugal = [mode for mode in ("batch", "delta") if any(one.mode == mode for one in ours)]
    return f"; {' and '.join(frugal)} told everybody in time, with few requests" if frugal else ""


def _why(result: Result) -> str:
    return ", ".join(WORDS[flaw] for flaw in result.flaws)


def _alarm(alarming: bool) -> str:  # noqa: FBT001  (a choice of colour)
    return "bold red" if alarming else ""
