"""The runner of jobs: claim, run, settle.

A job is held under a lease that is renewed while it runs. A process that dies leaves a lease that runs out,
and the next one runs the job again, from its start.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, Self

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.events import EventStream, JobEnded
from tidegate.failure import pause_after, traceback_text
from tidegate.jobs.job import Job
from tidegate.jobs.port import JobExecutor, JobLease, JobStore
from tidegate.jobs.record import JobOutcome, JobRecord, JobReturned, JobState
from tidegate.stop_notice import log_wait
from tidegate.store_loop import StoreLoop
from tidegate.tasks import BackgroundTasks, SupervisedLoop

log = logging.getLogger("tidegate.jobs")

RUN_LEASE: Final = 15.0  # seconds, renewed three times in it
SENT_LEASE: Final = 600.0  # seconds: then a broker gets a job again that it, or a worker, has lost
CLAIMED_AT_ONCE: Final = 100
POLL_EVERY: Final = 1.0  # seconds after which a job that another process has submitted or ended is found
STOP_GRACE: Final = 5.0  # seconds that jobs have to end when the process stops
CLEAN_EVERY: Final = 3600.0  # seconds
_ENDS: Final[dict[JobState, Literal["done", "dead", "retry"]]] = {
    JobState.DONE: "done",
    JobState.DEAD: "dead",
    JobState.QUEUED: "retry",
}


class JobAttempt:
    """One run of a job in this process, under the lease of its claim."""

    def __init__(self, job: JobRecord) -> None:
        self.job = job
        self.lease = JobLease(job.id, job.token)
        self.task: asyncio.Task[None]
        self.is_lost = False  # the job was cancelled, or given to another: there is nothing to settle
        self.is_settling = False  # it has run, and its end is being noted


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
        events: EventStream | None = None,
    ) -> None:
        """`keep`: seconds after which a job that has ended is forgotten. `on_end`: one may have ended."""
        self._store = store
        self._executor = executor
        self._clock = clock
        self._jobs = jobs
        self._keep = keep
        self._on_end = on_end
        self._events = events or EventStream()
        self._tasks = BackgroundTasks()
        self._work = BackgroundTasks()
        self._loop: SupervisedLoop
        # By lease, not by id: a job that was cancelled and is retried begins while its first run is ended.
        self._attempts: dict[JobLease, JobAttempt] = {}
        self._renewed_at = clock.monotonic()
        self._steps = StoreLoop("jobs", self.step, clock, log)
        self._cleaned_at: float | None = None

    async def __aenter__(self) -> Self:
        self._loop = self._tasks.supervise(self._steps.run, "the runner of jobs", self._clock)
        self._tasks.supervise(self._keep_leases, "the renewal of leases of jobs", self._clock)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._steps.stop()
        await asyncio.wait([self._loop.task], timeout=STOP_GRACE)  # not cancelled at once: see StoreLoop.stop
        self._loop.task.cancel()
        await self._end_attempts()
        await self._tasks.stop()  # last: the lease of a job that is being given back must not run out
        await self._executor.stop()

    def wake(self) -> None:
        """Look now: a job was submitted or changed."""
        self._steps.wake()

    def drop(self, ids: Iterable[int]) -> None:
        """End jobs that were cancelled, if they run here."""
        cancelled = set(ids)
        for attempt in self._attempts.values():
            if attempt.job.id in cancelled:
                _abandon(attempt)

    def problems(self) -> list[str]:
        """Why jobs are not run as they should be, a line each."""
        return [*self._steps.problems(), *self._executor.problems(), *self._tasks.problems()]

    async def step(self) -> float:
        """Begin the jobs that are due; return the seconds until there may be more."""
        if self._clock.monotonic() - self._renewed_at > RUN_LEASE / 2:
            await self._renew()  # first: after an outage, this process would claim what it still runs
        await self._begin_due()
        await self._clean()
        if self._executor.room <= 0:
            return POLL_EVERY  # a job that ends wakes it
        next_due = await self._store.next_due(self._jobs)
        return POLL_EVERY if next_due is None else min(POLL_EVERY, max(0.05, next_due - self._clock.now()))

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
        self.drop([job.id])  # an earlier run of it has lost its lease
        attempt = JobAttempt(job)
        self._attempts[attempt.lease] = attempt
        attempt.task = self._work.start(self._execute(attempt), f"job {job.id}")
        # Also if it is cancelled before it has begun, when nothing of `_execute` runs.
        attempt.task.add_done_callback(lambda _: self._forget(attempt))

    def _forget(self, attempt: JobAttempt) -> None:
        del self._attempts[attempt.lease]
        self._steps.wake()
        self._on_end()

    async def _execute(self, attempt: JobAttempt) -> None:
        began = self._clock.monotonic()
        outcome = await self._run(attempt)
        if outcome is not None:
            attempt.is_settling = True
            seconds = self._clock.monotonic() - began
            after = await settle_attempt(self._store, self._clock, attempt.job, outcome)
            if after is not None and after.state in _ENDS and not isinstance(outcome, JobReturned):
                self._events.publish(JobEnded(attempt.job.name, _ENDS[after.state], seconds))

    async def _run(self, attempt: JobAttempt) -> JobOutcome | None:
        job = attempt.job
        try:
            return await self._executor.run(job)
        except asyncio.CancelledError:  # the process stops, or the job was cancelled
            if attempt.is_lost:
                raise
            log.warning("job %s (%s) was cut off by a stop: it runs again, from its start", job.id, job.name)
            return JobReturned()
        except Exception as error:  # noqa: BLE001  (an error of ours: others must run)
            log.error("job %s (%s) could not be started:\n%s", job.id, job.name, traceback_text(error))  # noqa: TRY400
            return JobReturned(after=job.pause)

    async def _end_attempts(self) -> None:
        """Let the jobs end that can in time. The others give theirs back, if the database can be reached."""
        if running := [attempt.task for attempt in self._attempts.values()]:
            log_wait(log, STOP_GRACE, tasks=len(running))
            _, late = await asyncio.wait(running, timeout=STOP_GRACE)
            for attempt in self._attempts.values():
                if not attempt.is_settling:  # else its result would be lost
                    attempt.task.cancel()
            if late:
                await asyncio.wait(late, timeout=STOP_GRACE)
        await self._work.stop()

    async def _keep_leases(self) -> None:
        while True:
            await self._clock.sleep(RUN_LEASE / 3)
            with suppress(StoreError):  # logged by the loop that claims; another process may run these again
                await self._renew()

    async def _renew(self) -> None:
        began = self._clock.monotonic()
        held = [
            attempt
            for attempt in self._attempts.values()
            if attempt.job.state is JobState.RUNNING and not attempt.is_lost
        ]
        if held:
            renewed = await self._store.renew([attempt.lease for attempt in held], RUN_LEASE)
            for attempt in held:
                if attempt.job.id not in renewed:
                    _abandon(attempt)
        self._renewed_at = began

    async def _clean(self) -> None:
        now = self._clock.monotonic()
        if self._cleaned_at is None or now - self._cleaned_at > CLEAN_EVERY:
            self._cleaned_at = now
            too_old = self._clock.now() - self._keep
            await self._store.remove(ended_before=too_old)
            await self._store.remove(ended_before=too_old - self._keep, unreported=True)


def _abandon(attempt: JobAttempt) -> None:
    """End the run of a job that is not this process's any more. One that has run learns that by settling."""
    if not attempt.is_settling and not attempt.is_lost:  # a second time would cut its end off
        attempt.is_lost = True
        attempt.task.cancel()


async def settle_attempt(
    store: JobStore, clock: Clock, job: JobRecord, outcome: JobOutcome
) -> JobRecord | None:
    """Note the end of an attempt, however long the database is away. Returns the job after it."""
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
            return after


def _log_end(job: JobRecord, after: JobRecord | None) -> None:
    """Log what became of an attempt. Successes are not worth a line."""
    if after is None:
        log.warning("job %s (%s) has ended too late: it was cancelled, or runs elsewhere", job.id, job.name)
    elif after.state is JobState.DEAD:
        log.error("job %s (%s) is dead: %s", job.id, job.name, after.error)
    elif after.state is JobState.QUEUED and after.attempts + after.crashes > job.attempts + job.crashes:
        pause = f"in {job.pause:g} s" if after.attempts > job.attempts else "at once"
        log.warning("job %s (%s) has failed, and runs again %s: %s", job.id, job.name, pause, after.error)
