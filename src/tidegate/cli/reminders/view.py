"""How reminders are shown: schedules in words, tables, JSON."""

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.terminal import printable
from tidegate.cli.times import distance, moment
from tidegate.ops.reports import local_time, state_of, without_files
from tidegate.reminders.reminder import (
    NewReminder,
    QuietHours,
    Reminder,
    Spread,
)
from tidegate.reminders.schedule_words import clock_words, schedule_words

MADE_KEY: Final = "file:"  # the beginning of keys that an import makes, of no use to people
LONGEST_KEY: Final = 16  # characters that are shown in a column
STYLES: Final = {"paused": "yellow", "ended": "dim"}


def summary(new: NewReminder) -> str:
    """Return the text of its message, or what makes it."""
    if new.handler is not None:
        return f"handler {new.handler}"
    return str(new.fields.get("text") or new.fields.get("caption") or new.fields.get("method", ""))


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
    return f"{clock_words(quiet.start)}-{clock_words(quiet.end)}"
