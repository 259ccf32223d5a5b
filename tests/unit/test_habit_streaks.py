"""Streaks of the habit bot of `examples/`."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habit_bot.streaks import streak

MONDAY = dt.date(2026, 3, 2)
EVERY_DAY, WEEKDAYS = frozenset(range(7)), frozenset(range(5))


def days(*numbers: int) -> set[dt.date]:
    """Days counted from a Monday."""
    return {MONDAY + dt.timedelta(number) for number in numbers}


@pytest.mark.parametrize(
    ("done", "weekdays", "today", "expected"),
    [
        (days(), EVERY_DAY, 3, 0),
        (days(3), EVERY_DAY, 3, 1),
        (days(0, 1, 2), EVERY_DAY, 3, 3),  # there is still time today
        (days(0, 1, 2, 3), EVERY_DAY, 3, 4),
        (days(0, 1), EVERY_DAY, 3, 0),  # yesterday is missing
        (days(0, 2, 3), EVERY_DAY, 3, 2),
        (days(3, 4, 7), WEEKDAYS, 7, 3),  # Thursday, Friday, Monday: the weekend was not planned
        (days(3, 4, 5, 7), WEEKDAYS, 7, 4),  # and Saturday counts all the same
        (days(4), frozenset({4}), 10, 1),  # the Friday before
        (days(4), frozenset({4}), 12, 0),  # the second Friday was missed
        (days(4), frozenset(), 5, 0),
    ],
)
def test_a_streak_counts_the_planned_days_in_a_row(
    done: set[dt.date], weekdays: frozenset[int], today: int, expected: int
) -> None:
    assert streak(done, weekdays, MONDAY + dt.timedelta(today)) == expected


@given(
    done=st.sets(st.integers(0, 60)),
    weekdays=st.frozensets(st.integers(0, 6), min_size=1),
    today=st.integers(0, 60),
)
def test_a_streak_ends_at_the_last_planned_day_that_was_missed(
    done: set[int], weekdays: frozenset[int], today: int
) -> None:
    missed = [day for day in range(-7, today) if day not in done and day % 7 in weekdays]
    expected = sum(day in done for day in range(max(missed) + 1, today + 1))
    assert streak(days(*done), weekdays, MONDAY + dt.timedelta(today)) == expected
