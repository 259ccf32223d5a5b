"""The instants at which a schedule occurs, in its time zone. Pure; times are seconds since the Unix epoch.

A local time that the clocks skip, as 02:30 when they go from 02:00 to 03:00, occurs as if they had not been
changed: at 03:30 of the new time. A local time that comes twice occurs once, the first time. So each local
date has one occurrence of a daily schedule, whatever the zone does. Where a zone skips a whole date
(Pacific/Apia, 2011-12-30), the occurrence of that date is the same instant as that of the next.

A cron expression occurs as Debian's cron would run it. With fixed hours and minutes, times that are skipped
occur right after the change, and times that come twice the first time. If the minute or the hour begins with
`*`, it follows the clock on the wall: `*/5 * * * *` occurs every five minutes, also in the hour that comes
twice. (In Australia/Lord_Howe and Pacific/Chatham, which change within an hour, cronsim 2.8 may leave out
some of these when an hour comes twice.)
"""

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import count
from typing import Final, assert_never
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim

from tidegate.errors import BadInputError
from tidegate.reminders.reminder import Cron, Daily, EveryDays, Once, Schedule, Weekly

OCCURRENCES_KEPT: Final = 16_384  # many reminders have the same schedule, and fire at the same time
_DAY: Final = dt.timedelta(days=1)


@lru_cache(1)
def all_zones() -> Mapping[str, ZoneInfo]:
    """The zones of the IANA database. The first call reads them all, and blocks for a tenth of a second."""
    return {name: ZoneInfo(name) for name in available_timezones()}


def time_zone(name: str) -> ZoneInfo:
    """Return a zone of the IANA database. Raises BadInputError if this machine does not know it."""
    zone = all_zones().get(name)
    if zone is None:
        raise BadInputError(f"the time zone {name!r} is not in the database of this machine")
    return zone


@lru_cache(OCCURRENCES_KEPT)
def next_occurrence(schedule: Schedule, zone: str, after: float) -> float | None:
    """Return the first occurrence after `after`, and not at it; None if there is none.

    From whatever instant it is asked, the sequence of occurrences is the same.
    """
    if isinstance(schedule, Cron):
        return _next_of_cron(schedule.expression, zone, after)
    tz = time_zone(zone)
    try:
        # The date before, as its occurrence may be on the next one: when the clocks go from 23:30 to 00:30.
        since = dt.datetime.fromtimestamp(after, tz).date() - _DAY
        return next((at for at in _instants(schedule, tz, since) if at > after), None)
    except (OverflowError, ValueError, OSError):  # the calendar ends with the year 9999
        return None


def instant(local: dt.datetime, zone: str) -> float:
    """Return when the clocks of a zone show this time; see above for times that they skip or show twice."""
    return _instant(local, time_zone(zone))


def _instant(local: dt.datetime, tz: ZoneInfo) -> float:
    return local.replace(tzinfo=tz, fold=0).timestamp()


def _instants(schedule: Once | Daily | Weekly | EveryDays, tz: ZoneInfo, since: dt.date) -> Iterator[float]:
    """Yield the occurrences from a local date on. They never go back: no zone skips more than a day."""
    match schedule:
        case Once(at=moment):
            yield _instant(moment, tz)
            return
        case Daily(at=at):
            dates = (since + number * _DAY for number in count())
        case Weekly(at=at, days=days):
            if not days:
                return
            week = (since + number * _DAY for number in count())
            dates = (date for date in week if date.weekday() in days)
        case EveryDays(at=at, days=every, start=start):
            first = max(0, -((start - since).days // every))  # the first that is not before `since`
            dates = (start + (first + number) * every * _DAY for number in count())
        case _:
            assert_never(schedule)
    for date in dates:
        yield _instant(dt.datetime.combine(date, at), tz)


def _next_of_cron(expression: str, zone: str, after: float) -> float | None:
    # A datetime would round to microseconds, up to an occurrence that is yet to come: whole seconds, rounded
    # down, precede it. A new object each time: it is an iterator, and reading the expression is a third of
    # its work.
    try:
        for moment in CronSim(expression, dt.datetime.fromtimestamp(math.floor(after), time_zone(zone))):
            at = moment.timestamp()
            if at > after:  # in an hour that comes twice, it gives the first one again
                return at
    except (OverflowError, ValueError, OSError):
        return None
    return None
