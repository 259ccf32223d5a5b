"""The runner of jobs: claim, run, settle.

A job is held under a lease that is renewed while it runs. A process that dies leaves a lease that runs out,
and the next one runs the job again, from its start.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.failure import pause_after, traceback_text
from tidegate.jobs.job import Job
from tidegate.jobs.port import JobExecutor, JobLease, JobStore
from tidegate.jobs.record import JobOutcome, JobRecord, JobReturned, JobState
from tidegate.stop_notice import log_wait
from tidegate.store_loop import StoreLoop
from tidegate.tasks import BackgroundTasks, SupervisedLoop

log = logging.getLogger("tidegate.jobs")

RUN_LEASE: Final = 15.0  # seconds, renewed three times in it
SENT_LEASE: Final = 3600.0  # seconds: then a broker that has lost a job gets it again
CLAIMED_AT_ONCE: Final = 100
POLL_EVERY: Final = 1.0  # seconds after which a job that another process has submitted or ended is found
STOP_GRACE: Final = 5.0  # seconds that jobs have to end when the process stops
CLEAN_EVERY: Final = 3600.0  # seconds


class JobRunner:
    """`async with` it: jobs of the known names are run while the body runs."""

    def __init__(
        self,
        store: JobStore,
        executor: JobExecutor,
        clock: Clock,
        jobs: Mapping[str, Job[..., Any]],
        *,
        keep: float,
        on_end: Callable[[], None],
    ) -> None:
        """`keep`: seconds after which a job that has ended is forgotten. `on_end`: one may have ended."""
        self._store = store
        self._executor = executor
        self._clock = clock
        self._jobs = jobs
        self._keep = keep
        self._on_end = on_end
        self._tasks = BackgroundTasks()
        self._work = BackgroundTasks()
        self._loop: SupervisedLoop
        self._running: dict[int, asyncio.Task[None]] = {}  # by id
        self._leases: dict[int, JobLease] = {}  # of those that run here
        self._lost: set[int] = set()  # those that were cancelled meanwhile, or given to another process
        self._steps = StoreLoop("jobs", self.step, clock, log)
        self._cleaned_at: float | None = None

    async def __aenter__(self) -> Self:
        self._loop = self._tasks.supervise(self._steps.run, "the runner of jobs", self._clock)
        self._tasks.supervise(self._renew, "the renewal of leases of jobs", self._clock)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._steps.stop()
        await asyncio.wait([self._loop.task], timeout=STOP_GRACE)  # not cancelled at once: see StoreLoop.stop
        await self._tasks.stop()
        if running := list(self._running.values()):
            log_wait(log, STOP_GRACE, tasks=len(running))
            _, late = await asyncio.wait(running, timeout=STOP_GRACE)
            for task in late:
                task.cancel()  # they give their jobs back, if the database can be reached
            if late:
                await asyncio.wait(late, timeout=STOP_GRACE)
        await self._work.stop()
        await self._executor.stop()

    def wake(self) -> None:
        """Look now: a job was submitted or changed."""
        self._steps.wake()

    def drop(self, ids: Iterable[int]) -> None:
        """End jobs that were cancelled, if they run here."""
        for number in ids:
            if (task := self._running.get(number)) is not None:
                self._lost.add(number)
                task.cancel()

    def problems(self) -> list[str]:
        """Why jobs are not run as they should be, a line each."""
        return [*self._steps.problems(), *self._executor.problems(), *self._tasks.problems()]

    async def step(self) -> float:
        """Begin the jobs that are due; return the seconds until there may be more."""
        await self._begin_due()
        await self._clean()
        if self._executor.room <= 0:
            return POLL_EVERY  # a job that ends wakes it
        next_due = await self._store.next_due(self._jobs)
        return POLL_EVERY if next_due is None else min(POLL_EVERY, max(0.05, next_due - self._clock.now()))

    # --- running ---

    async def _begin_due(self) -> None:
        state = self._executor.claims_as
        lease = RUN_LEASE if state is JobState.RUNNING else SENT_LEASE
        while (room := min(self._executor.room, CLAIMED_AT_ONCE)) > 0 and not self._steps.is_stopping:
            claimed = await self._store.claim(self._jobs, room, lease, state)
            for job in claimed:
                self._begin(job)
            if len(claimed) < room:
                return
            await self._clock.sleep(0)

    def _begin(self, job: JobRecord) -> None:
        if job.state is JobState.RUNNING:
            self._leases[job.id] = JobLease(job.id, job.token)
        self._running[job.id] = self._work.start(self._execute(job), f"job {job.id}")

    async def _execute(self, job: JobRecord) -> None:
        outcome: JobOutcome | None = JobReturned()
        try:
            outcome = await self._executor.run(job)
        except asyncio.CancelledError:  # the process stops, or the job was cancelled
            if job.id not in self._lost:
                log.warning(
                    "job %s (%s) was cut off by a stop: it runs again, from its start", job.id, job.name
                )
        except Exception as error:  # noqa: BLE001  (an error of ours: others must run)
            log.error("job %s (%s) could not be started:\n%s", job.id, job.name, traceback_text(error))  # noqa: TRY400
            outcome = JobReturned(after=job.pause)
        finally:
            try:
                if outcome is not None and job.id not in self._lost:
                    await settle_attempt(self._store, self._clock, job, outcome)
            finally:
                self._running.pop(job.id, None)
                self._leases.pop(job.id, None)
                self._lost.discard(job.id)
                self._steps.wake()
                self._on_end()

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(RUN_LEASE / 3)
            leases = list(self._leases.values())
            if not leases:
                continue
            try:
                held = await self._store.renew(leases, RUN_LEASE)
            except StoreError:  # logged by the loop that claims; another process may run these again
                continue
            self.drop(
                lease.id for lease in leases if lease.id not in held and self._leases.get(lease.id) == lease
            )

    # --- the rest ---

    async def _clean(self) -> None:
        now = self._clock.monotonic()
        if self._cleaned_at is None or now - self._cleaned_at > CLEAN_EVERY:
            self._cleaned_at = now
            await self._store.remove(ended_before=self._clock.now() - self._keep)


async def settle_attempt(store: JobStore, clock: Clock, job: JobRecord, outcome: JobOutcome) -> None:
    """Note the end of an attempt, however long the database is away."""
    failures = 0
    while True:
        try:
            after = await store.settle(JobLease(job.id, job.token), outcome)
        except StoreError as error:
            failures += 1
            if failures == 1:
                log.warning("the end of job %s cannot be noted yet: %s", job.id, error)
            await clock.sleep(pause_after(failures))
        else:
            _log_end(job, after)
            return


def _log_end(job: JobRecord, after: JobRecord | None) -> None:
    """Log what became of an attempt. Successes are not worth a line."""
    if after is None:
        log.warning("job %s (%s) has ended too late: it was cancelled, or runs elsewhere", job.id, job.name)
    elif after.state is JobState.DEAD:
        log.error("job %s (%s) is dead: %s", job.id, job.name, after.error)
    elif after.error != job.error or after.attempts + after.crashes > job.attempts + job.crashes:
        pause = f"in {job.pause:g} s" if after.attempts > job.attempts else "at once"
        log.warning("job %s (%s) has failed, and runs again %s: %s", job.id, job.name, pause, after.error)
