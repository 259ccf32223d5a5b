"""The reporter of jobs: tells the application and the chats how jobs have ended."""

import logging
from collections.abc import Mapping
from typing import Any, Final, Self

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.failure import pause_after, traceback_text
from tidegate.jobs.job import Job, JobCallback
from tidegate.jobs.port import JobLease, JobStore
from tidegate.jobs.record import JobRecord, JobState
from tidegate.model import BotId
from tidegate.outbox.producer import Producer
from tidegate.store_loop import StoreLoop
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.jobs")

POLL_EVERY: Final = 1.0  # seconds after which the end of a job that another process ran is found
REPORT_LEASE: Final = 60.0  # seconds: then a report that failed is tried again
REPORT_FOR: Final = 3600.0  # seconds in which a callback that fails is tried again
REPORTS_AT_ONCE: Final = 50
CALLBACK_DEADLINE: Final = 50.0  # seconds
KEY_LIFETIME: Final = 3 * 86_400.0  # seconds: longer than a database may be away after a message was put


class JobReporter:
    """`async with` it: the ends of jobs of the known names are reported while the body runs.

    Each is reported once, unless a process dies in between: its callback may be called again then. The
    message is put once in any case.
    """

    def __init__(
        self, store: JobStore, producer: Producer, clock: Clock, jobs: Mapping[str, Job[..., Any]]
    ) -> None:
        self._store = store
        self._producer = producer
        self._clock = clock
        self._jobs = jobs
        self._tasks = BackgroundTasks()
        self._reports = BackgroundTasks()
        self._reporting: set[JobLease] = set()  # not twice at once, however long the database is away
        self._steps = StoreLoop("reports of jobs", self.step, clock, log)

    async def __aenter__(self) -> Self:
        self._tasks.supervise(self._steps.run, "the reporter of jobs", self._clock)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.stop()
        await self._reports.stop()  # the next process reports those again

    def wake(self) -> None:
        """Look now: a job may have ended."""
        self._steps.wake()

    def problems(self) -> list[str]:
        return [*self._steps.problems(), *self._tasks.problems()]

    async def step(self) -> float:
        """Begin to report the jobs that have ended; return the seconds until there may be more."""
        if (room := REPORTS_AT_ONCE - len(self._reports)) <= 0:
            return POLL_EVERY
        ended = await self._store.claim_ended(self._jobs, room, REPORT_LEASE)
        for job in ended:  # side by side: a callback that is slow keeps no other from being called
            if JobLease(job.id, job.token) not in self._reporting:
                self._reports.start(self._report(job), f"report of job {job.id}")
        return 0.05 if len(ended) == room else POLL_EVERY

    async def _report(self, job: JobRecord) -> None:
        lease = JobLease(job.id, job.token)
        self._reporting.add(lease)
        try:
            if await self._tell(self._jobs[job.name], job):
                await self._note_reported(lease)
        finally:
            self._reporting.discard(lease)

    async def _tell(self, declared: Job[..., Any], job: JobRecord) -> bool:
        """Return whether that is done. If not, it is tried again when its lease has run out."""
        try:
            message = await self._message_about(declared, job)
            if message is not None and job.chat_id is not None:
                await self._send(declared, job, message)
        except StoreError as error:
            log.warning(
                "the end of job %s (%s) is told in a minute, and not lost: %s", job.id, job.name, error
            )
            return False
        except Exception as error:  # noqa: BLE001  (the application's)
            again = self._clock.now() < (job.ended_at or 0.0) + REPORT_FOR
            advice = "is called again in a minute" if again else "is not called any more"
            log.error(  # noqa: TRY400
                "the callback of job %s (%s) has failed, and %s:\n%s",
                job.id,
                job.name,
                advice,
                traceback_text(error),
            )
            return not again
        return True

    async def _note_reported(self, lease: JobLease) -> None:
        """However long the database is away: otherwise the callback would be called again."""
        failures = 0
        while True:
            try:
                return await self._store.reported(lease)
            except StoreError:  # logged by the loop that claims
                failures += 1
                await self._clock.sleep(pause_after(failures))

    async def _message_about(self, declared: Job[..., Any], job: JobRecord) -> Any:  # noqa: ANN401
        is_done = job.state is JobState.DONE
        callback: JobCallback | None = declared.done_callback if is_done else declared.failed_callback
        if callback is not None:
            async with self._clock.timeout(CALLBACK_DEADLINE):
                return await callback(job)
        return job.result if is_done else declared.options_of_job.failed_text

    async def _send(self, declared: Job[..., Any], job: JobRecord, message: object) -> None:
        try:
            await self._put(job, message)
        except BadInputError as error:
            log.error("the message of job %s (%s) cannot be sent: %s", job.id, job.name, error)  # noqa: TRY400
            if (text := declared.options_of_job.failed_text) is not None:
                await self._put(job, text)

    async def _put(self, job: JobRecord, message: object) -> None:
        if not isinstance(message, str | Mapping):
            kind = type(message).__name__
            raise BadInputError(f"it is of type {kind}: return a text, the fields of a message, or None")
        fields = {"text": message} if isinstance(message, str) else message
        key = {"dedup_key": job.message_key, "dedup_for": KEY_LIFETIME}
        made = self._producer.compose(BotId(job.bot or 0), {**fields, "chat_id": job.chat_id, **key})
        await self._producer.put([made])
