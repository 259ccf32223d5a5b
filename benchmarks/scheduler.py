"""How many claims and settlements a second the schedule takes, alone and inside the store in memory.

    python benchmarks/scheduler.py [--json]

Every limit is checked and none binds: one bot with a limit of a billion a second, each line a private chat of
its own under 1/1. Messages are of high priority, as the spacing of the others would make batches of one.
Batches of 100, on real time. Each figure comes from a fresh process: the median of three. A second is one of
CPU time, so that others on the machine do not count; bytes are the growth of resident memory (RSS) while the
lines were put. For the schedule that is entries with their ids, for the store the whole messages too.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import uvloop

from tidegate.clock import Clock
from tidegate.model import BotId, Delivered, Message, Priority, Rate, Settlement, TicketId
from tidegate.outbox.lanes import HIGH, Entry
from tidegate.outbox.schedule import Schedule
from tidegate.pacing.rules import Rules
from tidegate.stores.memory.outbox import MemoryOutbox

SIZES: Final = (10_000, 100_000, 1_000_000)
BATCH: Final = 100
MOST: Final = 50_000  # claimed and settled in one measurement
ROUNDS: Final = 3
TARGET: Final = 80_000
RULES: Final = Rules(bot=Rate(10**9, 1))
BOT: Final = BotId(42)


def rss() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def schedule_alone(lines: int) -> tuple[float, float]:
    """Steps a second, bytes per line."""
    before = rss()
    schedule = Schedule(RULES)
    for i in range(lines):
        entry = Entry(f"id-{i}", schedule.lane(BOT, 1 + i, "send"), HIGH, 1)
        schedule.add(entry, time.monotonic())
    size = (rss() - before) / lines
    done, started = 0, time.process_time()
    while done < min(lines, MOST):
        now = time.monotonic()
        schedule.wake(now)
        claimed = schedule.claim(now, BATCH)
        assert len(claimed) == BATCH
        now = time.monotonic()
        for entry in claimed:
            schedule.release(entry, now)
            schedule.settle_lane(entry.lane, now)
        done += BATCH
    return done / (time.process_time() - started), size


async def store_in_memory(lines: int) -> tuple[float, float]:
    before = rss()
    outbox = MemoryOutbox(Clock(), RULES)
    for at in range(0, lines, 1_000):
        await outbox.put([_message(i) for i in range(at, at + 1_000)])
    size = (rss() - before) / lines
    done, started = 0, time.process_time()
    while done < min(lines, MOST):
        claims = await outbox.claim(BATCH)
        assert len(claims) == BATCH
        await outbox.settle([Settlement(claim, Delivered({"message_id": 1})) for claim in claims])
        done += BATCH
    return done / (time.process_time() - started), size


def _message(i: int) -> Message:
    return Message(
        id=TicketId(f"id-{i}"),
        bot=BOT,
        chat_id=1 + i,
        method="sendMessage",
        params={"text": "Hello"},
        priority=Priority.HIGH,
    )


def measure(subject: str, lines: int) -> dict[str, float]:
    """The median of fresh processes."""
    found: list[list[float]] = []
    for _ in range(ROUNDS):
        command = [sys.executable, __file__, "--one", subject, str(lines)]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))  # noqa: S603
    rates, sizes = zip(*found, strict=True)
    return {"per_second": round(statistics.median(rates)), "bytes_per_line": round(statistics.median(sizes))}


def main() -> None:
    results = {
        subject: {lines: measure(subject, lines) for lines in SIZES} for subject in ("schedule", "store")
    }
    if "--json" in sys.argv:
        print(json.dumps(results))
        return
    most = max(found["per_second"] for curve in results.values() for found in curve.values())
    print(f"{'claim + settle':<16}{'waiting lines':>15}{'a second':>12}{'bytes a line':>14}")
    for subject, curve in results.items():
        for lines, found in curve.items():
            bar = "█" * round(40 * found["per_second"] / most)
            print(f"{subject:<16}{lines:>15,}{found['per_second']:>12,}{found['bytes_per_line']:>14,}  {bar}")
    slowest = min(found["per_second"] for found in results["schedule"].values())
    print(f"target for the schedule: {TARGET:,} a second; slowest: {slowest:,}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        subject, lines = sys.argv[2], int(sys.argv[3])
        alone = subject == "schedule"
        print(json.dumps(schedule_alone(lines) if alone else uvloop.run(store_in_memory(lines))))
    else:
        main()
