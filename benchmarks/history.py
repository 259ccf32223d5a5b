"""What history costs a worker: messages of a SQLite file, delivered over a wire that answers at once.

    python benchmarks/history.py [--messages 20000] [--rounds 5] [--rate 1000] [--http] [--json]

Runs without and with the recorder take turns, each in a fresh process and folder; history is in the SQLite
file beside the store, texts and their words included. `delivered` counts until the outbox is empty, and
`recorded` until the last row is written, too. `cost` is the median of the ratios within a round, so that a
machine that gets slower meanwhile does not count. 10,000 chats, no limit binds; with `--rate`, that of the
bot is so many a second, as 30 bots at Telegram's limit make together. With `--http` each message is a request
on a connection, as to Telegram, to a server of its own process that answers at once.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.gateway import upstream
from benchmarks.outbox_cycle import DeafWire, fill
from benchmarks.outbox_subject import RULES, STORE, Figures, Watch

from tidegate import Tidegate
from tidegate.model import Rate

TARGET: Final = 0.10  # of the throughput
SUBJECTS: Final = {"off": False, "on": True}

Row = dict[str, Any]


async def deliver(folder: Path, number: int, rate: int, port: int, *, recorded: bool) -> Figures:
    """Without a port, the wire answers at once."""
    delivering, recording = Watch(), Watch()
    rules = msgspec.structs.replace(RULES, bot=Rate(rate, 1)) if rate else RULES
    gate = Tidegate(folder / STORE, rules=rules, wire=None if port else DeafWire())
    gate.add_bot("42:token", api_url=f"http://127.0.0.1:{port}" if port else None)
    if recorded:
        gate.record_history()
    async with gate:
        await gate.history.opened()  # imports libraries and makes tables, once in the life of a process
        await gate.outbox.start_sending()
        await fill(gate.outbox, number)
        with recording:
            with delivering:
                async with gate.worker():
                    await gate.drained()
            await gate.core.close()  # writes the last rows
    async with gate:
        rows = (await gate.history.stats()).messages
    assert rows == (number if recorded else 0), rows
    return {
        "delivered": number / delivering.seconds,
        "recorded": number / recording.seconds,
        "cpu_us": 1e6 * delivering.cpu / number,
    }


def run_child(subject: str, *numbers: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="tidegate-history-") as folder:
        command = [sys.executable, str(Path(__file__).resolve()), "--one", subject, *map(str, numbers)]
        done = subprocess.run(command, check=True, capture_output=True, cwd=folder)  # noqa: S603
        figures: Figures = json.loads(done.stdout)
    return figures


def measure(number: int, rounds: int, rate: int, port: int) -> list[Row]:
    found: dict[str, list[Figures]] = {name: [] for name in SUBJECTS}
    for round_ in range(rounds):
        order = list(SUBJECTS) if round_ % 2 else list(SUBJECTS)[::-1]
        for name in order:
            found[name].append(run_child(name, number, rate, port))
    rows: list[Row] = [
        {"history": name, **{key: statistics.median(run[key] for run in runs) for key in runs[0]}}
        for name, runs in found.items()
    ]
    for key in ("delivered", "recorded"):
        pairs = zip(found["off"], found["on"], strict=True)
        rows[1][f"cost_{key}"] = 1 - statistics.median(on[key] / off["delivered"] for off, on in pairs)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="What history costs a worker.")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=0, help="messages a second (default: as many as can be)")
    parser.add_argument(
        "--http", action="store_true", help="over connections, to a server of its own process"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    with upstream() if options.http else nullcontext(0) as port:
        rows = measure(options.messages, options.rounds, options.rate, port)
    if options.json:
        print(json.dumps(rows))
        return
    shown = Table("history", "delivered/s", "recorded/s", "CPU µs", "cost", box=MARKDOWN)
    for row in rows:
        cost = f"{row['cost_delivered']:.1%}" if "cost_delivered" in row else ""
        shown.add_row(
            row["history"],
            f"{row['delivered']:,.0f}",
            f"{row['recorded']:,.0f}",
            f"{row['cpu_us']:.1f}",
            cost,
        )
    console = Console(width=100, highlight=False)
    console.print(shown)
    cost = rows[1]["cost_delivered"]
    console.print(f"target: under {TARGET:.0%} of the throughput: {'met' if cost < TARGET else 'NOT MET'}")
    console.print(f"load: {load_before:.2f} before, {os.getloadavg()[0]:.2f} after")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        number, rate, port = map(int, sys.argv[3:6])
        print(json.dumps(uvloop.run(deliver(Path.cwd(), number, rate, port, recorded=SUBJECTS[sys.argv[2]]))))
    else:
        main()
