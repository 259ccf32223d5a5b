"""Pages of what makes a bot speak: polling, reminders, jobs and flows."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

from markupsafe import Markup

from tidegate.errors import BadInputError
from tidegate.flows.drawing import draw_svg
from tidegate.jobs.record import JobState
from tidegate.ops.access import Role
from tidegate.ops.api.flows import FlowSummary, find_flow, list_flows, show_flow
from tidegate.ops.api.jobs import count_jobs, list_jobs, show_job
from tidegate.ops.api.parameters import LARGEST_ROW
from tidegate.ops.api.problems import NOT_FOUND, ProblemError
from tidegate.ops.api.reminders import (
    ReminderForecast,
    count_reminders,
    forecast_reminders,
    list_reminders,
)
from tidegate.ops.api.routes import RouteAccess, Scope
from tidegate.ops.api.status import show_polling
from tidegate.ops.dashboard import charts
from tidegate.ops.dashboard.formats import number, plural
from tidegate.ops.dashboard.page import Context, PageRequest, PageTable
from tidegate.reminders.occurrences import time_zone

PAGES = PageTable()
ROWS = 50
STEPS: Final = {"600": "ten minutes", "3600": "hour"}
DEFAULT_ZONE: Final = "UTC"
LONGEST_ZONE: Final = 100  # characters
JOB_STATES: Final = tuple(JobState)
RETRIED: Final = frozenset((JobState.DEAD, JobState.CANCELLED))
CANCELLED: Final = frozenset((JobState.QUEUED, JobState.SENT, JobState.RUNNING))
VIEWER = RouteAccess(Role.VIEWER, Scope.FILTER)


@PAGES.page("/sources", "sources.html", "Sources", VIEWER, every=5.0)
async def sources_page(asked: PageRequest) -> Context:
    """Show the sources of messages, in numbers. A token of one bot does not see those of all bots."""
    call = asked.call
    sees_all = call.principal.bot is None
    return {
        "flows": (await list_flows(call)).items,
        "pollers": (await show_polling(call)).items if sees_all else None,
        "reminders": await count_reminders(call) if sees_all else None,
        "jobs": await count_jobs(call) if sees_all else None,
    }


@PAGES.page("/polling", "polling.html", "Polling", RouteAccess(Role.VIEWER, Scope.ALL), every=2.0)
async def polling_page(asked: PageRequest) -> Context:
    return {"pollers": (await show_polling(asked.call)).items}


@PAGES.page("/reminders", "reminders.html", "Reminders", VIEWER, every=30.0)
async def reminders_page(asked: PageRequest) -> Context:
    """When reminders fire, today and in the next hour, and a list of them."""
    call, bot = asked.call, asked.number("bot")
    zone = (asked.one("zone") or DEFAULT_ZONE)[:LONGEST_ZONE]
    step = asked.one("step") or "600"
    if step not in STEPS:
        raise BadInputError(f"step is one of {', '.join(STEPS)}: seconds of a bar")
    chat, user, cursor = asked.one("chat"), asked.number("user"), asked.one("cursor")
    length: Literal[600, 3600] = 3600 if step == "3600" else 600
    day = await forecast_reminders(call, bot=bot, zone=zone, span="day", step=length)
    hour = await forecast_reminders(call, bot=bot, zone=zone, span="hour")
    found = await list_reminders(call, bot=bot, chat_id=chat, user_id=user, cursor=cursor, limit=ROWS)
    kept = {"bot": bot, "chat": chat, "user": user, "zone": zone, "step": step}
    query = urlencode({name: value for name, value in kept.items() if value is not None})
    return {
        **kept,
        "steps": STEPS,
        "day": _bars(day, "%H:%M", every=6),
        "hour": _bars(hour, "%H:%M", every=4),
        "reminders": found.items,
        "next_cursor": found.next_cursor,
        "cursor": cursor,
        "here": f"/reminders?{query}",
    }


def _bars(forecast: ReminderForecast, style: str, *, every: int) -> dict[str, Any]:
    """Return a forecast as a chart, with some of the times below it."""
    zone, length = time_zone(forecast.zone), len(forecast.counts)

    def at(moment: float) -> str:
        return dt.datetime.fromtimestamp(moment, zone).strftime(style)

    times = [at(forecast.starts_at + forecast.step * done) for done in range(length + 1)]
    most = f", {number(forecast.most)} at most" if forecast.most else ""
    title = (
        f"{plural(forecast.total, 'reminder')} due, from {times[0]} to {times[-1]} in {forecast.zone}{most}"
    )
    return {
        "svg": charts.bar_chart(forecast.counts, times[:-1], title),
        "scale": [number(charts.nice_top(forecast.most)), "0"],
        "marks": _marks(times, every),
        "total": forecast.total,
        "most": forecast.most,
        "most_at": at(forecast.most_at) if forecast.most_at is not None else "",
    }


def _marks(times: Sequence[str], parts: int) -> list[str]:
    """Return some of the times, evenly: the first, the last, and those between."""
    return [times[round(at * (len(times) - 1) / parts)] for at in range(parts + 1)]


@PAGES.page("/jobs", "jobs.html", "Jobs", VIEWER, every=3.0)
async def jobs_page(asked: PageRequest) -> Context:
    """How many jobs are in each state, and the newest of them."""
    call, cursor = asked.call, asked.one("cursor")
    state, name, bot = asked.one("state"), asked.one("name"), asked.number("bot")
    if state is not None and state not in set(JOB_STATES):
        raise BadInputError(f"state is one of {', '.join(JOB_STATES)}")
    states = None if state is None else [JobState(state)]
    found = await list_jobs(call, state=states, name=name, bot=bot, cursor=cursor, limit=ROWS)
    counts: dict[str, dict[JobState, int]] = {}
    if call.principal.bot is None:
        for one in (await count_jobs(call)).items:
            counts.setdefault(one.name, {})[one.state] = one.count
    kept = {"state": state, "name": name, "bot": bot}
    query = urlencode({field: value for field, value in kept.items() if value is not None})
    return {
        "jobs": found.items,
        "next_cursor": found.next_cursor,
        "cursor": cursor,
        "counts": counts,
        "states": JOB_STATES,
        "state": state,
        "name": name,
        "here": f"/jobs?{query}" if query else "/jobs",
    }


@PAGES.page("/jobs/{job}", "job.html", "Job", RouteAccess(Role.VIEWER, Scope.OBJECT), every=2.0)
async def job_page(asked: PageRequest) -> Context:
    text = str(asked.parts["job"])
    number_of = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_ROW)) else 0
    if not 0 < number_of <= LARGEST_ROW:
        raise ProblemError(NOT_FOUND, "there is no such job: its number is in the list of jobs")
    job = await show_job(asked.call, number_of)
    api = f"/api/v1/jobs/{job.id}"
    return {
        "job": job,
        "title": f"Job {job.id}",
        "retry": f"{api}/retry" if job.state in RETRIED else None,
        "cancel": f"{api}/cancel" if job.state in CANCELLED else None,
    }


@PAGES.page("/flows", "flows.html", "Flows", VIEWER, every=5.0)
async def flows_page(asked: PageRequest) -> Context:
    found = (await list_flows(asked.call, bot=asked.number("bot"))).items
    return {"flows": [(flow, _flow_page(flow)) for flow in found]}


@PAGES.page("/flows/{flow}", "flow.html", "Flow", RouteAccess(Role.VIEWER, Scope.OBJECT), every=3.0)
async def flow_page(asked: PageRequest) -> Context:
    """A flow as a picture, with how many people stand in each state."""
    name, bot = str(asked.parts["flow"]), asked.number("bot")
    view = await show_flow(asked.call, name, bot)
    counts = {state.name: state.people for state in view.states}
    running = find_flow(asked.call, name, bot)
    drawn = Markup(draw_svg(running.flow, counts, styled=False))  # noqa: S704  (every text in it is escaped)
    return {"flow": view, "drawn": drawn, "title": name}


def _flow_page(flow: FlowSummary) -> str:
    return f"/flows/{quote(flow.name, safe='')}?{urlencode({'bot': flow.bot})}"
