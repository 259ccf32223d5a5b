"""Schedules in words, as people write them. Pure."""

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from typing import Final, assert_never

from tidegate.reminders.reminder import Cron, Daily, EveryDays, NewReminder, Once, Spread, Weekly
from tidegate.reminders.schedule_parser import DAYS

_ANY_DATE: Final = date(2000, 1, 1)


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
        return clock_words(at)
    end = datetime.combine(_ANY_DATE, at) + timedelta(seconds=spread.seconds)
    return f"{clock_words(at)}-{clock_words(end.time())}"


def clock_words(at: time) -> str:
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
