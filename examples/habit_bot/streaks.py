"""Streaks: how many times in a row a habit was done on the days on which it was planned. Pure."""

import datetime as dt
from collections.abc import Set as AbstractSet

DAY = dt.timedelta(days=1)


def streak(done: AbstractSet[dt.date], weekdays: AbstractSet[int], today: dt.date) -> int:
    """Count the planned days in a row, up to today, on which it was done. 0 is Monday.

    Today breaks no streak: there is still time. A day that was not planned counts if it was done, and breaks
    nothing if it was not.
    """
    count = int(today in done)
    day = today - DAY
    while weekdays and (day in done or day.weekday() not in weekdays):
        count += day in done
        day -= DAY
    return count
