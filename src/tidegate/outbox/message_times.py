"""The times of a message as callers write them: a datetime, a timedelta, seconds, or a text such as 2h."""

import datetime as dt
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from tidegate.errors import BadInputError

Moment = dt.datetime | dt.timedelta | float  # a timedelta counts from now, a number from the Unix epoch
Span = dt.timedelta | float  # a number is seconds

DAY: Final = 86_400.0
LONGEST_DELAY: Final = 366 * DAY
LONGEST_LIFETIME: Final = 3_660 * DAY
OVERDUE_ALLOWED: Final = DAY  # a time that has just passed means now; one long past is a mistake
TIME_OPTIONS: Final = frozenset(("not_before", "delay", "expires_at", "expires_in", "dedup_for"))
UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhdw])")
# Read over HTTP as well: what is for Python alone says so.
_NO_TIME: Final = (
    "no time: give seconds since the Unix epoch; in Python also a datetime, or a timedelta from now"
)
_NO_DURATION: Final = "no duration: give seconds; in Python also a timedelta"
_FROM_NOW: Final = {"delay": "not_before", "expires_in": "expires_at"}


def absolute_times(options: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the options with every time in seconds since the Unix epoch. Raises BadInputError.

    `delay` becomes `not_before`, and `expires_in` becomes `expires_at`.
    """
    absolute = dict(options)
    for name, moment in _FROM_NOW.items():
        if absolute.get(name) is None:
            absolute.pop(name, None)
        elif absolute.get(moment) is not None:
            raise BadInputError(f"{moment} and {name} say the same thing: give one of them")
        else:
            absolute[moment] = now + _seconds(name, absolute.pop(name))
    for name in _FROM_NOW.values():
        if absolute.get(name) is not None:
            absolute[name] = _moment(name, absolute[name], now)
    if "dedup_for" in absolute:
        absolute["dedup_for"] = _seconds("dedup_for", absolute["dedup_for"])
    return absolute


def check_times(not_before: float | None, expires_at: float | None, now: float) -> None:
    """Raise BadInputError for times at which the message could never be sent, and for absurd ones."""
    if expires_at is not None and expires_at <= now:
        raise BadInputError(
            "expires_at is in the past: the message could never be sent; expires_in is in seconds from now"
        )
    if not_before is not None and not_before >= (expires_at or math.inf):
        raise BadInputError("not_before is after expires_at: the message could never be sent")
    if not_before is not None and not_before < now - OVERDUE_ALLOWED:
        raise BadInputError("not_before is long past: leave it out, or give delay, in seconds from now")
    for name, at, longest in (
        ("not_before", not_before, LONGEST_DELAY),
        ("expires_at", expires_at, LONGEST_LIFETIME),
    ):
        if at is not None and at > now + longest:
            raise BadInputError(
                f"{name} is more than {longest / DAY:,.0f} days ahead: give an earlier time, in seconds, not"
                " in milliseconds"
            )


def is_duration(text: str) -> bool:
    return _DURATION.fullmatch(text.strip()) is not None


def duration(option: str, text: str) -> float:
    """Read a number and a unit; return seconds. Raises BadInputError that names the option."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise BadInputError(
            f"{option}: {text!r} is not a duration: write a number and s, m, h, d or w, such as 2h"
        )
    return float(match[1]) * UNITS[match[2]]


def _moment(name: str, given: object, now: float) -> float:
    if isinstance(given, dt.timedelta):
        return now + given.total_seconds()
    if isinstance(given, dt.datetime):
        if given.utcoffset() is None:
            raise BadInputError(
                f"{name} is a datetime without a time zone: give one with, such as datetime.now(UTC)"
            )
        return given.timestamp()
    return _number(name, given, _NO_TIME)


def _seconds(name: str, given: object) -> float:
    seconds = given.total_seconds() if isinstance(given, dt.timedelta) else _number(name, given, _NO_DURATION)
    if seconds < 0:
        raise BadInputError(f"{name} is {seconds:g} seconds: give 0 or more")
    return seconds


def _number(name: str, given: object, otherwise: str) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not -math.inf < given < math.inf:
        raise BadInputError(f"{name} is {otherwise}")
    try:
        return float(given)
    except OverflowError:
        raise BadInputError(f"{name} is {otherwise}") from None
