"""Updates that one process takes by webhook in a second, each on disk before it is acknowledged.

    python benchmarks/webhook.py [server ...] [--folder DIR] [--small] [--json]

A server and the load are processes of their own, on this machine: 100 connections that stay open, each with
its next update when the last one is answered. Tidegate keeps what it acknowledges in a file (SQLite with a
write-ahead log and synchronous=FULL) on a real disk, in `--folder` or here; those beside it keep it in
memory, and lose it when they die. The median of three rounds, each with a fresh store. At the end as many
updates are in the store as were answered with 200. If `load_cpu` comes near 1, the load is what is measured.
Uvicorn parses requests with httptools if that is installed, and with h11, which costs more, if it is not.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import uvloop
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.outbox_subject import seconds_of_fsync
from benchmarks.webhook_servers import PATH, SECRET, SERVERS, run

Figures = dict[str, float]
LABELS = {
    "tidegate": "Tidegate, on disk",
    "tidegate-handled": "Tidegate, on disk, and handled meanwhile",
    "aiogram": "aiogram (aiohttp), in memory",
    "ptb": "python-telegram-bot (Tornado), in memory",
}
CONNECTIONS, TARGET = 100, 5_000
PEERS = ("aiogram", "ptb")


def measure(name: str, folder: Path, updates: int) -> Figures:
    with subprocess.Popen(  # noqa: S603  (ourselves)
        [sys.executable, __file__, "--serve", name, str(folder)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            figures = _load(server.stdout.readline().strip(), updates)
        finally:
            server.send_signal(signal.SIGTERM)
        kept = json.loads(server.stdout.readline())
    assert kept["kept"] == figures["accepted"] == updates, (kept, figures)
    cpu = kept["cpu"] / updates
    return figures | {"cpu_us": 1e6 * cpu, "server_cpu": cpu * figures["per_second"]}


def _load(port: str, updates: int) -> Figures:
    script = str(Path(__file__).with_name("webhook_load.py"))
    command = [sys.executable, script, port, PATH, SECRET, str(updates), str(CONNECTIONS)]
    ended = subprocess.run(command, check=True, timeout=120, stdout=subprocess.PIPE)  # noqa: S603  (ourselves)
    found: Figures = json.loads(ended.stdout)
    return found


def rounds(name: str, folder: Path, *, small: bool) -> Figures:
    found: list[Figures] = []
    for _ in range(1 if small else 3):
        fresh = Path(tempfile.mkdtemp(prefix="webhook-", dir=folder))
        try:
            found.append(measure(name, fresh, 5_000 if small else 40_000))
        finally:
            shutil.rmtree(fresh)
    return {key: statistics.median(each[key] for each in found) for key in found[0]}


def table(results: dict[str, Figures]) -> Table:
    keys = ["per_second", "p50_ms", "p99_ms", "accepted", "cpu_us", "server_cpu", "load_cpu"]
    peers = [peer for peer in PEERS if peer in results]
    titles = [f"to {peer}" for peer in peers]
    shown = Table("", *(key.replace("_", " ") for key in keys), *titles, "target", box=MARKDOWN)
    for name, figures in results.items():
        ratios = [f"{figures['per_second'] / results[peer]['per_second']:.2f}" for peer in peers]
        met = "yes" if figures["per_second"] >= TARGET else "NO"
        target = f"≥ {TARGET:,}: {met}" if name == "tidegate" else ""
        shown.add_row(LABELS[name], *(_number(figures[key]) for key in keys), *ratios, target)
    return shown


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Updates by webhook, measured.")
    parser.add_argument("servers", nargs="*", metavar="server", help=", ".join(SERVERS))
    parser.add_argument("--folder", type=Path, default=Path(), help="on which disk (default: here)")
    parser.add_argument("--small", action="store_true", help="5,000 updates, once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    unknown = set(options.servers) - set(SERVERS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SERVERS)}")
    folder, load_before = options.folder.resolve(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        fsync = statistics.median(seconds_of_fsync(Path(place)))
    chosen = [name for name in SERVERS if name in (options.servers or SERVERS)]
    results = {name: rounds(name, folder, small=options.small) for name in chosen}
    if options.json:
        print(json.dumps({"fsync_ms": 1e3 * fsync, **results}))
        return
    console = Console(width=200)
    console.print(table(results), highlight=False)
    load = f"{load_before:.2f} before, {os.getloadavg()[0]:.2f} after"
    console.print(f"\nan fsync of 4 KiB: {1e3 * fsync:.2f} ms; load: {load}", highlight=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        uvloop.run(run(sys.argv[2], Path(sys.argv[3])))
    else:
        main()
