"""Scenarios of `pacing.py` in which Tidegate is compared with others."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from benchmarks.pacing_ideal import Job, ideal_seconds
from benchmarks.pacing_processes import Arrival, Weather, simulator, tell
from benchmarks.pacing_senders import SENDERS, Tally

from tidegate.sim.telegram import Limits

CAP: Final = 240.0  # seconds, then a sender is stopped
SPREAD: Final = 5.0  # seconds within which the parts of one message have to arrive
SHARE: Final = 0.97
Result = dict[str, Any]


def private(*, small: bool) -> list[Job]:
    return [Job(1, 1000 + i, "Hello #0") for i in range(300 if small else 3000)]


def groups(*, small: bool) -> list[Job]:
    """A message for each group, then as many for people, and so on."""
    number, each = (3, 25) if small else (10, 60)
    return [
        job
        for i in range(each)
        for g in range(number)
        for job in (Job(1, -(1000 + g), f"Hello #{i}"), Job(1, 1000 + i * number + g, "Hello #0"))
    ]


def parts(*, small: bool) -> list[Job]:
    return [Job(1, 1000 + i, f"Part #{part}") for i in range(100 if small else 1000) for part in range(3)]


def bots(*, small: bool) -> list[Job]:
    number, each = (5, 60) if small else (20, 200)
    return [Job(1 + b, 1000 + i, "Hello #0") for i in range(each) for b in range(number)]


class Comparison(NamedTuple):
    title: str
    jobs: Callable[..., list[Job]]
    apart: bool = False  # one sender after the other: together they would need more than two cores


COMPARISONS: Final[Mapping[str, Comparison]] = {
    "private": Comparison("3,000 private chats, a message each", private),
    "groups": Comparison("10 groups with 60 messages each and 600 private chats, interleaved", groups),
    "parts": Comparison("a three-part message to 1,000 chats", parts),
    "bots": Comparison("20 bots with 200 messages each, at once", bots, apart=True),
}


async def compare(name: str, sender: str, tally: Tally, *, small: bool) -> Result:
    """Let one sender do one scenario against a simulator of its own."""
    comparison = COMPARISONS[name]
    jobs, send = comparison.jobs(small=small), SENDERS[sender]()
    tell(total=len(jobs))
    async with simulator(Weather()) as telegram:
        with suppress(TimeoutError):
            async with asyncio.timeout(CAP):
                await send(jobs, telegram.url, tally)
        complete = tally.done == len(jobs)
        seconds = (tally.latest if complete else time.perf_counter()) - tally.started
        seen = await telegram.seen()
    report = seen.report
    result: Result = {
        "messages": len(jobs),
        "seconds": round(seconds, 2),
        "refused": report["refused"],
        "out_of_order": report["out_of_order"],
        "doubled": report["doubled"],
        "undelivered": len(jobs) - (report["accepted"] - report["doubled"]),
    }
    if comparison.jobs is parts:
        result["spread"] = round(max(_spreads(seen.log)), 2)
    return result | (_judged(jobs, tally, result) if tally.trips else {})


def _judged(jobs: Sequence[Job], tally: Tally, result: Result) -> Result:
    limits, trip, seconds = Limits(), tally.round_trip, result["seconds"]
    ideal = ideal_seconds(jobs, limits, trip, spaced=True)
    burst = ideal_seconds(jobs, limits, trip, spaced=False)
    clean = not (result["refused"] or result["out_of_order"] or result["doubled"] or result["undelivered"])
    near = result.get("spread", 0.0) <= SPREAD
    return {
        "round_trip_ms": round(1000 * trip, 1),
        "ideal_seconds": round(ideal, 2),
        "share": round(ideal / seconds, 4),
        "strict_share": round(burst / seconds, 4),
        "passed": clean and near and ideal / seconds >= SHARE,
    }


def _spreads(log: Sequence[Arrival]) -> list[float]:
    """For each chat, the seconds between the first message that came in and the last."""
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    for arrival in log:
        if arrival.status == 200:
            times[arrival.bot, arrival.chat].append(arrival.at)
    return [max(each) - min(each) for each in times.values()] or [0.0]
