"""What was measured, for people: one row for each mode, or for each mode and number of users."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.stress.fitting import Fitting, block
from tidegate.cli.stress.scale import duration, per_second
from tidegate.cli.stress.verdict import verdict
from tidegate.sim.polling import Result, Scenario

WHOLE = 10  # times as many: from here on without a decimal


def results_table(results: Sequence[Result], scenario: Scenario, *, complete: bool = True) -> RenderableType:
    """Fits 80 columns, or comes in blocks; reads as well without colours. What was stopped is not judged."""
    return Group(
        Fitting(_table(results, scenario), _blocks(results, scenario)),
        Text(_legend(results, scenario), style="dim"),
        *map(Text, verdict(results) if complete else []),
    )


def _table(results: Sequence[Result], scenario: Scenario) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, padding=0, title=_title(results), title_justify="left"
    )
    table.add_column("users", no_wrap=True, justify="right")
    table.add_column("mode", no_wrap=True, style="bold")
    for name in _cells(results[0], scenario):
        table.add_column(name, no_wrap=True, justify="right")
    for before, result in zip([None, *results], results, strict=False):
        new = before is None or before.users != result.users
        if before is not None and new:
            table.add_section()
        table.add_row(f"{result.users:,}" if new else "", result.mode, *_cells(result, scenario).values())
    return table


def _blocks(results: Sequence[Result], scenario: Scenario) -> RenderableType:
    shown = (block(f"{one.mode}, {one.users:,} users", _cells(one, scenario)) for one in results)
    return Group(Text(_title(results), style="italic"), *shown)


def _title(results: Sequence[Result]) -> str:
    return f"Waiting for payments, measured at NocoDB's end (seed {results[0].seed})"


def _cells(result: Result, scenario: Scenario) -> dict[str, Text]:
    limit = scenario.rate.count / scenario.rate.seconds
    late = "> " if result.missed else ""
    return {
        "req/s": Text(per_second(result.avg_rps), style=_alarm(result.avg_rps > limit)),
        "peak": Text(f"{result.peak_rps}", style=_alarm(result.peak_rps > limit)),
        "429s": Text(f"{result.refused:,}", style=_alarm(result.refused > 0)),
        "shut": Text(f"{result.locked_seconds:.0f} s", style=_alarm(result.locked_seconds > 0)),
        "missed": Text(f"{result.missed:,}", style=_alarm(result.missed > 0)),
        "median": Text(duration(result.p50_ms)),
        "99 %": Text(f"{late}{duration(result.p99_ms)}"),
        f"in {scenario.interval:g} s": _in_time(result),
        "saved": Text(saved(result)),
    }


def _in_time(result: Result) -> Text:
    share = result.within_interval
    if share is None:
        return Text("–")  # noqa: RUF001  (a dash: nobody can be judged yet)
    return Text(f"{100 * share:.0f} %", style=_alarm(share < 1))


def saved(result: Result) -> str:
    """In percent; where nothing was, how many times as many requests it took."""
    if result.reduction >= 0:
        return f"{result.reduction:.0f} %"
    times = 1 - result.reduction / 100
    return (f"{times:.1f}" if times < WHOLE else f"{times:,.0f}") + "×"  # noqa: RUF001  (as people write it)


def _legend(results: Sequence[Result], scenario: Scenario) -> str:
    more = next((saved(one) for one in results if one.reduction < 0), None)
    early = any(one.within_interval is None for one in results)
    return (
        f"peak: most in one second, {scenario.rate.count} allowed. shut: blocked after a 429. missed: paid, "
        "not told. median, 99 %: from payment to notification; who was missed counts with what he waited. "
        f"saved: against one request per user every {scenario.interval:g} s"
        + (f"; {more}: nothing saved, so many times the requests." if more else ".")
        + (f" –: nobody paid {scenario.interval:g} s ago or more." if early else "")  # noqa: RUF001
    )


def _alarm(alarming: bool) -> str:  # noqa: FBT001  (a choice of colour)
    return "bold red" if alarming else ""
