"""Measures the CPU that the watchdog costs, beside an idle loop and beside a busy one.

    python benchmarks/watchdog.py [--rounds 7] [--idle 10] [--steps 600000] [--json]

Idle: an event loop that waits, for some seconds; the CPU of the process as a share of a core. Busy: a fixed
number of short steps of 100 tasks, each with a look at the sockets in between; the CPU that the same work
takes, and the difference. Each measurement is a process of its own; with and without take turns, round after
round; the table shows medians. "polling thread" is what the watchdog does not do: a thread that looks at the
loop every 50 ms, and has to wait for the interpreter lock beside a busy loop.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.incidents import IncidentLog
from tidegate.ops.watchdog import Watchdog
from tidegate.settings import Settings

WAYS: Final = ("without", "watchdog", "polling thread")
TASKS: Final = 100
LIMIT: Final = 0.5  # percent of a core


class PollingThread:
    """The design that costs too much."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(0.05):
            time.monotonic()


async def work(steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
        {number: str(number) for number in range(20)}


async def measure(way: str, *, idle: float, steps: int) -> float:
    clock = Clock()
    watch: Watchdog | PollingThread | None = None
    if way == "watchdog":
        watch = Watchdog(IncidentLog(clock), Settings(), clock)
    elif way == "polling thread":
        watch = PollingThread()
    if watch is not None:
        watch.start()
    await asyncio.sleep(0.2)
    began = clock.cpu()
    if steps:
        await asyncio.gather(*(work(steps // TASKS) for _ in range(TASKS)))
    else:
        await asyncio.sleep(idle)
    used = clock.cpu() - began
    if watch is not None:
        watch.stop()
    return used


def in_process(way: str, *, idle: float, steps: int) -> float:
    command = [sys.executable, __file__, "--measure", way, "--idle", str(idle), "--steps", str(steps)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)  # noqa: S603


def report(rounds: int, idle: float, steps: int) -> dict[str, Any]:
    used: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for way in WAYS:
            used.setdefault(("idle", way), []).append(in_process(way, idle=idle, steps=0))
            used.setdefault(("busy", way), []).append(in_process(way, idle=0, steps=steps))
    median = {key: statistics.median(values) for key, values in used.items()}
    # The speed of a machine changes from minute to minute: each round is compared with itself.
    busy = {
        way: statistics.median(
            100 * (mine / plain - 1)
            for mine, plain in zip(used["busy", way], used["busy", "without"], strict=True)
        )
        for way in WAYS
    }
    ways = {
        way: {
            "idle_percent": round(100 * median["idle", way] / idle, 3),
            "busy_seconds": round(median["busy", way], 3),
            "busy_percent_more": round(busy[way], 2),
        }
        for way in WAYS
    }
    return {"rounds": rounds, "load": round(os.getloadavg()[0], 1), "limit_percent": LIMIT, "ways": ways}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--idle", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=600_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(asyncio.run(measure(given.measure, idle=given.idle, steps=given.steps)))
        return
    found = report(given.rounds, given.idle, given.steps)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(f"medians of {given.rounds} rounds, load {found['load']}; the limit is {LIMIT} %\n")
    print("|                | idle, % of a core | busy, CPU s | busy, % more |")
    print("|---|---|---|---|")
    for way, row in found["ways"].items():
        print(
            f"| {way:14} | {row['idle_percent']:17.2f} | {row['busy_seconds']:11.2f} |"
            f" {row['busy_percent_more']:12.2f} |"
        )


if __name__ == "__main__":
    main()
