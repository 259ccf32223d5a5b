"""What pacing costs and what it saves: Tidegate and others against a Telegram whose limits count.

    python benchmarks/pacing.py [scenario …] [--small] [--json]

Over HTTP on loopback, 5 to 40 ms each way, the strict default limits. Each sender has a process and
a simulator of its own; the senders of a scenario run at the same time, and so do the scenarios for Tidegate
alone. All of it takes about thirteen minutes, with --small about four.

`seconds` run from the moment at which a sender has all messages to the last answer; r is the mean round trip
that Tidegate's client measured. `share` compares with an ideal sender that costs nothing, never hesitates and
does n/(W+r) in every limit, in order of arrival (`pacing_ideal.py`): its calls leave (W+r)/n apart, so that
3,000 messages take 3,000·(1+r)/30 seconds. That is the target's reading. `strict share` is the hardest: the
ideal sender fires each window at once, the first too. Tidegate spaces what it sends, so that replies find
gaps, and so loses up to a window at the start, which shows where a run is short.
What the simulator saw is what is counted.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import uvloop
from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pacing_alone import ALONE, Result
from benchmarks.pacing_compared import COMPARISONS, compare
from benchmarks.pacing_processes import RUN, child, die_with_parent, tell
from benchmarks.pacing_senders import SENDERS, Tally

Run = tuple[str, str]  # a scenario, and who or what runs in it


async def run_here(scenario: str, variant: str, *, small: bool) -> None:
    """A child's whole life: one run, progress on the way, the result at the end."""
    die_with_parent()
    logging.disable(logging.WARNING)
    tally = Tally()

    async def show() -> None:
        while True:
            await asyncio.sleep(0.5)
            tell(done=tally.done)

    showing = asyncio.create_task(show())
    if scenario in COMPARISONS:
        result = await compare(scenario, variant, tally, small=small)
    else:
        result = await ALONE[scenario].run(variant, tally, small=small)
    showing.cancel()
    tell(result=result)


async def run_child(run: Run, progress: Progress, *, small: bool) -> Result:
    bar = progress.add_task(f"{run[0]}: {run[1]}", total=None)
    result: Result = {"failed": True, "passed": False}
    async with child(RUN, "--run", *run, *(["--small"] if small else [])) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            said = json.loads(line)
            if "total" in said:
                progress.update(bar, total=said["total"])
            elif "done" in said:
                progress.update(bar, completed=said["done"])
            else:
                result = said["result"]
    progress.update(bar, visible=False)
    return result


def rounds(scenarios: Iterable[str]) -> list[list[Run]]:
    """Which runs go together, one round after the other."""
    planned: list[list[Run]] = []
    alone: list[Run] = []
    for scenario in scenarios:
        if scenario in ALONE:
            alone += [(scenario, variant) for variant in ALONE[scenario].variants]
            continue
        together = [(scenario, sender) for sender in SENDERS]
        planned += [[run] for run in together] if COMPARISONS[scenario].apart else [together]
    return [*planned, alone] if alone else planned


async def run_all(scenarios: Iterable[str], progress: Progress, *, small: bool) -> dict[Run, Result]:
    results: dict[Run, Result] = {}
    for together in rounds(scenarios):
        found = await asyncio.gather(*(run_child(run, progress, small=small) for run in together))
        results |= dict(zip(together, found, strict=True))
    return results


def table(scenario: str, results: dict[Run, Result]) -> Table:
    """One scenario, in Markdown."""
    labels = {name: name for name in SENDERS} if scenario in COMPARISONS else ALONE[scenario].variants
    rows = {label: results[scenario, variant] for variant, label in labels.items()}
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    shown = Table("", *(key.replace("_", " ") for key in keys), box=MARKDOWN)
    for label, row in rows.items():
        shown.add_row(label, *(cell(key, row.get(key)) for key in keys))
    return shown


def cell(key: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, list):
        return " · ".join(cell(key, each) for each in value)
    if "share" in key or key == "of_real_limit":
        return f"{value:.2%}"
    return f"{value:,}"


def main() -> None:
    names = [*COMPARISONS, *ALONE]
    parser = argparse.ArgumentParser(description="Pacing, compared.")
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=", ".join(names))
    parser.add_argument("--small", action="store_true", help="a tenth of the size")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    unknown = set(options.scenarios) - set(names)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    scenarios = [name for name in names if name in (options.scenarios or names)]
    load_before = os.getloadavg()[0]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        results = uvloop.run(run_all(scenarios, progress, small=options.small))
    if options.json:
        print(json.dumps([{"scenario": s, "run": v, **result} for (s, v), result in results.items()]))
        return
    console = Console(width=220)
    for scenario in scenarios:
        title = COMPARISONS[scenario].title if scenario in COMPARISONS else ALONE[scenario].title
        console.print(f"\n{scenario}: {title}{' (small)' if options.small else ''}", highlight=False)
        console.print(table(scenario, results), highlight=False)
    console.print(f"\nload: {load_before:.2f} before, {os.getloadavg()[0]:.2f} after", highlight=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        uvloop.run(run_here(*sys.argv[2:4], small="--small" in sys.argv))
    else:
        main()
