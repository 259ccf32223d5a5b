"""`tidegate jobs`: list the jobs that bots have submitted, show, cancel and retry them."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.messages import amount, chat_of
from tidegate.cli.options import AsJson, OfChat, Store, Yes, command_group
from tidegate.cli.reminders.options import naming_the_database
from tidegate.cli.store import Result, using_gate
from tidegate.cli.terminal import confirm, printable
from tidegate.cli.times import distance, moment, short_moment, span
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.jobs.record import JobRecord, JobState
from tidegate.ops.reports import bounded, job_json

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate

app = command_group("List the jobs that bots have submitted; show, cancel and retry them.")

NONE: Final = "No jobs. A bot submits them, with @gate.job above a function."
LARGEST_ID: Final = 2**63 - 1
PAGE: Final = 500  # jobs that are retried in a step
MOST_LINES: Final = 100
STYLES: Final = {JobState.DEAD: "red", JobState.DONE: "green", JobState.RUNNING: "cyan"}
TIMES: Final = {
    "created_at": "submitted",
    "started_at": "begun",
    "ended_at": "ended",
}


def _checked_id(given: Any) -> Any:  # noqa: ANN401  (one number or several)
    """Check numbers that a database has to hold; a range would be shown in --help with all its digits."""
    for number in given if isinstance(given, list) else [given]:
        if number is not None and not 0 < number <= LARGEST_ID:
            raise typer.BadParameter("ids of jobs are 1 or more, as shown by jobs list")
    return given


_ID: Final = "As shown by jobs list."
Id = Annotated[int, typer.Argument(metavar="ID", callback=_checked_id, help=_ID)]
Ids = Annotated[list[int], typer.Argument(metavar="ID", callback=_checked_id, help=_ID)]
SomeIds = Annotated[list[int] | None, typer.Argument(metavar="[ID]", callback=_checked_id, help=_ID)]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only jobs of this name.")]
OneState = Annotated[JobState | None, typer.Option("--state", help="Only in this state.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="At most this many.")]
Before = Annotated[
    int | None,
    typer.Option("--before", metavar="ID", callback=_checked_id, help="Only those with a smaller id."),
]
Dead = Annotated[bool, typer.Option("--dead", help="All that are dead, or those of --name.")]


@app.command("list", epilog="[b]Try it:[/b]  tidegate jobs list --state dead --name label")
def list_(
    *,
    state: OneState = None,
    name: Name = None,
    chat: OfChat = None,
    limit: Limit = 20,
    before: Before = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first, and how many of each name are in which state."""
    chat_id, states = chat_of(chat), [state] if state else []

    async def look(gate: "Tidegate") -> tuple[dict[str, dict[str, int]], list[JobRecord]]:
        found = await gate.jobs.list(
            states=states, name=name, chat_id=chat_id, before=before, limit=limit + 1
        )  # one more than asked for tells whether there are more
        return queue_lengths(await gate.jobs.counts()), found

    queues, jobs = _if_any(store, look) or ({}, [])
    more, jobs = len(jobs) > limit, jobs[:limit]
    found = {"queues": queues, "jobs": list(map(job_json, jobs)), "more": more}
    lines: list[RenderableType] = [f"{one}: {_in_words(states)}" for one, states in queues.items()]
    if jobs:
        lines.append(job_table(jobs, Clock().now()))
    else:
        lines.append("No such job." if queues else NONE)
    rest = [Text(f"For more: --before {jobs[-1].id}, or --limit", style="dim")] if more else []
    terminal.report(found, *lines, *rest, as_json=as_json)


