"""Reminders of one moment beside others: a million schedules, of which a tenth is due at 09:00.

    python benchmarks/reminders.py [--rows 1000000] [--due 100000] [--only NAME ...] [--folder DIR] [--json]
                                   [--apscheduler-jobs 100000] [--apscheduler-seconds 60]

Measured is the work from "it is 09:00" until the last message waits to be sent; nothing is sent. Each subject
has a fresh process. Memory is the peak of its resident memory beyond what it had when all was imported and
open; that of a PostgreSQL server is not part of it. Time is real, so others on the machine count.

sqlite, postgres
    Tidegate's scheduler (`gate.reminders.schedule()`) with its reminders in a SQLite file or in PostgreSQL:
    it claims what is due 500 at a time, puts the messages into an outbox in a SQLite file, and computes the
    next occurrence of each. Both are on disk (synchronous=FULL) when it ends, but the private PostgreSQL of
    the tests syncs nothing.
sqlite_sender
    The same in the process that is also the sender, which holds its schedule of 100,000 chats in memory.
naive_all, naive_due
    The loop that bots begin with: `SELECT *`, `fetchall()`, a look at each row, and each message into an
    `asyncio.Queue`. The first reads the whole table and compares in Python; the second has SQL select what is
    due. Plain sqlite3, without an ORM, which is faster than most write it.
apscheduler_memory, apscheduler_sqlite, and both with _unlimited
    APScheduler 3 with a daily cron job for each of the due reminders only, not for the million; see
    reminders_apscheduler.py. By default a job that begins more than 1 s late is missed: it does not run.
    `_unlimited` sets misfire_grace_time=None, and all run. Seconds are from the due moment to the last job.

What is not the same: after a crash the naive loops have lost what they queued and do not know what was sent;
they have no time zones, no dedup, no next occurrence. APScheduler in memory loses its jobs, too; in SQLite it
keeps them, but advances a job before it runs, so a run that a crash interrupts is lost. Neither the loops nor
APScheduler write the message down. Tidegate does all that, which costs time; the loops are faster.
APScheduler's memory is from before its jobs were added, as it holds them; the others read theirs from disk.
"""

import argparse
import asyncio
import datetime as dt
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from pydantic import SecretStr
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import reminders_apscheduler
from benchmarks.outbox_subject import STORE, Figures, Target, Watch
from benchmarks.reminder_store import new
from benchmarks.reminders_memory import PeakGrowth

from servers import postgres_server
from tidegate import Tidegate
from tidegate.database.database import Database
from tidegate.database.reminders import SqlReminders
from tidegate.reminders.port import ADD_AT_ONCE
from tidegate.reminders.reminder import Daily, NewReminder, Reminder
from tidegate.settings import Settings

LONGEST: Final = 600.0  # seconds for Tidegate's subjects
LONGEST_CHILD: Final = 1_200.0
DATA: Final = "tidegate-data.db"  # beside STORE
PLAIN: Final = "plain.db"
DUE_AT, OTHER_AT = "09:00", "10:00"
TARGETS: Final = (Target("seconds", below=60), Target("grown_mb", below=150))


class Task(msgspec.Struct, frozen=True):
    """What the process of a subject is told."""

    name: str
    folder: str
    due: int
    database: str | None = None  # None: a SQLite file beside the store
    jobs: int = 0
    longest: float = 0.0


async def tidegate(task: Task) -> Figures:
    logging.getLogger("tidegate").setLevel(logging.ERROR)  # the time to fill the table makes all of them late
    address = None if task.database is None else SecretStr(task.database)
    gate = Tidegate(Path(task.folder, STORE), settings=Settings(database_url=address))
    gate.add_bot("42:token")
    async with gate:
        if task.name.endswith("sender"):
            await gate.core.become_sender()
        await gate.reminders.upcoming(limit=1)  # it is open then
        memory, watch = PeakGrowth(), Watch()
        with watch:
            async with asyncio.timeout(LONGEST), gate.reminders.schedule() as scheduler:
                while scheduler.counts.fired < task.due:  # noqa: ASYNC110  (it tells nobody)
                    await asyncio.sleep(0.01)
        grown, accepted = memory.peak(), (await gate.stats()).waiting
        assert accepted == scheduler.counts.fired == task.due, (accepted, scheduler.counts)
    return {"messages": accepted, "seconds": watch.seconds, "cpu_seconds": watch.cpu, "grown_mb": grown}


