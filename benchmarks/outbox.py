"""The outbox in a file beside others: durable puts, claims and settlements, large queues, and how fast a put
is noticed.

    python benchmarks/outbox.py [puts] [cycle] [open] [wake] [--folder DIR] [--small] [--json]

Every figure comes from fresh processes with fresh stores on a real disk (in `--folder`, or here): the median
of three or five. "On disk" is meant in full: SQLite with a write-ahead log and synchronous=FULL, for all. A
second is one of real time, so others on the machine count, and the disk does. The limits of Tidegate are all
checked and none binds. All of it takes about eight minutes, and half a gigabyte of disk.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import outbox_cycle, outbox_open, outbox_puts, outbox_wake
from benchmarks.outbox_subject import Figures, Section, Subject, seconds_of_fsync

SECTIONS = {
    "puts": outbox_puts.section,
    "cycle": outbox_cycle.section,
    "open": outbox_open.section,
    "wake": outbox_wake.section,
}
Results = dict[str, Figures]


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """An empty folder in it, gone afterwards."""
    made = Path(tempfile.mkdtemp(prefix="outbox-", dir=folder))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def in_child(verb: str, names: tuple[str, str], folder: Path, *, small: bool) -> Figures:
    command = [sys.executable, __file__, f"--{verb}", *names, str(folder), *(["--small"] if small else [])]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603  (ourselves)
    figures: Figures = json.loads(found.stdout)
    return figures


def child(verb: str, section: str, name: str, folder: str, *, small: bool) -> None:
    subject = SECTIONS[section](small=small).subjects[name]
    figures: Figures = {}
    if verb == "--run":
        figures = subject.run(Path(folder))
    elif subject.prepare is not None:
        subject.prepare(Path(folder))
    print(json.dumps(figures))


def measure(names: tuple[str, str], subject: Subject, folder: Path, *, small: bool) -> Iterator[Figures]:
    with scratch(folder) as prepared:
        if subject.prepare is not None:
            in_child("prepare", names, prepared, small=small)
        for _ in range(1 if small else subject.rounds):
            with scratch(folder) as fresh:
                shutil.copytree(prepared, fresh, dirs_exist_ok=True)
                yield in_child("run", names, fresh, small=small)


def measure_all(section: str, folder: Path, progress: Progress, *, small: bool) -> Results:
    results: Results = {}
    for name, subject in SECTIONS[section](small=small).subjects.items():
        bar = progress.add_task(f"{section}: {subject.label}", total=1 if small else subject.rounds)
        found: list[Figures] = []
        for figures in measure((section, name), subject, folder, small=small):
            found.append(figures)
            progress.advance(bar)
        progress.remove_task(bar)
        results[name] = {key: statistics.median(each[key] for each in found) for key in found[0]}
    return results


def table(section: Section, results: Results) -> Table:
    """In Markdown; each row with its share of the peers, and whether its targets were met."""
    keys = list(next(iter(results.values())))
    titles = [key.replace("_", " ") for key in keys]
    shown = Table("", *titles, *section.peers.values(), "target", box=MARKDOWN)
    for name, figures in results.items():
        ratios = [f"{figures['per_second'] / results[peer]['per_second']:,.1f}" for peer in section.peers]
        shown.add_row(
            section.subjects[name].label,
            *(_number(figures[key]) for key in keys),
            *ratios,
            verdict(section.subjects[name], figures),
        )
    return shown


def verdict(subject: Subject, figures: Figures) -> str:
    return " · ".join(
        f"{_bound(target.at_least, target.below)}: {'yes' if target.met(figures) else 'NO'}"
        for target in subject.targets
    )


def _bound(at_least: float, below: float) -> str:
    return f"≥ {at_least:,.0f}" if at_least else f"< {below:,.0f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The outbox in a file, measured.")
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--folder", type=Path, default=Path(), help="on which disk (default: here)")
    parser.add_argument("--small", action="store_true", help="a tenth of the size, once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    if not options.folder.is_dir():
        parser.error(f"there is no folder {options.folder}")
    chosen = [name for name in SECTIONS if name in (options.sections or SECTIONS)]
    load_before = os.getloadavg()[0]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        scratch(options.folder.resolve()) as folder,
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        fsync = statistics.median(seconds_of_fsync(folder))
        results = {name: measure_all(name, folder, progress, small=options.small) for name in chosen}
    if options.json:
        print(json.dumps({"fsync_ms": 1e3 * fsync, **results}))
        return
    console = Console(width=200)
    for name, found in results.items():
        section = SECTIONS[name](small=options.small)
        console.print(f"\n{name}: {section.title}{' (small)' if options.small else ''}", highlight=False)
        console.print(table(section, found), highlight=False)
    load = f"{load_before:.2f} before, {os.getloadavg()[0]:.2f} after"
    console.print(f"\nan fsync of 4 KiB: {1e3 * fsync:.2f} ms; load: {load}", highlight=False)


if __name__ == "__main__":
    if sys.argv[1:2] in (["--run"], ["--prepare"]):
        child(*sys.argv[1:5], small="--small" in sys.argv)
    elif sys.argv[1:2] == ["--produce"]:
        outbox_wake.second_process(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