@app.command()
def show(job_id: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Show everything known of a job: its arguments, its attempts, and its result or error.

    Long values are cut short, and bytes and files are shown by their sizes.
    """
    [job] = _in_jobs(store, lambda gate: find_jobs(gate, [job_id]))
    terminal.report(job_json(job), job_details(job, Clock().now()), as_json=as_json)


@app.command()
def cancel(ids: Ids, *, store: Store = None, as_json: AsJson = False) -> None:
    """Cancel jobs. One that runs is stopped within seconds; on Celery its result is thrown away."""

    async def act(gate: "Tidegate") -> tuple[list[JobRecord], list[JobRecord]]:
        jobs = await find_jobs(gate, ids)
        return jobs, await gate.jobs.cancel(*(job.id for job in jobs))

    _report_change("cancelled", *_in_jobs(store, act), "had ended already", as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  tidegate jobs retry --dead --name label")
def retry(
    ids: SomeIds = None,
    *,
    dead: Dead = False,
    name: Name = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Queue jobs that are dead, cancelled or sent again, as if they were new: by ids, or all that are dead.

    Their functions run from the start. Asks before it retries all that are dead.
    """
    if bool(ids) == dead or (name is not None and not dead):
        raise BadInputError("say which jobs: their ids, or --dead, to which --name can be added")

    async def look(gate: "Tidegate") -> list[JobRecord]:
        return await (find_dead(gate, name) if dead else find_jobs(gate, ids or []))

    jobs = _in_jobs(store, look)
    if dead and jobs:
        confirm(f"Retry {amount(len(jobs), 'dead job')}?", yes=yes)

    async def act(gate: "Tidegate") -> list[JobRecord]:
        return [
            job
            for at in range(0, len(jobs), PAGE)
            for job in await gate.jobs.retry(*(one.id for one in jobs[at : at + PAGE]))
        ]

    _report_change(
        "queued again", jobs, _in_jobs(store, act), "is not dead, cancelled or sent", as_json=as_json
    )


async def find_jobs(gate: "Tidegate", ids: Sequence[int]) -> list[JobRecord]:
    """Return the jobs of these ids, each once. Raises BadInputError for one that is unknown."""
    found = {number: await gate.jobs.get(number) for number in dict.fromkeys(ids)}
    for number, job in found.items():
        if job is None:
            raise BadInputError(f"there is no job {number}, or it has ended long ago: see tidegate jobs list")
    return [job for job in found.values() if job is not None]


async def find_dead(gate: "Tidegate", name: str | None) -> list[JobRecord]:
    """Return every dead job of a name, or of all, except those whose rows cannot be read."""
    found: list[JobRecord] = []
    before: int | None = None
    while page := await gate.jobs.list(states=[JobState.DEAD], name=name, before=before, limit=PAGE):
        found += [job for job in page if not (job.error or "").startswith("unreadable: ")]
        before = page[-1].id
    return found


def queue_lengths(counts: Mapping[tuple[str, JobState], int]) -> dict[str, dict[str, int]]:
    """Return how many jobs are in each state, by name."""
    names = sorted({name for name, _ in counts})
    return {
        name: {str(state): counts[name, state] for state in JobState if (name, state) in counts}
        for name in names
    }


def _in_words(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in states.items())


def job_table(jobs: Sequence[JobRecord], now: float) -> Table:
    """Show one row each. In a terminal of 80 columns the texts are cut short."""
    told = any(job.chat_id is not None for job in jobs)
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    for title in ("id", "state", "name", *(["chat"] if told else []), "submitted"):
        rows.add_column(title, no_wrap=True, overflow="ellipsis")
    rows.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    for job in jobs:
        rows.add_row(
            str(job.id),
            Text(job.state, STYLES.get(job.state, "")),
            Text(printable(job.name)),
            *(["" if job.chat_id is None else printable(job.chat_id)] if told else []),
            short_moment(job.created_at, now),
            Text(printable(progress_of(job, now))),
        )
    return rows


def progress_of(job: JobRecord, now: float) -> str:
    """Return how far a job is, in words."""
    match job.state:
        case JobState.QUEUED if job.due_at is not None and (job.due_at > now or job.error):
            begins = f"begins {distance(max(now, job.due_at), now)}"
            return f"{begins}, after {_failures(job)}: {job.error}" if job.error else begins
        case JobState.RUNNING if job.started_at is not None:
            return f"for {span(max(0.0, now - job.started_at))}"
        case JobState.DEAD:
            return job.error or ""
        case JobState.DONE if job.started_at is not None and job.ended_at is not None:
            return f"took {span(job.ended_at - job.started_at)}"
    return ""


def _failures(job: JobRecord) -> str:
    parts = ((job.attempts, "failed attempt"), (job.crashes, "crash"))
    return " and ".join(
        amount(count, thing, "crashes" if thing == "crash" else None) for count, thing in parts if count
    )


def job_details(job: JobRecord, now: float) -> RenderableType:
    """Show what is known, one thing a line; then the arguments and the result."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for title, value in _known_of(job, now):
        grid.add_row(title, Text(printable(value), STYLES.get(job.state, "") if title == "state" else ""))
    parts: list[RenderableType] = [grid]
    arguments = [*job.args, *({name: value} for name, value in job.kwargs.items())]
    for title, value in (("arguments", arguments), ("result", job.result)):
        if value not in (None, []):
            parts += [Text(title, style="dim"), Text(_indented(bounded(value)))]
    return Group(*parts)


def _known_of(job: JobRecord, now: float) -> Iterable[tuple[str, object]]:
    yield from (("id", job.id), ("name", job.name), ("state", job.state))
    for field in ("key", "bot", "chat_id"):
        if (value := getattr(job, field)) is not None:
            yield field, value
    for field, title in TIMES.items():
        if (at := getattr(job, field)) is not None:
            yield title, moment(at, now)
    if job.due_at is not None:
        yield "begins" if job.state is JobState.QUEUED else "held until", moment(job.due_at, now)
    yield "attempts", f"{job.attempts:,} failed, of {job.retries + 1:,}; {job.pause:g} s between two"
    if job.crashes:
        yield "crashes", job.crashes
    yield "timeout", f"{job.timeout:g} s"
    if job.error is not None:
        yield "error", job.error


def _indented(value: object) -> str:
    lines = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"… and {len(lines) - MOST_LINES:,} lines"]
    return "\n".join(f"  {printable(line)}" for line in lines)


def _report_change(
    done: str, jobs: Sequence[JobRecord], changed: Sequence[JobRecord], why_not: str, *, as_json: bool
) -> None:
    """Say how many were changed, and which were not."""
    ids = {job.id for job in changed}
    left = [job for job in jobs if job.id not in ids]
    lines = [f"{amount(len(changed), 'job')} {done}."]
    lines += [f"Job {job.id} {why_not}: it is {job.state}." for job in left]
    found = {done.replace(" ", "_"): sorted(ids), "unchanged": {str(job.id): str(job.state) for job in left}}
    terminal.report(found, *lines, as_json=as_json)


def _if_any(store: str | None, work: "Callable[[Tidegate], Awaitable[Result]]") -> Result | None:
    """Run `work` if there may be jobs: looking at them creates no database."""

    async def look(gate: "Tidegate") -> Result | None:
        return await work(gate) if await gate.jobs.exist() else None

    with naming_the_database():
        return using_gate(store, look)


def _in_jobs(store: str | None, work: "Callable[[Tidegate], Awaitable[Result]]") -> Result:
    async def look(gate: "Tidegate") -> Result:
        if not await gate.jobs.exist():
            raise BadInputError("there are no jobs here: a bot submits them, with @gate.job above a function")
        return await work(gate)

    with naming_the_database():
        return using_gate(store, look)
