"""Times for people: local times with how long ago they were, and spans of time."""

import math
from datetime import UTC, datetime
from typing import Final

# A unit is used from two of it on: "90 s" and "119 min" are more precise than "1 min" and "1 h".
_STEPS: Final = (("s", 1, 120), ("min", 60, 7_200), ("h", 3_600, 172_800), ("d", 86_400, math.inf))


def moment(at: float, now: float) -> str:
    """Return local date and time, and how long ago or ahead it is."""
    return f"{_local(at, '%Y-%m-%d %H:%M:%S')} ({distance(at, now)})"


def short_moment(at: float, now: float) -> str:
    """Return a short form for a column: the time if it is today, else the date."""
    today = _local(at, "%Y-%m-%d") == _local(now, "%Y-%m-%d")
    return f"{_local(at, '%H:%M:%S' if today else '%m-%d %H:%M')}, {distance(at, now)}"


def distance(at: float, now: float) -> str:
    seconds = abs(now - at)
    if not math.isfinite(seconds):
        return "never"
    if seconds < 1:
        return "now"
    return f"in {span(seconds)}" if at > now else f"{span(seconds)} ago"


def span(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "for ever"
    unit, size = next((unit, size) for unit, size, below in _STEPS if seconds < below)
    return f"{int(seconds / size):,} {unit}"


def _local(at: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).astimezone().strftime(form)
    except (OverflowError, ValueError, OSError):  # a message may have a time outside of the calendar
        return f"{at:.0f}"
