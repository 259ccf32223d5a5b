"""`tidegate stress polling`: play every scenario in every mode asked for, and report."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, terminal
from tidegate.cli.errors import FAILED, INTERRUPTED
from tidegate.cli.stress.chart import chart, duration_text, rate_text
from tidegate.cli.stress.playback import (
    FittingTable,
    ShowPlayed,
    StopFlag,
    cell_block,
    play_bar,
    quiet,
    stopping,
)
from tidegate.cli.svg import reserve, save
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.sim import virtual_time
from tidegate.sim.polling import MODES, OURS, Mode, PollingReport, PollingScenario
from tidegate.sim.polling.simulation import Tick, run_scenario


def report_of(
    scenarios: Sequence[PollingScenario], results: Sequence[PollingReport], *, interrupted: bool
) -> dict[str, Any]:
    """Build the report: `scenario` and `modes`, or a list of these as `scenarios`. Only Tidegate's modes can
    fail; what was stopped has not passed.
    """
    ours = [result for result in results if result.mode in OURS]
    passed = not interrupted and all(result.passed for result in ours)
    played = [_scenario_report(scenario, results) for scenario in scenarios]
    report = played[0] if len(played) == 1 else {"scenarios": played}
    return report | {"interrupted": interrupted, "passed": passed}


def _scenario_report(scenario: PollingScenario, results: Sequence[PollingReport]) -> dict[str, Any]:
    return {
        "scenario": {
            "users": scenario.users,
            "duration": scenario.duration,
            "interval": scenario.interval,
            "batch_size": scenario.batch_size,
            "rate": str(scenario.rate),
            "block": scenario.block,
            "latency_ms": list(scenario.latency),
            "seed": scenario.seed,
        },
        "modes": {result.mode: result.as_dict() for result in results if result.users == scenario.users},
    }


WORDS = {
    "refused": "429s came",
    "doubled": "somebody was told twice",
    "early": "somebody was told who had not paid",
    "avg_rps": "too many requests",
    "reduction": "more requests than asking for each",
    "within_interval": "somebody was told too late",
}
FRUGAL: Sequence[Mode] = ("batch", "delta")


def verdict(results: Sequence[PollingReport]) -> list[str]:
    """Return the lines that judge Tidegate's modes."""
    ours = [result for result in results if result.mode in OURS]
    bad = [f"failed: {one.mode}, {one.users:,} users: {_why(one)}" for one in ours if one.flaws]
    lines = bad or [f"passed: no 429, nobody told twice{_modes_in_time(ours)}"] * bool(ours)
    slow = [one for one in ours if one.mode == "paced" and one.within_interval not in {None, 1}]
    if slow:
        lines.append(f"paced keeps the limit, but is too slow for {_users(slow)}: use batch or delta")
    eager = [one for one in ours if one.mode == "delta" and one.reduction < 0 and not one.flaws]
    if eager:
        lines.append(
            f"delta made more requests than asking for each would, for {_users(eager)}: those at the start, "
            "to read who waits, count too"
        )
    return lines


def _modes_in_time(ours: Sequence[PollingReport]) -> str:
    modes = [mode for mode in FRUGAL if any(one.mode == mode for one in ours)]
    return f"; {' and '.join(modes)} told everybody in time, with few requests" if modes else ""


def _users(results: Sequence[PollingReport]) -> str:
    return ", ".join(f"{one.users:,}" for one in results) + " users"


def _why(result: PollingReport) -> str:
    return ", ".join(WORDS[flaw] for flaw in result.flaws)


WHOLE = 10  # from this factor on, without a decimal


def results_table(
    results: Sequence[PollingReport], scenario: PollingScenario, *, complete: bool = True
) -> RenderableType:
    """Show the results in 80 columns, or in blocks. A run that was stopped is not judged."""
    return Group(
        FittingTable(_table(results, scenario), _blocks(results, scenario)),
        Text(_legend(results, scenario), style="dim"),
        *map(Text, verdict(results) if complete else []),
    )


def _table(results: Sequence[PollingReport], scenario: PollingScenario) -> Table:
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


def _blocks(results: Sequence[PollingReport], scenario: PollingScenario) -> RenderableType:
    shown = (cell_block(f"{one.mode}, {one.users:,} users", _cells(one, scenario)) for one in results)
    return Group(Text(_title(results), style="italic"), *shown)


def _title(results: Sequence[PollingReport]) -> str:
    return f"Waiting for payments, measured at NocoDB's end (seed {results[0].seed})"


def _cells(result: PollingReport, scenario: PollingScenario) -> dict[str, Text]:
    limit = scenario.rate.count / scenario.rate.seconds
    late = "> " if result.missed else ""
    return {
        "req/s": Text(rate_text(result.avg_rps), style=_alarm(result.avg_rps > limit)),
        "peak": Text(f"{result.peak_rps}", style=_alarm(result.peak_rps > limit)),
        "429s": Text(f"{result.refused:,}", style=_alarm(result.refused > 0)),
        "shut": Text(f"{result.locked_seconds:.0f} s", style=_alarm(result.locked_seconds > 0)),
        "missed": Text(f"{result.missed:,}", style=_alarm(result.missed > 0)),
        "median": Text(duration_text(result.p50_ms)),
        "99 %": Text(f"{late}{duration_text(result.p99_ms)}"),
        f"in {scenario.interval:g} s": _in_time(result),
        "saved": Text(saved(result)),
    }