async def fill(address: str, rows: int, due: int) -> float:
    """Add reminders, daily at the time that it is now; some, evenly spread, are due now, not tomorrow.

    Returns the seconds that it took.
    """
    started = time.monotonic()
    began = float(int(time.time()))  # a schedule has whole seconds
    schedule = Daily(dt.datetime.fromtimestamp(began, ZoneInfo("Europe/Berlin")).time())
    every, tomorrow = rows // due, began + 86_400

    def first(given: NewReminder, number: int, _: Reminder | None) -> Reminder:
        at = began if given.user_id % every == 0 else tomorrow
        fields = msgspec.structs.asdict(given)
        return Reminder(**fields, id=number, created_at=began, occurrence_at=at, next_at=at)

    store = SqlReminders(Database(address))
    await store.open()
    for start in range(1, rows + 1, ADD_AT_ONCE):
        users = range(start, min(start + ADD_AT_ONCE, rows + 1))
        await store.add([msgspec.structs.replace(new(user), schedule=schedule) for user in users], first)
    await store.close()
    return time.monotonic() - started


async def naive(task: Task) -> Figures:
    queue: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
    with sqlite3.connect(Path(task.folder, PLAIN)) as database:
        memory, watch = PeakGrowth(), Watch()
        with watch:
            if task.name == "naive_all":
                rows = database.execute("SELECT * FROM schedules").fetchall()
            else:
                rows = database.execute("SELECT * FROM schedules WHERE at = ?", (DUE_AT,)).fetchall()
            for _, chat, at, _, text in rows:
                if at == DUE_AT:
                    await queue.put((chat, text))
        grown = memory.peak()
    database.close()
    assert queue.qsize() == task.due, queue.qsize()
    return {"messages": task.due, "seconds": watch.seconds, "cpu_seconds": watch.cpu, "grown_mb": grown}


def fill_plain(file: Path, rows: int, due: int) -> float:
    every, started = rows // due, time.monotonic()
    with sqlite3.connect(file) as database:
        database.execute(
            "CREATE TABLE schedules (id INTEGER PRIMARY KEY, chat INTEGER, at TEXT, zone TEXT, text TEXT)"
        )
        database.execute("CREATE INDEX schedules_at ON schedules (at)")
        database.executemany(
            "INSERT INTO schedules VALUES (?, ?, ?, 'Europe/Berlin', ?)",
            (
                (
                    user,
                    user,
                    OTHER_AT if user % every else DUE_AT,
                    f"Hello {user}, it is time for a glass of water.",
                )
                for user in range(1, rows + 1)
            ),
        )
    database.close()
    return time.monotonic() - started


async def apscheduler(task: Task) -> Figures:
    folder = Path(task.folder) if "sqlite" in task.name else None
    grace = not task.name.endswith("unlimited")
    return await reminders_apscheduler.measure(task.jobs, folder, task.longest, grace=grace)


class Subject(msgspec.Struct, frozen=True):
    label: str
    run: Callable[[Task], Coroutine[Any, Any, Figures]]
    survives: str  # what a crash leaves
    targets: tuple[Target, ...] = ()


SUBJECTS: Final = {
    "sqlite": Subject("**Tidegate**, SQLite", tidegate, "all", TARGETS),
    "sqlite_sender": Subject("**Tidegate**, SQLite, in the sender", tidegate, "all"),
    "postgres": Subject("**Tidegate**, PostgreSQL", tidegate, "all", TARGETS),
    "naive_all": Subject("loop over all rows", naive, "nothing queued"),
    "naive_due": Subject("loop over the due rows", naive, "nothing queued"),
    "apscheduler_memory": Subject("APScheduler, memory", apscheduler, "nothing"),
    "apscheduler_memory_unlimited": Subject("the same, misfire_grace_time=None", apscheduler, "nothing"),
    "apscheduler_sqlite": Subject("APScheduler, SQLite", apscheduler, "jobs, not runs"),
    "apscheduler_sqlite_unlimited": Subject(
        "the same, misfire_grace_time=None", apscheduler, "jobs, not runs"
    ),
}


def in_child(task: Task) -> Figures:
    command = [sys.executable, __file__, "--run", msgspec.json.encode(task).decode()]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=LONGEST_CHILD)  # noqa: S603  (ourselves)
    figures: Figures = json.loads(found.stdout)
    return figures


@contextmanager
def scratch(folder: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="reminders-", dir=folder) as made:
        yield Path(made)


