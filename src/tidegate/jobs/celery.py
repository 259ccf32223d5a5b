"""The worker of jobs on Celery: `TIDEGATE_JOBS=shop.tasks celery -A tidegate.jobs.celery worker`.

Each job of the modules in TIDEGATE_JOBS is a task under its own name. A task runs the function in the main
thread of its process, as Celery's time limits need; a second thread has an event loop, which talks to the
database and renews the lease of the job meanwhile.
"""

import asyncio
import importlib
import logging
import math
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Final, TypeVar

from celery import Celery
from celery.exceptions import Reject, SoftTimeLimitExceeded

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.failure import describe_error, pause_after, traceback_text
from tidegate.jobs.celery_broker import make_celery
from tidegate.jobs.job import Job, run_function
from tidegate.jobs.port import JobLease, JobStore
from tidegate.jobs.record import JobDone, JobFailed, JobOutcome, JobRecord
from tidegate.jobs.runner import RUN_LEASE, settle_attempt
from tidegate.settings import Settings

log = logging.getLogger("tidegate.jobs")

HARD_LIMIT_AFTER: Final = 10  # seconds after the timeout of a job: then its process is killed
TRIES_TO_BEGIN: Final = 6  # while the database is away: half a minute

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, for code that is not async: the one bridge to it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="tidegate: loop", daemon=True).start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` there, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @contextmanager
    def meanwhile(self, work: Coroutine[Any, Any, None]) -> Iterator[None]:
        """Run `work` there while the body runs, and cancel it then."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            yield
        finally:
            future.cancel()


@cache
def _thread() -> LoopThread:
    """Made by the first task: in a child of the worker, as threads do not survive a fork."""
    return LoopThread()


def make_worker(settings: Settings) -> Celery:
    """Return the application of a worker, with a task for each job. Raises BadInputError."""
    if settings.celery_broker_url is None:
        raise BadInputError("CELERY_BROKER_URL is not set: give the address of RabbitMQ or Redis")
    jobs = {job.name: job for module in _modules(settings) for job in _jobs_in(module)}
    if not jobs:
        raise BadInputError(
            f"there is no job in {settings.tidegate_jobs}: write @gate.job above a function at its top"
        )
    longest = max(job.options_of_job.timeout for job in jobs.values())
    made = make_celery(settings.celery_broker_url.get_secret_value(), longest)
    for job in jobs.values():
        _add_task(made, job)
        job.jobs.prepare()
    return made


def _modules(settings: Settings) -> Iterator[ModuleType]:
    names = [name.strip() for name in (settings.tidegate_jobs or "").split(",") if name.strip()]
    if not names:
        raise BadInputError("TIDEGATE_JOBS is not set: name the modules with jobs, such as shop.tasks")
    for name in names:
        try:
            yield importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise BadInputError(
                f"TIDEGATE_JOBS: there is no module {name}: start the worker in the folder that has it"
            ) from None


def _jobs_in(module: ModuleType) -> list[Job[..., Any]]:
    return [value for value in vars(module).values() if isinstance(value, Job)]


def _add_task(app: Celery, job: Job[..., Any]) -> None:
    seconds = math.ceil(job.options_of_job.timeout)

    @app.task(name=job.name, soft_time_limit=seconds, time_limit=seconds + HARD_LIMIT_AFTER)
    def task(job_id: int, token: int) -> None:
        run_task(job, JobLease(job_id, token))


def run_task(job: Job[..., Any], lease: JobLease) -> None:
    """Run a job that was sent to this worker, unless it was cancelled or another worker has it."""
    thread, clock = _thread(), Clock()
    record = thread.call(_begin(job, lease, clock))
    if record is None:
        thread.call(_log_refusal(job, lease))
        return
    with thread.meanwhile(_renew(job, lease, clock)):
        outcome = _run(job, record)
        thread.call(_settle(job, record, outcome, clock))


def _run(job: Job[..., Any], record: JobRecord) -> JobOutcome:
    try:
        return JobDone(run_function(job, record.args, record.kwargs))
    except SoftTimeLimitExceeded:
        return JobFailed(f"it took longer than {job.options_of_job.timeout:g} s, and was ended")
    except Exception as error:  # noqa: BLE001  (the application's)
        log.error("job %s failed:\n%s", job.name, traceback_text(error))  # noqa: TRY400
        return JobFailed(describe_error(error))


async def _begin(job: Job[..., Any], lease: JobLease, clock: Clock) -> JobRecord | None:
    """Raises Reject, so that the broker keeps the message, if the database stays away."""
    for failures in range(1, TRIES_TO_BEGIN + 1):
        try:
            return await (await job.jobs.opened()).begin(lease, RUN_LEASE)
        except StoreError as error:
            log.warning("job %s (%s) waits for the database: %s", lease.id, job.name, error)
            await clock.sleep(pause_after(failures))
    raise Reject("the database cannot be reached", requeue=True)


async def _log_refusal(job: Job[..., Any], lease: JobLease) -> None:
    """A job that is unknown is a mistake of the configuration, which nobody else would notice."""
    store = await job.jobs.opened()
    if await store.get([lease.id]):
        log.info("job %s (%s) is not run: it was cancelled, or runs elsewhere", lease.id, job.name)
        return
    log.error(
        "job %s (%s) is not in the database of this worker: give it the DATABASE_URL of the bot, or start it"
        " in the folder of the bot. It is sent again in ten minutes; tidegate jobs retry does so at once",
        lease.id,
        job.name,
    )


async def _renew(job: Job[..., Any], lease: JobLease, clock: Clock) -> None:
    store = await job.jobs.opened()
    while True:
        await clock.sleep(RUN_LEASE / 3)
        try:
            await store.renew([lease], RUN_LEASE)
        except StoreError as error:
            log.warning("the lease of job %s cannot be renewed: %s", lease.id, error)


async def _settle(job: Job[..., Any], record: JobRecord, outcome: JobOutcome, clock: Clock) -> None:
    store: JobStore = await job.jobs.opened()
    await settle_attempt(store, clock, record, outcome)


app = make_worker(Settings.read())
