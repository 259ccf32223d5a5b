"""The record of a job: what is to run, how far it is, and what became of it. Values and pure decisions."""

from enum import StrEnum
from typing import Any, Final

import msgspec

from tidegate.model import BotId, ChatId

CRASHES_BEFORE_DEATH: Final = 5  # processes that a job may take down with it


class JobState(StrEnum):
    """queued ─▶ (sent ─▶) running ─▶ done | dead; after a failure queued again. cancelled from any of them.

    `sent`: a broker has it, and no worker has begun yet.
    """

    QUEUED = "queued"
    SENT = "sent"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


ENDED: Final = frozenset({JobState.DONE, JobState.DEAD, JobState.CANCELLED})


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a caller submits it. Validated where it is made: see `Job` in job.py."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    retries: int = 3
    pause: float = 60.0  # seconds between two attempts
    timeout: float = 300.0  # seconds of one attempt
    key: str | None = None  # unique for a name: submitted again, the first one is returned
    bot: BotId | None = None  # that tells the chat
    chat_id: ChatId | None = None  # that gets the result
    delay: float = 0.0  # seconds before it may begin


class JobRecord(NewJob, frozen=True, kw_only=True):
    """A stored job. Times are seconds since the Unix epoch."""

    id: int
    created_at: float
    state: JobState = JobState.QUEUED
    token: int = 0  # raised with each claim: who holds an older one cannot settle the job any more
    attempts: int = 0  # that failed
    crashes: int = 0  # of the process in which it ran: counted apart
    due_at: float | None = None  # when it may begin, or its lease ends; None: it has ended
    started_at: float | None = None
    ended_at: float | None = None
    result: Any = None  # of the function
    error: str | None = None  # of the last attempt that failed

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def message_key(self) -> str:
        """The dedup key of the message about its end: it is put once, however often that is tried."""
        return f"job:{self.id}:{self.created_at:.3f}:{self.token}"


class JobDone(msgspec.Struct, frozen=True):
    """The function has returned."""

    result: Any


class JobFailed(msgspec.Struct, frozen=True):
    """The attempt has failed: the function raised, or took too long. `final`: trying again cannot help."""

    error: str
    final: bool = False


class JobCrashed(msgspec.Struct, frozen=True):
    """The process in which it ran has died. That counts apart: the job may not be the cause."""

    error: str


class JobReturned(msgspec.Struct, frozen=True):
    """It has not run, or was cut off by a stop: it is queued again, and nothing is counted."""

    after: float = 0.0  # seconds


JobOutcome = JobDone | JobFailed | JobCrashed | JobReturned


def settle_job(job: JobRecord, outcome: JobOutcome, now: float) -> JobRecord:
    """Return the job after an attempt. It dies after its retries, or of CRASHES_BEFORE_DEATH crashes."""
    match outcome:
        case JobDone(result):
            ended = {"state": JobState.DONE, "result": result, "error": None, "due_at": None, "ended_at": now}
            return msgspec.structs.replace(job, **ended)
        case JobFailed(error, final):
            attempts = job.attempts + 1
            job = msgspec.structs.replace(job, attempts=attempts, error=error)
            return _dead(job, now) if final or attempts > job.retries else _queued(job, now + job.pause)
        case JobCrashed(error):
            job = msgspec.structs.replace(job, crashes=job.crashes + 1, error=error)
            return _dead(job, now) if job.crashes >= CRASHES_BEFORE_DEATH else _queued(job, now)
        case JobReturned(after):
            return _queued(job, now + after)


def retry_job(job: JobRecord, now: float) -> JobRecord:
    """Return a job that has ended as if it were new. Its function runs again, from the start."""
    fresh = {"attempts": 0, "crashes": 0, "error": None, "result": None, "ended_at": None, "started_at": None}
    return _queued(msgspec.structs.replace(job, **fresh), now)


def cancel_job(job: JobRecord, now: float) -> JobRecord:
    return msgspec.structs.replace(job, state=JobState.CANCELLED, due_at=None, ended_at=now)


def claim_job(job: JobRecord, state: JobState, now: float, lease: float) -> JobRecord:
    """Return the job held by whoever claims it. One that was running has lost its process."""
    if job.state is JobState.RUNNING:
        job = settle_job(job, JobCrashed("its process ended while it ran"), now)
        if job.has_ended:
            return job
    changes = {"state": state, "token": job.token + 1, "due_at": now + lease}
    if state is JobState.RUNNING:
        changes["started_at"] = now
    return msgspec.structs.replace(job, **changes)


def _dead(job: JobRecord, now: float) -> JobRecord:
    return msgspec.structs.replace(job, state=JobState.DEAD, due_at=None, ended_at=now)


def _queued(job: JobRecord, at: float) -> JobRecord:
    return msgspec.structs.replace(job, state=JobState.QUEUED, due_at=at)
