"""Routes of jobs: list, count, show, cancel, retry."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, Field

from tidegate.jobs.record import JobRecord, JobState
from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall, Call
from tidegate.ops.api.pagination import Cursor, ItemPage, Limit, decode_cursor, encode_cursor
from tidegate.ops.api.parameters import (
    BotField,
    BotFilter,
    ChatField,
    ChatFilter,
    RowPath,
    Seconds,
    chat_of,
)
from tidegate.ops.api.problems import CONFLICT, ProblemError
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope
from tidegate.ops.reports import job_json

ROUTES = RouteTable("jobs")
TEXTS = ("args", "kwargs", "result", "error")  # hidden from viewers


class JobView(BaseModel):
    """A job. Long values are cut short; a viewer gets null for arguments, result and error."""

    id: int
    name: str
    state: JobState
    bot: BotField | None
    chat_id: ChatField | None
    key: str | None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    result: Any = None
    error: str | None = None
    attempts: int = Field(description="That failed.")
    crashes: int
    retries: int
    pause: float
    timeout: float
    created_at: Seconds
    due_at: Seconds | None
    started_at: Seconds | None
    ended_at: Seconds | None


class JobPage(ItemPage[JobView]):
    """Jobs, the newest first."""


class JobCount(BaseModel):
    name: str
    state: JobState
    count: int


class JobCounts(BaseModel):
    """How many jobs of each name are in each state: the lengths of the queues."""

    items: list[JobCount]
    waiting: int = Field(description="Jobs that have not begun.")


def _view(call: ApiCall, job: JobRecord) -> JobView:
    hidden = () if call.sees_texts else TEXTS
    return JobView(**{name: value for name, value in job_json(job).items() if name not in hidden})


async def _find(call: ApiCall, job_id: int) -> JobRecord:
    """Return a job that the principal may see. Raises ProblemError. Creates no database."""
    found = await call.gate.jobs.get(job_id) if await call.gate.jobs.exist() else None
    if found is None:
        raise call.not_found(f"job {job_id}")
    call.check_own(found.bot, f"job {job_id}")
    return found


@ROUTES.get("/api/v1/jobs", RouteAccess(Role.VIEWER, Scope.FILTER), summary="List jobs")
async def list_jobs(
    call: Call,
    *,
    state: Annotated[list[JobState] | None, Query(description="Only in this state; repeatable.")] = None,
    name: Annotated[
        str | None, Query(max_length=200, description="Only with this name.", examples=["label"])
    ] = None,
    bot: BotFilter = None,
    chat_id: ChatFilter = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> JobPage:
    """Jobs, the newest first."""
    whose, before = call.bot_filter(bot), decode_cursor("jobs", cursor, int)
    if not await call.gate.jobs.exist():
        return JobPage(items=[])
    found = await call.gate.jobs.list(
        states=state or (), name=name, chat_id=chat_of(chat_id), bot=whose, before=before, limit=limit + 1
    )
    more = found[limit - 1].id if len(found) > limit else None
    return JobPage(items=[_view(call, job) for job in found[:limit]], next_cursor=encode_cursor("jobs", more))


@ROUTES.get("/api/v1/jobs/counts", RouteAccess(Role.VIEWER, Scope.ALL), summary="Count jobs")
async def count_jobs(call: Call) -> JobCounts:
    """The lengths of the queues, by the names of jobs."""
    counts = await call.gate.jobs.counts() if await call.gate.jobs.exist() else {}
    items = [JobCount(name=name, state=state, count=count) for (name, state), count in sorted(counts.items())]
    not_begun = {JobState.QUEUED, JobState.SENT}
    return JobCounts(items=items, waiting=sum(one.count for one in items if one.state in not_begun))


@ROUTES.get("/api/v1/jobs/{job_id}", RouteAccess(Role.VIEWER, Scope.OBJECT), summary="Show a job")
async def show_job(call: Call, job_id: RowPath) -> JobView:
    return _view(call, await _find(call, job_id))


@ROUTES.change(
    "POST",
    "/api/v1/jobs/{job_id}/cancel",
    RouteAccess(Role.OPERATOR, Scope.OBJECT),
    "jobs.cancel",
    summary="Cancel a job",
)
async def cancel_job(call: Call, job_id: RowPath) -> JobView:
    """Cancel a job that has not ended. One that runs is stopped within seconds."""
    job = await _find(call, job_id)
    cancelled = await call.gate.jobs.cancel(job.id)
    if not cancelled:
        raise ProblemError(CONFLICT, f"job {job_id} is {job.state}: it has ended", state=job.state)
    call.changed(bot=job.bot, target=job.id)
    return _view(call, cancelled[0])


@ROUTES.change(
    "POST",
    "/api/v1/jobs/{job_id}/retry",
    RouteAccess(Role.OPERATOR, Scope.OBJECT),
    "jobs.retry",
    summary="Retry a job",
)
async def retry_job(call: Call, job_id: RowPath) -> JobView:
    """Run a job that is dead or cancelled again, from its start."""
    job = await _find(call, job_id)
    queued = await call.gate.jobs.retry(job.id)
    if not queued:
        raise ProblemError(
            CONFLICT, f"job {job_id} is {job.state}: only dead ones are retried", state=job.state
        )
    call.changed(bot=job.bot, target=job.id)
    return _view(call, queued[0])