def _in_time(result: PollingReport) -> Text:
    share = result.within_interval
    if share is None:
        return Text("–")  # noqa: RUF001  (a dash: nobody can be judged yet)
    return Text(f"{100 * share:.0f} %", style=_alarm(share < 1))


def saved(result: PollingReport) -> str:
    """Return the saving in percent; if there is none, the factor of more requests."""
    if result.reduction >= 0:
        return f"{result.reduction:.0f} %"
    times = 1 - result.reduction / 100
    return (f"{times:.1f}" if times < WHOLE else f"{times:,.0f}") + "×"  # noqa: RUF001  (as people write it)


def _legend(results: Sequence[PollingReport], scenario: PollingScenario) -> str:
    more = next((saved(one) for one in results if one.reduction < 0), None)
    early = any(one.within_interval is None for one in results)
    return (
        f"peak: most in one second, {scenario.rate.count} allowed. shut: blocked after a 429. missed: paid, "
        "not told. median, 99 %: from payment to notification; the missed count with their wait so far. "
        f"saved: against one request per user every {scenario.interval:g} s"
        + (f"; {more}: nothing saved, so many times the requests." if more else ".")
        + (f" –: nobody paid {scenario.interval:g} s ago or more." if early else "")  # noqa: RUF001
    )


def _alarm(alarming: bool) -> str:  # noqa: FBT001  (a choice of colour)
    return "bold red" if alarming else ""


CROWDS = (100, 300, 500, 1_000, 2_000)


def check(*, users: int | None, scenarios: bool, mode: Mode | Literal["all"], batch_size: int | None) -> None:
    """Raise BadInputError for an option that another one makes useless."""
    if scenarios and users is not None:
        raise BadInputError("--scenarios plays its own numbers of users: leave out --users, or --scenarios")
    if batch_size is not None and mode not in {"batch", "all"}:
        raise BadInputError(
            f"--batch-size is for batch mode, not for {mode}: leave it out, or use --mode batch"
        )


def modes(wanted: Mode | Literal["all"]) -> Sequence[Mode]:
    return MODES if wanted == "all" else (wanted,)


def crowds(scenario: PollingScenario) -> list[PollingScenario]:
    """Return the same scenario for 100 to 2,000 people."""
    return [replace(scenario, users=users) for users in CROWDS]


def stress(
    scenarios: Sequence[PollingScenario],
    wanted: Sequence[Mode],
    *,
    real_time: bool,
    svg: Path | None,
    as_json: bool,
) -> int:
    """Play all scenarios, or until Ctrl-C, and print the report. Return the exit code."""
    if svg is not None:
        reserve(svg)
    if real_time:
        terminal.note(f"In real time: {sum(s.duration for s in scenarios):g} s (Ctrl-C stops it)")
    results, interrupted = _play(scenarios, wanted, real_time=real_time)
    report = report_of(scenarios, results, interrupted=interrupted) | {"real_time": real_time}
    tables = [results_table(results, scenarios[0], complete=not interrupted)] if results else []
    terminal.report(report, *tables, as_json=as_json)
    if svg is not None and not interrupted:
        save(svg, chart(results, scenarios[0]))
    if interrupted:
        unsaved = "" if svg is None else f"; {svg} was not written"
        terminal.note(
            f"tidegate: stopped by Ctrl-C: the figures are those of the part that was played{unsaved}"
        )
        return INTERRUPTED
    return 0 if report["passed"] else FAILED


def _play(
    scenarios: Sequence[PollingScenario], wanted: Sequence[Mode], *, real_time: bool
) -> tuple[list[PollingReport], bool]:
    """Return the results, and whether it was stopped before the end."""
    results: list[PollingReport] = []
    with stopping() as stop, quiet(), play_bar() as show:
        for scenario in scenarios:
            if stop.asked:
                break
            if real_time:
                results += loop.run(_at_once(scenario, wanted, stop, show))
            else:
                results += _one_by_one(scenario, wanted, stop, show)
    return results, stop.asked


def _one_by_one(
    scenario: PollingScenario, wanted: Sequence[Mode], stop: StopFlag, show: ShowPlayed
) -> Iterator[PollingReport]:
    """Play one mode after another, in virtual time."""
    for mode in wanted:
        if not stop.asked:
            tick = _tick(scenario, mode, stop, show)
            yield virtual_time.run(partial(_run, scenario, mode, tick), seed=scenario.seed)


async def _at_once(
    scenario: PollingScenario, wanted: Sequence[Mode], stop: StopFlag, show: ShowPlayed
) -> list[PollingReport]:
    """Play all modes at once in real time, each with a server of its own."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                run_scenario(scenario, mode, Clock(), tick=_tick(scenario, mode, stop, show), over_http=True)
            )
            for mode in wanted
        ]
    return [task.result() for task in tasks]


async def _run(scenario: PollingScenario, mode: Mode, tick: Tick, clock: Clock) -> PollingReport:
    return await run_scenario(scenario, mode, clock, tick=tick)


def _tick(scenario: PollingScenario, mode: Mode, stop: StopFlag, show: ShowPlayed) -> Tick:
    def tick(played: float) -> bool:
        show(f"{mode}, {scenario.users:,} users", played, scenario.duration)
        return not stop.asked

    return tick
