"""The store in Redis beside other queues, and alone: large queues, wake-ups, idling, direct calls.

    python benchmarks/redis_store.py [--only NAME]... [--server FOLDER] [--quick] [--json]

Each round of each subject has fresh processes and a fresh private Redis (AOF, everysec), the subjects by
turns; the median of three. A second is one of real time, so others on the machine count. A run is 20,000
messages, or what is done of them in five seconds. The peers' environments come from `make peers`; their
settings, and why, are in `redis_peers.py`. All of it takes about ten minutes, and a gigabyte of memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.redis_peers import OURS, PEERS, Peer
from benchmarks.redis_rounds import Figures, alone, measure, private_redis, version_of

Version = tuple[int, ...]
VERBS: Final = ("put", "work", "moved")
AIMS: Final = {"put": 60_000, "work": 20_000}
TIMES: Final = 6  # the fastest peer
ALONE: Final[Mapping[str, tuple[str, int, int]]] = {  # what it shows, how many of it, and with --quick
    "lines": ("one message in each of so many lines, no limit binds: a claim of 100", 1_000_000, 10_000),
    "wake": ("a claim that waits has the message after a put (aim: < 20 ms)", 200, 40),
    "idle": ("processor time while a claim waits (aim: < 1 %)", 10, 3),
    "turns": ("a direct call: turn and end_turn", 5_000, 1_000),
}
progress = Console(stderr=True, highlight=False)


def compare(subjects: Mapping[str, Peer], number: int, rounds: int) -> dict[str, Figures]:
    found: dict[str, list[Figures]] = {name: [] for name in subjects}
    for i in range(rounds):
        for name, peer in subjects.items():
            figures = measure(peer, number)
            found[name].append(figures)
            shown = ", ".join(f"{verb} {figures[verb]:,.0f}/s" for verb in VERBS)
            progress.print(f"round {i + 1} of {rounds}: {peer.label}: {shown}", soft_wrap=True)
    return {
        name: {verb: statistics.median(each[verb] for each in rows) for verb in VERBS}
        for name, rows in found.items()
    }


def table_of_peers(found: Mapping[str, Figures], versions: Mapping[str, str]) -> Table:
    """In Markdown; Tidegate's rows with how many times the fastest peer they are."""
    fastest = {
        verb: max((found[name][verb] for name in found if name in PEERS), default=0.0) for verb in VERBS
    }
    shown = Table("", "version", "put /s", "claim + settle /s", "put, claim, settle /s", box=MARKDOWN)
    for name, figures in found.items():
        cells = [verdict(verb, figures[verb], fastest[verb], ours=name in OURS) for verb in VERBS]
        shown.add_row({**OURS, **PEERS}[name].label, versions[name], *cells)
    return shown


def verdict(verb: str, value: float, fastest: float, *, ours: bool) -> str:
    if not ours:
        return f"{value:,.0f}{' (fastest)' if value == fastest else ''}"
    times = f", {value / fastest:.1f} x (aim {TIMES})" if fastest else ""
    return f"{value:,.0f}{f' (aim {AIMS[verb]:,})' if verb in AIMS else ''}{times}"


def table_of_settings(subjects: Mapping[str, Peer]) -> Table:
    shown = Table("", "settings", "because", box=MARKDOWN)
    for peer in subjects.values():
        shown.add_row(peer.label, peer.settings, peer.why)
    return shown


def table_of_rows(rows: Mapping[str, Figures]) -> Table:
    keys = list(next(iter(rows.values())))
    shown = Table("", *(key.replace("_", " ") for key in keys), box=MARKDOWN)
    for name, figures in rows.items():
        shown.add_row(name, *(_number(figures[key]) for key in keys))
    return shown


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def versions_of(subjects: Mapping[str, Peer], redis_version: Version) -> dict[str, str]:
    """As installed where each runs."""
    ask = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    return {
        name: subprocess.run(  # noqa: S603  (an interpreter of ours)
            [str(peer.python(redis_version)), "-c", ask, peer.package],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for name, peer in subjects.items()
    }


def options_from() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The store in Redis, measured.")
    names = [*OURS, *PEERS, "peers", *ALONE]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--server", type=Path, help="the folder of a redis-server to measure with")
    parser.add_argument("--quick", action="store_true", help="a fifth of the size, once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.server is not None and not os.access(options.server / "redis-server", os.X_OK):
        parser.error(f"there is no redis-server in {options.server}")
    return options


def chosen(only: list[str] | None, redis_version: Version) -> tuple[dict[str, Peer], list[str]]:
    """Subjects to compare, and which figures of Tidegate alone. `peers` are all subjects."""
    everybody = {**OURS, **PEERS}
    if only is None:
        only = ["peers", *ALONE]
    subjects = everybody if "peers" in only else {name: everybody[name] for name in everybody if name in only}
    missing = [name for name, peer in subjects.items() if not peer.python(redis_version).exists()]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}: make peers")
    return subjects, [name for name in ALONE if name in only]


def main() -> None:
    options = options_from()
    if options.server is not None:
        os.environ["PATH"] = f"{options.server.resolve()}{os.pathsep}{os.environ['PATH']}"
    load_before = os.getloadavg()[0]
    with private_redis() as (_, client):
        redis_version = version_of(client)
    subjects, figures = chosen(options.only, redis_version)
    versions = versions_of(subjects, redis_version)
    found = compare(subjects, 4_000 if options.quick else 20_000, 1 if options.quick else 3)
    single: dict[str, Any] = {}
    for name in figures:
        progress.print(f"Tidegate alone: {name}")
        single[name] = alone(name, str(ALONE[name][2 if options.quick else 1]))
    if options.json:
        print(json.dumps({"redis": redis_version, "versions": versions, "peers": found, **single}))
        return
    console = Console(width=240, highlight=False)
    if found:
        console.print("messages a second", table_of_peers(found, versions), table_of_settings(subjects))
    for name, rows in single.items():
        console.print(f"\n{name}: {ALONE[name][0]}", table_of_rows(rows))
    load = f"{load_before:.2f} before, {os.getloadavg()[0]:.2f} after"
    console.print(f"\nRedis {'.'.join(map(str, redis_version))}, AOF everysec; load: {load}")


if __name__ == "__main__":
    main()
