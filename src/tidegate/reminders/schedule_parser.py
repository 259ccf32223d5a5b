"""Times as people write them: "09:00", "mon-fri", "2 days", "22:00-07:00", cron expressions, zones. Pure.

Each function raises BadInputError that says what was given and what to write instead.
"""

import datetime as dt
import difflib
import re
import reprlib
import zoneinfo
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

from cronsim import CronSim, CronSimError

from tidegate.errors import BadInputError
from tidegate.outbox.message_times import duration
from tidegate.reminders.occurrences import all_zones, instant
from tidegate.reminders.reminder import QuietHours

DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
LONGEST_SPAN: Final = 366 * 86_400.0
LONGEST_ABBREVIATION: Final = 4  # of a zone, such as AEST
LONGEST_TEXT: Final = 200  # characters: no schedule is longer
TEXTS_KEPT: Final = 4_096  # of one kind: the rows of a file repeat them
_GROUPS: Final = {"weekday": range(5), "weekend": range(5, 7), "day": range(7), "daily": range(7)}
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,3})?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATE_AND_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2})?", re.ASCII)
_EVERY = re.compile(r"(?:every )?(?:(\d{1,3}) ?)?(day|week)s?|(daily)|(weekly)", re.ASCII | re.IGNORECASE)
_CRON_FIELDS: Final = ("minute", "hour", "day-of-month", "month", "day-of-week")
_CRON_FORM: Final = "write five fields, minute hour day-of-month month day-of-week, such as 0 9 * * mon-fri"


class TimeWindow(NamedTuple):
    """From a local time to another one, "08:00-10:00". May include midnight."""

    start: dt.time
    end: dt.time

    @property
    def seconds(self) -> float:
        first, last = (time.hour * 3_600 + time.minute * 60 + time.second for time in self)
        return float((last - first) % 86_400)


def parse_time(given: object) -> dt.time:
    if isinstance(given, dt.time) and given.tzinfo is None:
        return given.replace(microsecond=0, fold=0)
    found = _time(given) if isinstance(given, str) else None
    if found is None:
        raise BadInputError(f"{_shown(given)} is not a time of day: write HH:MM, such as 09:00")
    return found


@lru_cache(TEXTS_KEPT)
def _time(text: str) -> dt.time | None:
    match = _TIME.fullmatch(text.strip())
    try:
        return dt.time(int(match[1]), int(match[2]), int(match[3] or 0)) if match is not None else None
    except ValueError:
        return None


def parse_zone(given: object) -> str:
    """Return the name of a zone. The nearest name is suggested for one that the database does not have."""
    name = given.key if isinstance(given, zoneinfo.ZoneInfo) else "UTC" if given is dt.UTC else given
    if isinstance(name, str) and name.strip() in all_zones():
        return name.strip()
    meant = _nearest_zone(name) if isinstance(name, str) else None
    hint = f"{meant} may be meant" if meant else "write one of the IANA database, such as Europe/Berlin"
    if isinstance(name, str) and not name.strip():
        raise BadInputError(f"the time zone is missing: {hint}")
    raise BadInputError(f"{_shown(name)} is not a time zone: {hint}")


@lru_cache(TEXTS_KEPT)  # it takes milliseconds, and the rows of a file repeat a mistake
def _nearest_zone(name: str) -> str | None:
    """Return a zone with a similar name, or with a city of a similar name."""
    wanted = "_".join(name[:LONGEST_TEXT].lower().split())
    names = {zone.lower(): zone for zone in sorted(all_zones())}
    if wanted not in names and any(letter.isdigit() for letter in wanted):
        return None  # "UTC+3" is near "UTC", which is three hours off
    cities = {lower.rpartition("/")[2]: zone for lower, zone in names.items() if "/" in lower}
    likeness = 1.0 if len(wanted) <= LONGEST_ABBREVIATION else 0.75  # "MSK" is near "Omsk", three hours off
    for known in (names, cities):
        if near := difflib.get_close_matches(wanted, known, 1, likeness):
            return known[near[0]]
    return None


def parse_days(given: object) -> frozenset[int]:
    """Read days of the week: "mon,wed", "mon-fri", "weekdays", or several of these; 0 is Monday."""
    parts: Iterable[object] = ()
    if isinstance(given, str):
        parts = re.split(r"[,;\s]+", given.strip())
    elif isinstance(given, Iterable):
        parts = given
    days = frozenset(day for part in parts for day in _day_range(part))
    if not days:
        _refuse_day(given)
    return days


def _day_range(given: object) -> Iterable[int]:
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < len(DAYS):
        return (given,)
    if not isinstance(given, str):
        _refuse_day(given)
    text = given.strip().lower()
    if group := _GROUPS.get(text.removesuffix("s")) or _GROUPS.get(text):
        return group
    first, dash, last = text.partition("-")
    start = _day(first)
    return ((start + n) % 7 for n in range((_day(last) - start) % 7 + 1)) if dash else (start,)


def _day(text: str) -> int:
    found = [number for number, day in enumerate(DAYS) if text == day or text == day[:3]]
    return found[0] if found else _refuse_day(text)


