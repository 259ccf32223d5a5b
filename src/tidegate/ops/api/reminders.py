"""Routes of reminders: list, add, pause, resume, skip, snooze, remove."""

import asyncio
import datetime as dt
import math
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall, Call
from tidegate.ops.api.pagination import Cursor, ItemPage, Limit, decode_cursor, encode_cursor
from tidegate.ops.api.parameters import (
    EXAMPLE_TIME,
    LARGEST_ROW,
    BotField,
    BotFilter,
    ChatField,
    ChatFilter,
    JsonBody,
    RowPath,
    Seconds,
    chat_of,
)
from tidegate.ops.api.problems import BAD_INPUT, ProblemError
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope
from tidegate.ops.reports import reminder_json
from tidegate.reminders.occurrences import all_zones
from tidegate.reminders.reminder import Reminder
from tidegate.reminders.schedule_words import schedule_words

ROUTES = RouteTable("reminders")
HOUR: Final = 3600.0
OPERATOR_OF_IT = RouteAccess(Role.OPERATOR, Scope.OBJECT)


class NewReminder(JsonBody):
    """When something is sent, and what: `text` and every other parameter as Telegram spells them.

    Say when with `every` ("day", "2 days", "week"), `days` ("mon-fri"), `date` or `cron`; with `at`, on the
    clocks of `zone`.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                "chat_id": 1001,
                "text": "Drink some water!",
                "at": "09:00",
                "every": "day",
                "zone": "Europe/Berlin",
            }
        },
    )

    bot: BotField | None = None
    chat_id: ChatField
    text: str | None = Field(default=None, max_length=100_000)
    at: str | None = Field(default=None, max_length=40, examples=["09:00"])
    every: str | None = Field(default=None, max_length=40, examples=["day"])
    days: str | None = Field(default=None, max_length=100, examples=["mon-fri"])
    cron: str | None = Field(default=None, max_length=200, examples=["0 9 * * mon-fri"])
    date: str | None = Field(default=None, max_length=40, examples=["2026-12-31"])
    zone: str | None = Field(default=None, max_length=100, examples=["Europe/Berlin"])
    spread: str | float | None = Field(
        default=None, description="Seconds, 30m, or 08:00-10:00 instead of `at`."
    )
    spread_order: Literal["stable", "random", "engagement"] | None = None
    quiet: str | None = Field(default=None, max_length=40, examples=["22:00-07:00"])
    start: str | float | None = Field(default=None, description="Nothing before: 2026-12-31, or seconds.")
    until: str | float | None = Field(default=None, description="Nothing after.")
    count: int | None = Field(default=None, description="How often in all.")
    late: Literal["fire", "skip", "merge"] | None = None
    key: str | None = Field(
        default=None, max_length=200, description="Added again, it replaces the reminder."
    )
    user_id: int | None = None
    engagement: float | None = None
    expires_in: str | float | None = Field(
        default=None, description="Seconds in which the message is of use, or 2h."
    )
    handler: str | None = Field(default=None, max_length=200)


class ReminderView(BaseModel):
    """A reminder. A viewer gets null for the fields of its message."""

    id: int
    bot: BotField
    chat_id: ChatField
    user_id: int
    state: Literal["active", "paused", "ended"]
    schedule: dict[str, Any]
    when: str = Field(description="The schedule in words.", examples=["every day at 09:00"])
    zone: str
    next_at: Seconds | None
    next_local: str | None = Field(description="The same on the clocks of the zone.")
    fields: dict[str, Any] | None
    key: str | None
    handler: str | None
    spread: dict[str, Any] | None
    engagement: float
    quiet: dict[str, Any] | None
    starts_at: Seconds | None
    until: Seconds | None
    count: int | None
    late: str
    expires_in: float | None
    created_at: Seconds
    occurrence_at: Seconds | None
    fired: int
    skipped: int
    merged: int


class ReminderPage(ItemPage[ReminderView]):
    """Reminders, by their ids."""


class ReminderNumbers(BaseModel):
    active: int
    paused: int
    ended: int
    due: int = Field(description="Of the active ones, now.")


class ReminderForecast(BaseModel):
    """How many reminders are due in each step of time. Each counts once, with its next time.

    So what has fired already is not there, and one that comes every hour is in one step.
    """

    bot: BotField | None
    zone: str
    starts_at: Seconds = Field(description="Midnight of today in the zone; for `hour` the present minute.")
    step: int = Field(description="Seconds.")
    counts: list[int] = Field(description="As many as the day has steps: it may have 23 or 25 hours.")
    total: int
    most: int = Field(description="In one step.")
    most_at: Seconds | None = Field(description="When the step with the most begins.")


class Snooze(JsonBody):
    """Until when: `seconds` from now, or a time."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"seconds": 600}})

    seconds: float | None = Field(default=None, gt=0, le=366 * 86_400)
    until: Seconds | None = Field(default=None, ge=0, le=1e11, examples=[EXAMPLE_TIME])


