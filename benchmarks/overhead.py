"""Measures the processor time of a paced call, beyond that of the bot library.

    python benchmarks/overhead.py [aiogram] [ptb] [--rounds 21] [--json]

One process for each library, with every gate open all the time: the plain bot and those with a gate take
turns, round after round, with the same calls to 1,000 chats and a network that answers at once. The figures
are medians of the rounds, in µs of CPU for each call, all threads of the process included; `beyond` is the
median of the differences within a round, so that a machine that gets slower meanwhile does not count. Others
on the machine make every call dearer, by the caches they take: `at best` compares the quietest rounds.
The limits never bind. AIORateLimiter is python-telegram-bot's own, for comparison.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.overhead_subjects import Call, aiogram, aiogram_beside_a_broadcast, network, ptb

LIBRARIES: Final = {"aiogram": (aiogram, aiogram_beside_a_broadcast), "ptb": (ptb,)}
TARGET: Final = 60.0  # µs beyond aiogram's own
CHATS: Final = 1_000
CALLS: Final = 1_000  # in a round
IN_FLIGHT: Final = (1, 50)

Row = dict[str, Any]


async def cpu_of(call: Call, in_flight: int) -> float:
    """Return the microseconds for each of many calls."""
    numbers = iter(range(CALLS))
    network.pause_after = max(IN_FLIGHT) // in_flight

    async def caller() -> None:
        for number in numbers:
            await call(1 + number % CHATS)

    started = time.process_time()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return 1e6 * (time.process_time() - started) / CALLS


async def measure(subjects: Mapping[str, Call], in_flight: int, rounds: int) -> list[Row]:
    found: dict[str, list[float]] = {name: [] for name in subjects}
    for round_ in range(-1, rounds):  # the first warms up
        for name, call in subjects.items():
            microseconds = await cpu_of(call, in_flight)
            if round_ >= 0:
                found[name].append(microseconds)
    return [
        {
            "bot": name,
            "in_flight": in_flight,
            "cpu_us": round(statistics.median(found[name]), 1),
            "beyond_us": round(statistics.median(map(float.__sub__, found[name], found["plain"])), 1),
            "at_best_us": round(quietest(found[name]) - quietest(found["plain"]), 1),
        }
        for name in subjects
    ]


def quietest(rounds: list[float]) -> float:
    return statistics.quantiles(rounds, n=10)[0]


async def run_here(library: str, rounds: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="tidegate-overhead-") as folder:
        for opening in LIBRARIES[library]:
            async with opening(Path(folder)) as subjects:
                for in_flight in IN_FLIGHT:
                    rows += await measure(subjects, in_flight, rounds)
    return rows


def run_child(library: str, rounds: int) -> list[Row]:
    command = [sys.executable, __file__, "--one", library, str(rounds)]
    rows: list[Row] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603
    return rows


def table(rows: list[Row]) -> Table:
    """Return the table of one library, in Markdown."""
    shown = Table("", "in flight", "CPU µs", "beyond", "at best", box=MARKDOWN)
    for row in rows:
        differences = (row["beyond_us"], row["at_best_us"]) if row["bot"] != "plain" else ()
        shown.add_row(row["bot"], str(row["in_flight"]), *map("{:.1f}".format, (row["cpu_us"], *differences)))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU of a paced call, beyond the library's own.")
    parser.add_argument("libraries", nargs="*", choices=[[], *LIBRARIES], metavar="library")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    results = {name: run_child(name, options.rounds) for name in options.libraries or LIBRARIES}
    if options.json:
        print(json.dumps(results))
        return
    console = Console(width=120, highlight=False)
    for library, rows in results.items():
        console.print(f"\n{library}")
        console.print(table(rows))
    measured = [row["beyond_us"] for row in results.get("aiogram", []) if row["bot"] in {"memory", "file"}]
    if measured:
        met = "met" if max(measured) <= TARGET else "NOT MET"
        console.print(f"target: {TARGET:.0f} µs beyond aiogram's own; the most is {max(measured):.1f}: {met}")
    console.print(f"load: {load_before:.2f} before, {os.getloadavg()[0]:.2f} after")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(uvloop.run(run_here(sys.argv[2], int(sys.argv[3])))))
    else:
        main()