def _refuse_day(given: object) -> NoReturn:
    raise BadInputError(
        f"{_shown(given)} is not a day of the week: write mon, tue, wed, thu, fri, sat or sun, "
        "or several as mon,wed or mon-fri, or weekdays"
    )


def parse_every(given: object) -> int:
    """Return the number of days of "day", "2 days", "week", "3 weeks"."""
    match = _EVERY.fullmatch(" ".join(given.split())) if isinstance(given, str) else None
    days = 0
    if match is not None:
        is_week = match[4] or (match[2] or "").lower() == "week"
        days = int(match[1] or 1) * (7 if is_week else 1)
    if not days:
        raise BadInputError(
            f"{_shown(given)} is not an interval: write day, 2 days, week or 3 weeks; "
            "for hours and minutes, a cron expression such as 0 */2 * * *"
        )
    return days


def parse_cron(given: object) -> str:
    if not isinstance(given, str):
        raise BadInputError(f"{_shown(given)} is not a cron expression: {_CRON_FORM}")
    text = " ".join(given.split())
    if reason := _flaw_of_cron(text):
        raise BadInputError(f"{_shown(text)} is not a cron expression: {reason}; {_CRON_FORM}")
    return text


@lru_cache(TEXTS_KEPT)
def _flaw_of_cron(text: str) -> str | None:
    parts = text.split()
    if len(parts) != len(_CRON_FIELDS) or len(text) > LONGEST_TEXT:
        return f"it has {len(parts)} fields"
    try:
        CronSim(text, dt.datetime.fromtimestamp(0, dt.UTC))
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        if field not in _CRON_FIELDS:
            return str(error)
        return f"the {field} cannot be {_shown(parts[_CRON_FIELDS.index(field)])}"
    except (ValueError, AssertionError):  # numbers of thousands of digits, and what cronsim does not expect
        return "it cannot be read"
    return None


def parse_date(given: object) -> dt.date:
    if isinstance(given, dt.date) and not isinstance(given, dt.datetime):
        return given
    try:
        if isinstance(given, str) and _DATE.fullmatch(given.strip()):
            return dt.date.fromisoformat(given.strip())
    except ValueError:  # such as the 30th of February
        pass
    raise BadInputError(f"{_shown(given)} is not a date: write YYYY-MM-DD, such as 2026-12-31")


def parse_date_and_time(text: str) -> dt.datetime | None:
    """Read "2026-12-31 09:00", also with an offset; None if it is something else."""
    try:
        return dt.datetime.fromisoformat(text.strip()) if _DATE_AND_TIME.fullmatch(text.strip()) else None
    except ValueError:
        return None


def parse_moment(name: str, given: object, zone: str, now: float, *, end_of_day: bool = False) -> float:
    """Return an instant: of a timedelta from now, a number from the epoch, a date and time, or a date.

    Those without an offset are meant in the zone. A date is its first second, or its last.
    """
    try:
        return _moment(given, zone, now, end_of_day)
    except (BadInputError, OverflowError, ValueError, OSError):  # OSError: far beyond the calendar
        form = "write a date, such as 2026-12-31, or with its time, 2026-12-31 18:00"
        raise BadInputError(f"{name}: {_shown(given)} is not a time: {form}") from None


def _moment(given: object, zone: str, now: float, end_of_day: bool) -> float:  # noqa: FBT001
    if isinstance(given, dt.timedelta):
        return now + given.total_seconds()
    if isinstance(given, int | float) and not isinstance(given, bool):
        # Also refuses infinity and NaN: the calendar does not have them.
        return dt.datetime.fromtimestamp(given, dt.UTC).timestamp()
    moment = parse_date_and_time(given) if isinstance(given, str) else given
    if isinstance(moment, dt.datetime):
        return instant(moment, zone) if moment.utcoffset() is None else moment.timestamp()
    date = parse_date(given) + dt.timedelta(days=end_of_day)
    return instant(dt.datetime.combine(date, dt.time()), zone) - end_of_day


def parse_window(given: object) -> TimeWindow:
    start_text, _, end_text = given.partition("-") if isinstance(given, str) else ("", "", "")
    start, end = _time(start_text), _time(end_text)
    if start is None or end is None or start == end:
        raise BadInputError(f"{_shown(given)} is not a range of times: write two, such as 22:00-07:00")
    return TimeWindow(start, end)


def parse_quiet_hours(given: object) -> QuietHours:
    return given if isinstance(given, QuietHours) else QuietHours(*parse_window(given))


def parse_span(name: str, given: object) -> float:
    """Return seconds above 0: of a number, a timedelta, "90", "30m", "2h"."""
    if isinstance(given, dt.timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, str):
        seconds = float(given) if _SECONDS.fullmatch(given.strip()) else duration(name, given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = given
    else:
        raise BadInputError(f"{name}: {_shown(given)} is not a duration: give seconds, or such as 30m or 2h")
    if not 0 < seconds <= LONGEST_SPAN:
        raise BadInputError(f"{name}: {_shown(given)} is not possible: give more than 0 s and at most 366d")
    return float(seconds)


def _shown(value: object) -> str:
    """A short repr, for errors."""
    return reprlib.repr(value)
