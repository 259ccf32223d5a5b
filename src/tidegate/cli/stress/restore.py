"""`tidegate stress restore`: restart a bot for each number of people, in two ways, and report."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.errors import FAILED, INTERRUPTED
from tidegate.cli.progress import sparkline
from tidegate.cli.stress.playback import (
    FittingTable,
    ShowPlayed,
    StopFlag,
    cell_block,
    play_bar,
    quiet,
    stopping,
)
from tidegate.clock import Clock
from tidegate.sim import virtual_time
from tidegate.sim.polling import PollingScenario
from tidegate.sim.polling.restart import RestartReport, RestoreGroups, Start, longest_run, run_restart
from tidegate.sim.polling.simulation import Tick

SECONDS_SHOWN = 14
PICTURE = f"requests, {SECONDS_SHOWN} s"
TOP = 10  # requests in a second of a full bar


def restarts_table(
    restarts: Sequence[RestartReport], groups: RestoreGroups, *, complete: bool = True
) -> RenderableType:
    """Show the restarts in 80 columns, or in blocks. A run that was stopped is not judged."""
    title = f"Restarts: groups of {groups.size}, {groups.every:g} s apart (seed {restarts[0].seed})"
    return Group(
        FittingTable(_table(restarts, title), _blocks(restarts, title)),
        Text(_legend(), style="dim"),
        _seconds(restarts),
        Text(_verdict(restarts) if complete else ""),
    )


def _table(restarts: Sequence[RestartReport], title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, title=title, title_justify="left")
    table.add_column("users", no_wrap=True, justify="right")
    table.add_column("start", no_wrap=True, style="bold")
    for name in _cells(restarts[0]):
        table.add_column(name, no_wrap=True, justify="left" if name == PICTURE else "right")
    for before, found in zip([None, *restarts], restarts, strict=False):
        new = before is None or before.users != found.users
        if before is not None and new:
            table.add_section()
        table.add_row(f"{found.users:,}" if new else "", found.start, *_cells(found).values())
    return table


def _blocks(restarts: Sequence[RestartReport], title: str) -> RenderableType:
    shown = (cell_block(f"{found.start}, {found.users:,} users", _cells(found)) for found in restarts)
    return Group(Text(title, style="italic"), *shown)


def _cells(found: RestartReport) -> dict[str, Text]:
    style = "bold red" if found.refused else ""
    return {
        "groups": Text(f"{found.groups}"),
        "restored": Text(_after(found.restored_seconds, found.virtual_seconds)),
        "all asked": Text(_after(found.asked_seconds, found.virtual_seconds)),
        "peak": Text(f"{found.peak_rps:,}", style=style),
        "429s": Text(f"{found.refused:,}", style=style),
        PICTURE: Text(sparkline(found.per_second[:SECONDS_SHOWN], TOP), style=style or "green"),
    }


def _after(seconds: float | None, watched: float) -> str:
    return f"> {watched:.0f} s" if seconds is None else f"{seconds:.1f} s"


def _legend() -> str:
    return (
        "restored: everybody's polling has begun. all asked: the API has answered once for everybody. "
        f"peak: most requests in one second, 5 allowed; a full bar is {TOP} or more."
    )


def _verdict(restarts: Sequence[RestartReport]) -> str:
    bad = [found for found in restarts if found.start == "staggered" and not found.passed]
    if not bad:
        return "passed: staggered, nobody was refused, and everybody was asked for"
    return "failed: staggered, " + ", ".join(
        f"{found.users:,} users: {found.refused:,} refused" for found in bad
    )


def _seconds(restarts: Sequence[RestartReport]) -> RenderableType:
    """Show a staggered start second by second, as numbers."""
    found = next((one for one in restarts if one.start == "staggered"), None)
    if found is None:
        return Text()
    rows = (("restored", found.restored_per_second), ("requests", found.per_second))
    return Group(
        *(Text(f"{name} per second, {found.users:,} users: {_first(counts)}") for name, counts in rows)
    )


def _first(counts: Sequence[int]) -> str:
    rest = " …" if len(counts) > SECONDS_SHOWN else ""
    return " ".join(map(str, counts[:SECONDS_SHOWN])) + rest


CROWDS = (45, 50, 100, 200, 300, 2_000)
STARTS: tuple[Start, ...] = ("at once", "staggered")


def stress(crowds: Sequence[int], *, group: int, every: float, seed: int, as_json: bool) -> int:
    """Play all restarts, or until Ctrl-C, and print the report. Return the exit code."""
    groups = RestoreGroups(group, every)
    scenarios = [PollingScenario(users=users, seed=seed) for users in crowds]
    with stopping() as stop, quiet(), play_bar() as show:
        restarts = [
            found for scenario in scenarios for found in _both(scenario, groups, stop, show) if not stop.asked
        ]
    passed = not stop.asked and all(found.passed for found in restarts if found.start == "staggered")
    report = _report(restarts, groups) | {"interrupted": stop.asked, "passed": passed}
    tables = [restarts_table(restarts, groups, complete=not stop.asked)] if restarts else []
    terminal.report(report, *tables, as_json=as_json)
    if stop.asked:
        terminal.note("tidegate: stopped by Ctrl-C: what was not finished is left out")
        return INTERRUPTED
    return 0 if passed else FAILED


def _both(
    scenario: PollingScenario, groups: RestoreGroups, stop: StopFlag, show: ShowPlayed
) -> list[RestartReport]:
    found = []
    for start in STARTS:
        if not stop.asked:
            tick = _tick(scenario, start, stop, show)
            found.append(virtual_time.run(partial(_run, scenario, start, groups, tick), seed=scenario.seed))
    return found


async def _run(
    scenario: PollingScenario, start: Start, groups: RestoreGroups, tick: Tick, clock: Clock
) -> RestartReport:
    return await run_restart(scenario, start, groups, clock, tick=tick)


def _tick(scenario: PollingScenario, start: Start, stop: StopFlag, show: ShowPlayed) -> Tick:
    def tick(played: float) -> bool:
        show(f"{scenario.users:,} users, {start}", played, longest_run(scenario, start))
        return not stop.asked

    return tick


def _report(restarts: Sequence[RestartReport], groups: RestoreGroups) -> dict[str, Any]:
    return {
        "group": groups.size,
        "every": groups.every,
        "restarts": [found.as_dict() for found in restarts],
    }