class Tables:
    """The tables of the subjects. Those in files are filled once, when they are first needed, and copied."""

    def __init__(self, folder: Path, rows: int, due: int) -> None:
        self._folder = folder
        self._size = rows, due
        self._seconds: dict[str, float] = {}  # to fill each file

    @contextmanager
    def of(self, name: str, folder: Path) -> Iterator[tuple[Figures, str | None]]:
        """Fill what a subject reads; give the figures of that, and the address of a server, if it is one."""
        if name == "postgres":
            with postgres_server() as server:
                yield self._figures(asyncio.run(fill(server.url, *self._size))), server.url
        elif name.startswith("apscheduler"):
            yield {}, None  # it adds its jobs itself
        else:
            yield self._figures(self._copy(PLAIN if name.startswith("naive") else DATA, folder)), None

    def _figures(self, seconds: float) -> Figures:
        return {"held": self._size[0], "missed": 0, "add_seconds": seconds}

    def _copy(self, name: str, folder: Path) -> float:
        file = self._folder / name
        if name not in self._seconds and name == PLAIN:
            self._seconds[name] = fill_plain(file, *self._size)
        elif name not in self._seconds:
            self._seconds[name] = asyncio.run(fill(f"sqlite:///{file}", *self._size))
        shutil.copy(file, folder)
        return self._seconds[name]


def measure_all(options: argparse.Namespace) -> dict[str, Figures]:
    results: dict[str, Figures] = {}
    with scratch(options.folder) as filled:
        tables = Tables(filled, options.rows, options.due)
        for name in options.only or SUBJECTS:
            print(f"{name} …", file=sys.stderr, flush=True)
            with scratch(options.folder) as folder, tables.of(name, folder) as (figures, address):
                task = Task(
                    name=name,
                    folder=str(folder),
                    due=options.due,
                    database=address,
                    jobs=options.apscheduler_jobs,
                    longest=options.apscheduler_seconds,
                )
                os.sync()  # what filling has left to write is not part of it
                results[name] = figures | in_child(task)
    return results


def table(results: dict[str, Figures]) -> Table:
    """In Markdown. Ratios are to the first: of the time for each reminder that was due, and of memory."""
    shown = Table(
        "", "held", "sent", "missed", "s", "CPU s", "MB", "times s", "times MB", "add 100,000: s",
        "after a crash", "target", box=MARKDOWN,
    )  # fmt: skip
    first = next(iter(results.values()))
    for name, found in results.items():
        subject = SUBJECTS[name]
        shown.add_row(
            subject.label,
            *(f"{found[key]:,.0f}" for key in ("held", "messages", "missed")),
            *(f"{found[key]:,.1f}" for key in ("seconds", "cpu_seconds", "grown_mb")),
            f"{_each(found) / _each(first):.2f}",
            f"{found['grown_mb'] / first['grown_mb']:.1f}",
            f"{found['add_seconds'] / found['held'] * 100_000:.1f}",
            subject.survives,
            " · ".join(
                f"< {target.below:.0f}: {'yes' if target.met(found) else 'NO'}" for target in subject.targets
            ),
        )
    return shown


def _each(figures: Figures) -> float:
    return figures["seconds"] / (figures["messages"] + figures["missed"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Reminders of one moment, measured.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=100_000, help="of the rows; a divisor of them")
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, metavar="NAME", help=", ".join(SUBJECTS))
    parser.add_argument("--folder", type=Path, help="on which disk (default: where temporary files are)")
    parser.add_argument("--apscheduler-jobs", type=int, default=100_000)
    parser.add_argument(
        "--apscheduler-seconds", type=float, default=60.0, help="add no more jobs after so many"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rows % options.due:
        parser.error("--due must divide --rows")
    load_before = os.getloadavg()[0]
    results = measure_all(options)
    if options.json:
        print(json.dumps(results))
        return
    console = Console(width=200)
    console.print(f"{options.rows:,} reminders, {options.due:,} due", highlight=False)
    console.print(table(results), highlight=False)
    for name, found in results.items():
        if name.startswith("apscheduler") and found["held"] < options.apscheduler_jobs:
            note = f"{name}: {found['held']:,.0f} jobs, not more, were added in {found['add_seconds']:.0f} s"
            console.print(note, highlight=False)
    console.print(f"load: {load_before:.2f} before, {os.getloadavg()[0]:.2f} after", highlight=False)


def child(told: str) -> None:
    task = msgspec.json.decode(told, type=Task)
    print(json.dumps(asyncio.run(SUBJECTS[task.name].run(task))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        child(sys.argv[2])
    else:
        main()
