"""`tidegate stress restore`: restart a bot for each number of people, in two ways, and report."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from tidegate.cli import terminal
from tidegate.cli.errors import FAILED, INTERRUPTED
from tidegate.cli.stress.restart_table import restarts_table
from tidegate.cli.stress.watching import Show, Stop, bar, quiet, stopping
from tidegate.clock import Clock
from tidegate.sim import virtual
from tidegate.sim.polling import Scenario
from tidegate.sim.polling.playing import Tick
from tidegate.sim.polling.restoring import Groups, Restart, Start, patience, restart

CROWDS = (45, 50, 100, 200, 300, 2_000)
STARTS: tuple[Start, ...] = ("at once", "staggered")


def stress(crowds: Sequence[int], *, group: int, every: float, seed: int, as_json: bool) -> int:
    """Blocks until all is played, or until Ctrl-C, and reports. Returns the exit code."""
    groups = Groups(group, every)
    scenarios = [Scenario(users=users, seed=seed) for users in crowds]
    with stopping() as stop, quiet(), bar() as show:
        restarts = [
            found for scenario in scenarios for found in _both(scenario, groups, stop, show) if not stop.asked
        ]
    passed = not stop.asked and all(found.passed for found in restarts if found.start == "staggered")
    if as_json:
        terminal.put_json(_report(restarts, groups) | {"interrupted": stop.asked, "passed": passed})
    elif restarts:
        terminal.put(restarts_table(restarts, groups, complete=not stop.asked))
    if stop.asked:
        terminal.note("tidegate: stopped by Ctrl-C: what was not finished is left out")
        return INTERRUPTED
    return 0 if passed else FAILED


def _both(scenario: Scenario, groups: Groups, stop: Stop, show: Show) -> list[Restart]:
    found = []
    for start in STARTS:
        if not stop.asked:
            tick = _tick(scenario, start, stop, show)
            found.append(virtual.run(partial(_run, scenario, start, groups, tick), seed=scenario.seed))
    return found


async def _run(scenario: Scenario, start: Start, groups: Groups, tick: Tick, clock: Clock) -> Restart:
    return await restart(scenario, start, groups, clock, tick=tick)


def _tick(scenario: Scenario, start: Start, stop: Stop, show: Show) -> Tick:
    def tick(played: float) -> bool:
        show(f"{scenario.users:,} users, {start}", played, patience(scenario, start))
        return not stop.asked

    return tick


def _report(restarts: Sequence[Restart], groups: Groups) -> dict[str, Any]:
    return {
        "group": groups.size,
        "every": groups.every,
        "restarts": [found.as_dict() for found in restarts],
    }