class Removed(BaseModel):
    removed: bool


def _view(call: ApiCall, reminder: Reminder) -> ReminderView:
    known = reminder_json(reminder) | {"when": schedule_words(reminder)}
    return ReminderView(**known | ({} if call.sees_texts else {"fields": None}))


async def _find(call: ApiCall, reminder_id: int) -> Reminder:
    """Return a reminder that the principal may see. Raises ProblemError. Creates no database."""
    reminders = call.gate.reminders
    found = await reminders.get(reminder_id) if await reminders.exist() else None
    if found is None:
        raise call.not_found(f"reminder {reminder_id}")
    call.check_own(found.bot, f"reminder {reminder_id}")
    return found


@ROUTES.get("/api/v1/reminders", RouteAccess(Role.VIEWER, Scope.FILTER), summary="List reminders")
async def list_reminders(
    call: Call,
    *,
    bot: BotFilter = None,
    chat_id: ChatFilter = None,
    user_id: Annotated[
        int | None, Query(ge=-LARGEST_ROW, le=LARGEST_ROW, description="Only of this user.", examples=[1001])
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> ReminderPage:
    """Reminders by their ids."""
    whose, after = call.bot_filter(bot), decode_cursor("reminders", cursor, int)
    if not await call.gate.reminders.exist():
        return ReminderPage(items=[])
    found = await call.gate.reminders.list(
        bot=whose, chat_id=chat_of(chat_id), user_id=user_id, after=after or 0, limit=limit + 1
    )
    more = found[limit - 1].id if len(found) > limit else None
    items = [_view(call, one) for one in found[:limit]]
    return ReminderPage(items=items, next_cursor=encode_cursor("reminders", more))


@ROUTES.get("/api/v1/reminders/counts", RouteAccess(Role.VIEWER, Scope.ALL), summary="Count reminders")
async def count_reminders(call: Call) -> ReminderNumbers:
    """How many reminders there are."""
    if not await call.gate.reminders.exist():
        return ReminderNumbers(active=0, paused=0, ended=0, due=0)
    return ReminderNumbers(**(await call.gate.reminders.counts())._asdict())


@ROUTES.get(
    "/api/v1/reminders/forecast", RouteAccess(Role.VIEWER, Scope.FILTER), summary="Forecast reminders"
)
async def forecast_reminders(
    call: Call,
    *,
    bot: BotFilter = None,
    zone: Annotated[str, Query(max_length=100, examples=["Europe/Berlin"])] = "UTC",
    span: Annotated[
        Literal["day", "hour"], Query(description="Today in the zone, or the next hour.")
    ] = "day",
    step: Annotated[
        Literal[60, 600, 3600] | None, Query(description="Seconds: 600 for a day, 60 for an hour.")
    ] = None,
) -> ReminderForecast:
    """How many reminders are due in each ten minutes of today, or in each minute of the next hour."""
    whose, now = call.bot_filter(bot), call.clock.now()
    place = (await asyncio.to_thread(all_zones)).get(zone)  # it reads files, once
    if place is None:
        raise ProblemError(BAD_INPUT, f"{zone} is not a time zone that is known here: write Europe/Berlin")
    start, end = (now - now % 60, now - now % 60 + HOUR) if span == "hour" else day_of(now, place)
    seconds = step or (60 if span == "hour" else 600)
    steps = math.ceil((end - start) / seconds)
    counts = [0] * steps
    if await call.gate.reminders.exist():
        counts = await call.gate.reminders.due_counts(start, seconds, steps, bot=whose)
    most = max(counts)
    return ReminderForecast(
        bot=whose,
        zone=zone,
        starts_at=start,
        step=seconds,
        counts=counts,
        total=sum(counts),
        most=most,
        most_at=start + seconds * counts.index(most) if most else None,
    )


def day_of(now: float, zone: dt.tzinfo) -> tuple[float, float]:
    """Return when today begins and ends on the clocks of a zone."""
    today = dt.datetime.fromtimestamp(now, zone).date()
    midnights = (dt.datetime.combine(day, dt.time(), zone) for day in (today, today + dt.timedelta(days=1)))
    start, end = (midnight.timestamp() for midnight in midnights)
    return start, end


@ROUTES.change(
    "POST",
    "/api/v1/reminders",
    RouteAccess(Role.OPERATOR, Scope.BODY),
    "reminders.add",
    status_code=201,
    summary="Add a reminder",
)
async def add_reminder(call: Call, new: NewReminder) -> ReminderView:
    """Send something when it is time, in the time zone of the user."""
    options = new.model_dump(exclude_unset=True, exclude={"bot", "chat_id"})
    added = await call.gate.reminders.add(new.chat_id, bot=await call.bot_for(new.bot), **options)
    call.changed(bot=added.bot, target=added.id)
    return _view(call, added)


@ROUTES.get(
    "/api/v1/reminders/{reminder_id}", RouteAccess(Role.VIEWER, Scope.OBJECT), summary="Show a reminder"
)
async def show_reminder(call: Call, reminder_id: RowPath) -> ReminderView:
    return _view(call, await _find(call, reminder_id))


@ROUTES.change(
    "DELETE",
    "/api/v1/reminders/{reminder_id}",
    OPERATOR_OF_IT,
    "reminders.remove",
    summary="Remove a reminder",
)
async def remove_reminder(call: Call, reminder_id: RowPath) -> Removed:
    """Delete a reminder, and cancel what is queued of it."""
    found = await _find(call, reminder_id)
    removed = await call.gate.reminders.remove(found.id)
    call.changed(bot=found.bot, target=found.id)
    return Removed(removed=removed == 1)


@ROUTES.change(
    "POST",
    "/api/v1/reminders/{reminder_id}/pause",
    OPERATOR_OF_IT,
    "reminders.pause",
    summary="Pause a reminder",
)
async def pause_reminder(call: Call, reminder_id: RowPath) -> ReminderView:
    """Stop a reminder until it is resumed. What is already queued of it is cancelled."""
    found = await _find(call, reminder_id)
    return _changed(call, await call.gate.reminders.pause(found.id))


@ROUTES.change(
    "POST",
    "/api/v1/reminders/{reminder_id}/resume",
    OPERATOR_OF_IT,
    "reminders.resume",
    summary="Resume a reminder",
)
async def resume_reminder(call: Call, reminder_id: RowPath) -> ReminderView:
    """Let a paused reminder go on with its next occurrence from now."""
    found = await _find(call, reminder_id)
    return _changed(call, await call.gate.reminders.resume(found.id))


@ROUTES.change(
    "POST",
    "/api/v1/reminders/{reminder_id}/skip",
    OPERATOR_OF_IT,
    "reminders.skip",
    summary="Skip the next occurrence",
)
async def skip_reminder(call: Call, reminder_id: RowPath) -> ReminderView:
    """Leave out the next occurrence, which may be queued already."""
    found = await _find(call, reminder_id)
    return _changed(call, await call.gate.reminders.skip_next(found.id))


@ROUTES.change(
    "POST",
    "/api/v1/reminders/{reminder_id}/snooze",
    OPERATOR_OF_IT,
    "reminders.snooze",
    summary="Snooze a reminder",
)
async def snooze_reminder(call: Call, reminder_id: RowPath, snooze: Snooze) -> ReminderView:
    """Remind again later, and not before. Then the schedule goes on."""
    if (snooze.seconds is None) == (snooze.until is None):
        raise ProblemError(BAD_INPUT, "say until when: give either seconds or until")
    found = await _find(call, reminder_id)
    now = call.clock.now()
    if snooze.until is not None and snooze.until <= now:
        raise ProblemError(BAD_INPUT, "until is past: give a time to come, or seconds from now")
    until = snooze.until if snooze.seconds is None else now + snooze.seconds
    return _changed(call, await call.gate.reminders.snooze(found.id, until or 0.0))


def _changed(call: ApiCall, reminder: Reminder) -> ReminderView:
    call.changed(bot=reminder.bot, target=reminder.id)
    return _view(call, reminder)
