"""Measures the CPU that the watchdog costs, beside an idle loop and beside a busy one.

    python benchmarks/watchdog.py [--rounds 3] [--idle 6] [--pairs 20] [--steps 60000] [--json]

Idle: an event loop that waits, for some seconds; the CPU of the process as a share of a core. Busy: a fixed
number of short steps of 100 tasks, each with a look at the sockets in between; once without and once with the
watchdog, turn by turn in one process, which of them first changes; the CPU that the same work takes more.
Both in a new process for each round. The table shows medians of all rounds, and for busy the middle half.
A busy loop varies by more than the limit, so the beats are also measured alone: their time is what a busy
loop does more, as the thread sleeps. "polling thread" is what the watchdog does not do: a thread that looks
at the loop every 50 ms, and has to wait for the interpreter lock beside a busy loop.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.incidents import IncidentLog
from tidegate.ops.loop_watch import BEAT_INTERVAL, LoopWatch
from tidegate.ops.watchdog import Watchdog
from tidegate.settings import Settings

WAYS: Final = ("without", "watchdog", "polling thread")
TASKS: Final = 100
LIMIT: Final = 0.5  # percent of a core
CLOCK: Final = Clock()


class PollingThread:
    """The design that costs too much."""

    def start(self) -> None:
        self._stopped = threading.Event()
        threading.Thread(target=self._run, args=(self._stopped,), daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    @staticmethod
    def _run(stopped: threading.Event) -> None:
        while not stopped.wait(0.05):
            CLOCK.monotonic()


class Nothing:
    """Without: what the same work takes twice."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


def watch_of(way: str) -> Watchdog | PollingThread | Nothing:
    if way == "watchdog":
        return Watchdog(IncidentLog(CLOCK), Settings(), CLOCK)
    return PollingThread() if way == "polling thread" else Nothing()


async def idle_percent(way: str, seconds: float) -> list[float]:
    watch = watch_of(way)
    watch.start()
    await CLOCK.sleep(0.2)
    began = CLOCK.cpu()
    await CLOCK.sleep(seconds)
    used = CLOCK.cpu() - began
    watch.stop()
    return [100 * used / seconds]


async def busy_percent_more(way: str, pairs: int, steps: int) -> list[float]:
    await busy(Nothing(), steps)
    found = []
    for turn in range(pairs):
        order = (Nothing(), watch_of(way)) if turn % 2 else (watch_of(way), Nothing())
        used = [await busy(watch, steps) for watch in order]
        plain, watched = used if turn % 2 else used[::-1]
        found.append(100 * (watched / plain - 1))
    return found


async def busy(watch: Watchdog | PollingThread | Nothing, steps: int) -> float:
    watch.start()
    await CLOCK.sleep(0.02)
    began = CLOCK.cpu()
    await asyncio.gather(*(work(steps // TASKS) for _ in range(TASKS)))
    used = CLOCK.cpu() - began
    watch.stop()
    return used


async def work(steps: int) -> None:
    for _ in range(steps):
        await CLOCK.sleep(0)
        {number: str(number) for number in range(20)}


async def beat_percent(beats: int = 20_000) -> list[float]:
    """Return the share of a core that the beats take, without the wake-ups of an idle process."""
    watch = LoopWatch(IncidentLog(CLOCK), CLOCK, Settings().tidegate_loop_warn)
    watch.start()
    await CLOCK.sleep(0.2)
    began = CLOCK.cpu()
    for _ in range(beats):
        watch._next_beat.cancel()  # type: ignore[union-attr]  # noqa: SLF001  (each plans the next one)
        watch._beat()  # noqa: SLF001
    used = CLOCK.cpu() - began
    watch.stop()
    return [100 * used / beats / BEAT_INTERVAL]


def in_process(kind: str, way: str, given: argparse.Namespace) -> list[float]:
    options = ["--idle", str(given.idle), "--pairs", str(given.pairs), "--steps", str(given.steps)]
    command = [sys.executable, __file__, "--measure", kind, way, *options]
    found: list[float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)  # noqa: S603
    return found


def report(given: argparse.Namespace) -> dict[str, Any]:
    found: dict[tuple[str, str], list[float]] = {(kind, way): [] for kind in ("idle", "busy") for way in WAYS}
    for _ in range(given.rounds):
        for kind, way in found:
            found[kind, way] += in_process(kind, way, given)
    ways = {}
    for way in WAYS:
        low, middle, high = statistics.quantiles(found["busy", way], n=4)
        ways[way] = {
            "idle_percent": round(statistics.median(found["idle", way]), 3),
            "busy_percent_more": round(middle, 2),
            "busy_middle_half": [round(low, 2), round(high, 2)],
        }
    beat = statistics.median(in_process("beat", "watchdog", given)[0] for _ in range(given.rounds))
    return {
        "rounds": given.rounds,
        "load": round(os.getloadavg()[0], 1),
        "limit_percent": LIMIT,
        "beats_percent": round(beat, 3),
        "ways": ways,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=float, default=6.0)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        kind, way = given.measure
        measures: dict[str, Callable[[], Coroutine[Any, Any, list[float]]]] = {
            "idle": lambda: idle_percent(way, given.idle),
            "busy": lambda: busy_percent_more(way, given.pairs, given.steps),
            "beat": beat_percent,
        }
        print(json.dumps(asyncio.run(measures[kind]())))
        return
    found = report(given)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{given.rounds} rounds of {given.pairs} pairs, load {found['load']}; the limit is {LIMIT} %\n")
    print("| | idle, % of a core | busy, % more CPU | middle half |")
    print("|---|---|---|---|")
    for way, row in found["ways"].items():
        low, high = row["busy_middle_half"]
        more = f"{row['busy_percent_more']:+.2f} | {low:+.1f} … {high:+.1f}"
        print(f"| {way} | {row['idle_percent']:.2f} | {more} |")
    print(f"\nThe beats alone take {found['beats_percent']:.2f} % of a core.")


if __name__ == "__main__":
    main()
