"""APScheduler 3 in `reminders.py`: jobs that are all due at the same moment, in memory or in SQLite.

Each job is a daily cron job, as `run_daily` of python-telegram-bot makes it, whose function appends to a
list. All jobs are added while the scheduler is paused, to run at a moment in the future; adding stops at that
moment at the latest, so that a slow store holds fewer jobs and is said to. Then the scheduler goes on.
"""

import asyncio
import datetime as dt
import logging
import time
from pathlib import Path
from typing import Final

from apscheduler.events import (  # type: ignore[import-untyped]
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MISSED,
    JobExecutionEvent,
)
from apscheduler.jobstores.memory import MemoryJobStore  # type: ignore[import-untyped]
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore  # type: ignore[import-untyped]
from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-untyped]
from apscheduler.triggers.cron import CronTrigger  # type: ignore[import-untyped]
from benchmarks.outbox_subject import Figures, Watch
from benchmarks.reminders_memory import PeakGrowth

TRIAL: Final = 300  # jobs that are added to a store of their own, to know how long the others take
SLACK: Final = 1.4  # times as long as by the trial
SHORTEST: Final = 3.0  # seconds from the first job added until all are due
LONGEST_RUN: Final = 600.0  # seconds

sent: list[tuple[int, str]] = []


async def remind(chat_id: int, text: str) -> None:
    sent.append((chat_id, text))


class Ends:
    """Counts jobs that have run and jobs that were missed; `all_ended` is set with the last."""

    def __init__(self, scheduler: AsyncIOScheduler) -> None:
        self.executed = self.missed = 0
        self.expected = 0
        self.all_ended = asyncio.Event()
        scheduler.add_listener(self._note, EVENT_JOB_EXECUTED | EVENT_JOB_MISSED)

    def _note(self, event: JobExecutionEvent) -> None:
        self.missed += event.code == EVENT_JOB_MISSED
        self.executed += event.code == EVENT_JOB_EXECUTED
        if self.executed + self.missed == self.expected:
            self.all_ended.set()


def scheduler_on(file: Path | None, *, grace: bool) -> AsyncIOScheduler:
    """Return a scheduler that is paused. With `grace`, a job is missed a second late, as is the default."""
    store = MemoryJobStore() if file is None else SQLAlchemyJobStore(url=f"sqlite:///{file}")
    defaults = {} if grace else {"misfire_grace_time": None}
    scheduler = AsyncIOScheduler(jobstores={"default": store}, job_defaults=defaults, timezone=dt.UTC)
    scheduler.start(paused=True)
    return scheduler


def add(scheduler: AsyncIOScheduler, jobs: int, due: dt.datetime) -> int:
    """Add jobs until they are due; return how many there are."""
    for user in range(1, jobs + 1):
        if dt.datetime.now(dt.UTC) >= due:
            return user - 1
        scheduler.add_job(
            remind,
            CronTrigger(hour=due.hour, minute=due.minute, second=due.second, timezone=dt.UTC),
            args=(user, f"Hello {user}, it is time for a glass of water."),
            id=f"water {user}",
            next_run_time=due,
        )
    return jobs


def seconds_to_add(jobs: int, file: Path | None) -> float:
    scheduler = scheduler_on(file, grace=True)
    began = time.perf_counter()
    add(scheduler, TRIAL, dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
    seconds = time.perf_counter() - began
    scheduler.shutdown()
    return SLACK * seconds * jobs / TRIAL


async def measure(jobs: int, folder: Path | None, longest: float, *, grace: bool) -> Figures:
    """Add jobs for at most `longest` seconds, wait until they are due, and until each has run or was missed.

    Memory is the growth from before the first job was added.
    """
    logging.getLogger("apscheduler").setLevel(logging.ERROR)  # else there is a line for each that was missed
    needed = seconds_to_add(jobs, folder and folder / "trial.db")
    wait = min(longest, max(SHORTEST, needed))
    due = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=int(wait) + 1)
    memory, adding, firing = PeakGrowth(), Watch(), Watch()
    scheduler = scheduler_on(folder and folder / "jobs.db", grace=grace)
    ends = Ends(scheduler)
    with adding:
        ends.expected = add(scheduler, jobs, due)
    held = memory.now()
    scheduler.resume()
    with firing:  # it blocks the event loop when they are due: a later start would miss that
        async with asyncio.timeout(longest + LONGEST_RUN):
            await ends.all_ended.wait()
    late = time.time() - due.timestamp()
    grown = memory.peak()
    scheduler.shutdown()
    assert len(sent) == ends.executed, (len(sent), ends.executed)
    return {
        "messages": ends.executed,
        "missed": ends.missed,
        "held": ends.expected,
        "add_seconds": adding.seconds,
        "seconds": late,
        "cpu_seconds": firing.cpu,
        "grown_mb": grown,
        "held_mb": held,
    }
