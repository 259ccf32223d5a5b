"""`tidegate stress polling`: play every scenario in every mode asked for, and report."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from tidegate.cli import loop, terminal
from tidegate.cli.errors import FAILED, INTERRUPTED
from tidegate.cli.stress.drawing import reserve, save
from tidegate.cli.stress.report import report_of
from tidegate.cli.stress.table import results_table
from tidegate.cli.stress.watching import Show, Stop, bar, quiet, stopping
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.sim import virtual
from tidegate.sim.polling import MODES, Mode, Result, Scenario
from tidegate.sim.polling.playing import Tick, run

CROWDS = (100, 300, 500, 1_000, 2_000)


def check(*, users: int | None, scenarios: bool, mode: Mode | Literal["all"], batch_size: int | None) -> None:
    """Raises BadInputError for an option that another one makes useless."""
    if scenarios and users is not None:
        raise BadInputError("--scenarios plays its own numbers of users: leave out --users, or --scenarios")
    if batch_size is not None and mode not in {"batch", "all"}:
        raise BadInputError(
            f"--batch-size is for batch mode, not for {mode}: leave it out, or use --mode batch"
        )


def modes(wanted: Mode | Literal["all"]) -> Sequence[Mode]:
    return MODES if wanted == "all" else (wanted,)


def crowds(scenario: Scenario) -> list[Scenario]:
    """The scenarios of the table: the same, for 100 to 2,000 people."""
    return [replace(scenario, users=users) for users in CROWDS]


def stress(
    scenarios: Sequence[Scenario], wanted: Sequence[Mode], *, real_time: bool, svg: Path | None, as_json: bool
) -> int:
    """Blocks until all is played, or until Ctrl-C, and reports. Returns the exit code."""
    if svg is not None:
        reserve(svg)
    if real_time:
        terminal.note(f"In real time: {sum(s.duration for s in scenarios):g} s (Ctrl-C ends it)")
    results, interrupted = _play(scenarios, wanted, real_time=real_time)
    report = report_of(scenarios, results, interrupted=interrupted) | {"real_time": real_time}
    if as_json:
        terminal.put_json(report)
    elif results:
        terminal.put(results_table(results, scenarios[0], complete=not interrupted))
    if svg is not None and not interrupted:
        save(svg, results, scenarios[0])
    if interrupted:
        unsaved = "" if svg is None else f"; {svg} was not written"
        terminal.note(
            f"tidegate: stopped by Ctrl-C: the figures are those of the part that was played{unsaved}"
        )
        return INTERRUPTED
    return 0 if report["passed"] else FAILED


def _play(
    scenarios: Sequence[Scenario], wanted: Sequence[Mode], *, real_time: bool
) -> tuple[list[Result], bool]:
    """What was measured, and whether somebody stopped it before the end."""
    results: list[Result] = []
    with stopping() as stop, quiet(), bar() as show:
        for scenario in scenarios:
            if stop.asked:
                break
            if real_time:
                results += loop.run(_at_once(scenario, wanted, stop, show))
            else:
                results += _one_by_one(scenario, wanted, stop, show)
    return results, stop.asked


def _one_by_one(scenario: Scenario, wanted: Sequence[Mode], stop: Stop, show: Show) -> Iterator[Result]:
    """In virtual time; nothing that is played waits."""
    for mode in wanted:
        if not stop.asked:
            tick = _tick(scenario, mode, stop, show)
            yield virtual.run(partial(_run, scenario, mode, tick), seed=scenario.seed)


async def _at_once(scenario: Scenario, wanted: Sequence[Mode], stop: Stop, show: Show) -> list[Result]:
    """In real time, each mode with a server of its own."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                run(scenario, mode, Clock(), tick=_tick(scenario, mode, stop, show), over_http=True)
            )
            for mode in wanted
        ]
    return [task.result() for task in tasks]


async def _run(scenario: Scenario, mode: Mode, tick: Tick, clock: Clock) -> Result:
    return await run(scenario, mode, clock, tick=tick)


def _tick(scenario: Scenario, mode: Mode, stop: Stop, show: Show) -> Tick:
    def tick(played: float) -> bool:
        show(f"{mode}, {scenario.users:,} users", played, scenario.duration)
        return not stop.asked

    return tick
