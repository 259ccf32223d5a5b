"""How reminders are shown: schedules in words, tables, JSON."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, Final, assert_never

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.messages import without_files
from tidegate.cli.terminal import printable
from tidegate.cli.times import distance, moment
from tidegate.errors import BadInputError
from tidegate.reminders.occurrences import time_zone
from tidegate.reminders.reminder import (
    Cron,
    Daily,
    EveryDays,
    NewReminder,
    Once,
    QuietHours,
    Reminder,
    Spread,
    Weekly,
)
from tidegate.reminders.schedule_parser import DAYS

MADE_KEY: Final = "file:"  # the beginning of keys that an import makes, of no use to people
LONGEST_KEY: Final = 16  # characters that are shown in a column
_ANY_DATE: Final = date(2000, 1, 1)
STYLES: Final = {"paused": "yellow", "ended": "dim"}


def state_of(reminder: Reminder) -> str:
    if reminder.has_ended:
        return "ended"
    return "paused" if reminder.paused else "active"


def schedule_words(new: NewReminder) -> str:
    """Return when it occurs: `every day at 09:00`, or `at 08:00-10:00` if it is spread."""
    spread = new.spread
    match new.schedule:
        case Once(at=at):
            return f"once, {at:%Y-%m-%d} {_window(at.time(), spread)}"
        case Daily(at=at):
            return f"every day at {_window(at, spread)}"
        case Weekly(at=at, days=days):
            return f"{days_words(days)} at {_window(at, spread)}"
        case EveryDays(at=at, days=days):
            return f"every {days} days at {_window(at, spread)}"
        case Cron(expression=expression):
            return f"cron {expression}" + (f", over {spread.seconds / 60:g} min" if spread else "")
    assert_never(new.schedule)


def days_words(days: Iterable[int]) -> str:
    """Return days of the week as people write them: `mon-fri`, `mon,wed`."""
    chosen = sorted(days)
    first, last = chosen[0], chosen[-1]
    if len(chosen) > 2 and last - first == len(chosen) - 1:  # noqa: PLR2004  (two are shorter as they are)
        return f"{DAYS[first][:3]}-{DAYS[last][:3]}"
    return ",".join(DAYS[day][:3] for day in chosen)


def _window(at: time, spread: Spread | None) -> str:
    if spread is None:
        return _clock(at)
    end = datetime.combine(_ANY_DATE, at) + timedelta(seconds=spread.seconds)
    return f"{_clock(at)}-{_clock(end.time())}"


def _clock(at: time) -> str:
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"


def local_time(at: float, zone: str) -> str:
    """Return the time on the clocks of a zone; of one that this machine does not know, in UTC."""
    try:
        tz = time_zone(zone)
    except BadInputError:
        return f"{datetime.fromtimestamp(at, time_zone('UTC')):%Y-%m-%d %H:%M} UTC"
    return f"{datetime.fromtimestamp(at, tz):%Y-%m-%d %H:%M}"


def summary(new: NewReminder) -> str:
    """Return the text of its message, or what makes it."""
    if new.handler is not None:
        return f"handler {new.handler}"
    return str(new.fields.get("text") or new.fields.get("caption") or new.fields.get("method", ""))


def reminder_json(reminder: Reminder) -> dict[str, Any]:
    """Return every field, `state`, and `next_local`: the time on the user's clocks."""
    shown = {name: getattr(reminder, name) for name in Reminder.__struct_fields__}
    plain: dict[str, Any] = msgspec.to_builtins(
        shown | {"fields": without_files(reminder.fields)}, builtin_types=()
    )
    local = None if reminder.next_at is None else local_time(reminder.next_at, reminder.zone)
    return plain | {"state": state_of(reminder), "next_local": local}


def reminder_table(reminders: Sequence[Reminder], now: float) -> Table:
    """Show one row each. In a terminal of 80 columns the texts are cut short."""
    keyed = any(map(_own_key, reminders))
    rows = _rows(reminders, "chat", *(["key"] if keyed else []), "when", "zone", "next")
    for one in reminders:
        state = state_of(one)
        waits = "" if one.next_at is None else distance(one.next_at, now)
        rows.add_row(
            str(one.id),
            *_bot_of(one, reminders),
            str(one.chat_id),
            *([Text(printable(_own_key(one)))] if keyed else []),
            schedule_words(one),
            one.zone,
            Text(waits if state == "active" else state, STYLES.get(state, "")),
            Text(printable(summary(one))),
        )
    return rows


def _own_key(one: Reminder) -> str:
    return "" if one.key is None or one.key.startswith(MADE_KEY) else one.key


def upcoming_table(reminders: Sequence[Reminder], now: float) -> Table:
    """Show when each is due, on the clocks of its user."""
    rows = _rows(reminders, "chat", "due", "zone", "")
    for one in reminders:
        at = one.next_at or now
        rows.add_row(
            str(one.id),
            *_bot_of(one, reminders),
            str(one.chat_id),
            local_time(at, one.zone),
            one.zone,
            distance(at, now),
            Text(printable(summary(one))),
        )
    return rows


def _rows(reminders: Sequence[Reminder], *columns: str) -> Table:
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    several = len({one.bot for one in reminders}) > 1
    for name in ("id", *(["bot"] if several else []), *columns):
        rows.add_column(name, no_wrap=True, max_width=LONGEST_KEY if name == "key" else None)
    rows.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    return rows


def _bot_of(one: Reminder, reminders: Sequence[Reminder]) -> list[str]:
    return [str(one.bot)] if len({other.bot for other in reminders}) > 1 else []


def reminder_details(reminder: Reminder, now: float) -> RenderableType:
    """Show everything that is set, one a line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    state = state_of(reminder)
    facts = {
        "id": reminder.id,
        "state": state,
        "bot": reminder.bot,
        "chat": reminder.chat_id,
        "user": reminder.user_id if reminder.user_id != reminder.chat_id else None,
        "key": reminder.key,
        "when": f"{schedule_words(reminder)}, {reminder.zone}",
        "next": _next_words(reminder, now),
        "spread": None if reminder.spread is None else spread_words(reminder.spread),
        "quiet": None if reminder.quiet is None else quiet_words(reminder.quiet),
        "not before": None if reminder.starts_at is None else local_time(reminder.starts_at, reminder.zone),
        "until": None if reminder.until is None else local_time(reminder.until, reminder.zone),
        "count": reminder.count,
        "late": reminder.late,
        "expires in": None if reminder.expires_in is None else f"{reminder.expires_in:g} s",
        "handler": reminder.handler,
        "added": moment(reminder.created_at, now),
        "so far": f"{reminder.fired:,} fired, {reminder.skipped:,} skipped, {reminder.merged:,} merged",
    }
    for name, value in facts.items():
        if value is not None:
            grid.add_row(name, Text(printable(value), STYLES.get(state, "") if name == "state" else ""))
    fields: object = without_files(reminder.fields)
    lines = [f"  {printable(name)}: {printable(value)}" for name, value in dict(fields).items()]  # type: ignore[call-overload]
    return Group(grid, Text("message", style="dim"), *map(Text, lines)) if lines else grid


def _next_words(reminder: Reminder, now: float) -> str | None:
    if reminder.next_at is None:
        return None
    return f"{local_time(reminder.next_at, reminder.zone)} there, {distance(reminder.next_at, now)}"


def spread_words(spread: Spread) -> str:
    return f"over {spread.seconds / 60:g} min, {spread.order}"


def quiet_words(quiet: QuietHours) -> str:
    return f"{_clock(quiet.start)}-{_clock(quiet.end)}"
