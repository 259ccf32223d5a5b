import datetime as dt
import math
import zoneinfo
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.reminders.occurrences import instant, next_occurrence, time_zone
from tidegate.reminders.reminder import Cron, Daily, EveryDays, Once, Schedule, Weekly

ZONES = sorted(zoneinfo.available_timezones())
NIGHT = dt.time(2, 30)
DAY = dt.timedelta(days=1)
TIMES = st.times(min_value=dt.time(0), max_value=dt.time(23, 59)).map(lambda at: at.replace(microsecond=0))
SKIPPED = {(zone, dt.date(2011, 12, 31)) for zone in ("Pacific/Apia", "Pacific/Fakaofo")}
CHANGE_WITHIN_AN_HOUR = {"Australia/LHI", "Australia/Lord_Howe", "NZ-CHAT", "Pacific/Chatham"}
STRANGE = [
    ("Pacific/Apia", dt.date(2011, 12, 30)),  # a date that did not exist
    ("Pacific/Kwajalein", dt.date(1993, 8, 21)),
    ("Antarctica/Troll", dt.date(2026, 3, 29)),  # two hours at once
    ("Europe/Dublin", dt.date(2026, 3, 29)),  # its winter time is the one that is "daylight saving", by -1 h
    ("Australia/Lord_Howe", dt.date(2026, 4, 5)),  # half an hour
    ("Asia/Kathmandu", dt.date(1986, 1, 1)),  # +5:30 to +5:45
    ("America/Caracas", dt.date(2016, 5, 1)),
    ("Asia/Beirut", dt.date(2026, 3, 29)),  # at midnight
    ("America/Nuuk", dt.date(2024, 3, 31)),
    ("Africa/Casablanca", dt.date(2026, 2, 15)),  # for Ramadan
]


def occurrences(schedule: Schedule, zone: str, after: float, until: float) -> list[float]:
    found: list[float] = []
    while (at := next_occurrence(schedule, zone, found[-1] if found else after)) is not None and at <= until:
        found.append(at)
    return found


def wall_clock_says(zone: str, local: dt.datetime) -> float:
    """The first instant at which the clocks show this time; if they skip it, as if they had not been changed.

    Looks only at how the clocks go, from UTC to local time: `fold` is not used.
    """
    tz, as_utc = ZoneInfo(zone), local.replace(tzinfo=dt.UTC).timestamp()
    offsets = {dt.datetime.fromtimestamp(as_utc + hours * 3_600, tz).utcoffset() for hours in (-26, 26)}
    instants = sorted(as_utc - offset.total_seconds() for offset in offsets if offset is not None)
    shown = [at for at in instants if dt.datetime.fromtimestamp(at, tz).replace(tzinfo=None) == local]
    return shown[0] if shown else instants[-1]


def dates(first: dt.date, days: int) -> Iterator[dt.date]:
    return (first + number * DAY for number in range(days))


def range_of(zone: str, first: dt.date, days: int, at: dt.time) -> tuple[float, float]:
    """From just before the occurrence of the first date to that of the last."""
    return (
        wall_clock_says(zone, dt.datetime.combine(first, at)) - 0.001,
        wall_clock_says(zone, dt.datetime.combine(first + (days - 1) * DAY, at)),
    )


@cache
def changes(zone: str, year: int) -> list[dt.date]:
    """The dates of a year on which the clocks of a zone are changed."""
    noons = [dt.datetime(year, 1, 1, 12, tzinfo=ZoneInfo(zone)) + number * DAY for number in range(366)]
    return [noon.date() for before, noon in pairwise(noons) if before.utcoffset() != noon.utcoffset()]


# One zone of those that change on the same dates in 2026, from and to the same offsets.
CHANGING_ALIKE = list(
    {
        tuple((day, ZoneInfo(zone).utcoffset(dt.datetime.combine(day, dt.time(12)))) for day in found): zone
        for zone in ZONES
        if (found := changes(zone, 2026))
    }.values()
)


def test_every_zone_knows_when_its_clocks_change() -> None:
    assert len(ZONES) > 500
    assert changes("Europe/Berlin", 2026) == [dt.date(2026, 3, 29), dt.date(2026, 10, 25)]
    assert sum(bool(changes(zone, 2026)) for zone in ZONES) > 150
    assert len(CHANGING_ALIKE) > 20


@pytest.mark.parametrize("year", [2011, 2024, 2026])
@settings(max_examples=2)
@given(at=TIMES)
def test_no_zone_loses_or_doubles_an_occurrence_when_its_clocks_change(year: int, at: dt.time) -> None:
    for zone in ZONES:
        # Beside the time drawn, one that may be skipped or come twice: zones change from 0 to 4 o'clock.
        for change in changes(zone, year):
            for daily in (at, at.replace(hour=at.hour % 4)):
                first, days = change - 2 * DAY, 5
                after, until = range_of(zone, first, days, daily)
                expected = [
                    wall_clock_says(zone, dt.datetime.combine(date, daily)) for date in dates(first, days)
                ]
                found = occurrences(Daily(daily), zone, after, until)
                assert found == sorted(set(expected)), (zone, change, daily)
                # A date that a zone skips has no occurrence of its own.
                assert len(found) == days - ((zone, change) in SKIPPED), zone


@settings(max_examples=40)
@given(st.sampled_from(ZONES), TIMES, st.integers(2000, 2036))
def test_each_date_of_a_year_has_one_occurrence(zone: str, at: dt.time, year: int) -> None:
    after, until = range_of(zone, dt.date(year, 1, 1), 365, at)
    found = occurrences(Daily(at), zone, after, until)
    expected = {
        wall_clock_says(zone, dt.datetime.combine(date, at)) for date in dates(dt.date(year, 1, 1), 365)
    }
    assert found == sorted(expected)


@pytest.mark.parametrize(("zone", "change"), STRANGE)
@given(at=TIMES, days=st.frozensets(st.integers(0, 6), min_size=1), every=st.integers(1, 9))
@settings(max_examples=15)
def test_weekdays_and_every_so_many_days_are_those_dates(
    zone: str, change: dt.date, at: dt.time, days: frozenset[int], every: int
) -> None:
    first, length = change - 10 * DAY, 21
    after, until = range_of(zone, first, length, at)
    expected = {date: wall_clock_says(zone, dt.datetime.combine(date, at)) for date in dates(first, length)}

    weekly = occurrences(Weekly(at, days), zone, after, until)
    assert weekly == sorted({at for date, at in expected.items() if date.weekday() in days})
    spaced = occurrences(EveryDays(at, every, first), zone, after, until)
    assert spaced == sorted({at for date, at in expected.items() if (date - first).days % every == 0})


@pytest.mark.parametrize(("zone", "change"), STRANGE)
@given(
    schedule=st.one_of(
        TIMES.map(Daily),
        st.builds(Weekly, TIMES, st.frozensets(st.integers(0, 6), min_size=1)),
        st.builds(EveryDays, TIMES, st.integers(1, 5), st.just(dt.date(2011, 12, 1))),
        st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 */3 * * *", "15 1,2,3 * * *", "*/20 0-3 * * *"]).map(
            Cron
        ),
    ),
    hours=st.floats(-72, 72),
)
@settings(max_examples=25)
def test_the_sequence_is_the_same_from_wherever_it_is_asked(
    zone: str, change: dt.date, schedule: Schedule, hours: float
) -> None:
    middle = dt.datetime.combine(change, dt.time(), dt.UTC).timestamp()
    whole = occurrences(schedule, zone, middle - 96 * 3_600, middle + 96 * 3_600)
    after = middle + hours * 3_600
    assert all(one < two for one, two in pairwise(whole))
    assert occurrences(schedule, zone, after, middle + 96 * 3_600) == [at for at in whole if at > after]


@pytest.mark.parametrize("schedule", [Cron("*/5 * * * *"), Cron("0 9 * * *"), Daily(dt.time(9))])
def test_an_occurrence_is_not_lost_when_it_is_asked_for_less_than_a_microsecond_before(
    schedule: Schedule,
) -> None:
    at = next_occurrence(schedule, "Europe/Dublin", 1_774_700_000.0)
    assert at is not None
    assert next_occurrence(schedule, "Europe/Dublin", math.nextafter(at, -math.inf)) == at


@pytest.mark.parametrize(
    ("zone", "local", "utc"),
    [
        ("Europe/Berlin", "2026-03-29 02:30", "2026-03-29 01:30"),  # skipped: 03:30 summer time
        ("Europe/Berlin", "2026-10-25 02:30", "2026-10-25 00:30"),  # twice: the first, in summer time
        ("Europe/Dublin", "2026-03-29 01:30", "2026-03-29 01:30"),
        ("Antarctica/Troll", "2026-03-29 01:30", "2026-03-29 01:30"),  # 03:30, two hours later
        ("Asia/Kathmandu", "2026-03-29 09:00", "2026-03-29 03:15"),
        ("Pacific/Apia", "2011-12-30 09:00", "2011-12-30 19:00"),  # 09:00 of the next date
    ],
)
def test_times_that_are_skipped_or_come_twice_occur_once(zone: str, local: str, utc: str) -> None:
    moment = dt.datetime.fromisoformat(local)
    expected = dt.datetime.fromisoformat(utc).replace(tzinfo=dt.UTC).timestamp()
    assert next_occurrence(Once(moment), zone, 0) == expected
    assert instant(moment, zone) == expected
    assert next_occurrence(Once(moment), zone, expected) is None


def local_times(schedule: Schedule, zone: str, date: str) -> list[str]:
    start = instant(dt.datetime.fromisoformat(date), zone)
    end = instant(dt.datetime.fromisoformat(date) + DAY, zone) - 1
    found = occurrences(schedule, zone, start - 1, end)
    return [dt.datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%H:%M") for at in found]


def test_cron_with_fixed_times_occurs_after_a_gap_and_once_in_an_overlap_as_in_debian() -> None:
    assert local_times(Cron("30 2 * * *"), "Europe/Berlin", "2026-03-29") == ["03:00"]
    assert local_times(Cron("30 2 * * *"), "Europe/Berlin", "2026-10-25") == ["02:30"]


def test_cron_with_a_star_follows_the_wall_clock_as_in_debian() -> None:
    spring = local_times(Cron("*/30 * * * *"), "Europe/Berlin", "2026-03-29")
    autumn = local_times(Cron("*/30 * * * *"), "Europe/Berlin", "2026-10-25")
    assert spring[:5] == ["00:00", "00:30", "01:00", "01:30", "03:00"]
    assert autumn[3:9] == ["01:30", "02:00", "02:30", "02:00", "02:30", "03:00"]
    assert (len(spring), len(autumn)) == (46, 50)


@settings(max_examples=3)
@given(st.integers(0, 59))
def test_cron_of_every_zone_loses_and_doubles_nothing_when_its_clocks_change(minute: int) -> None:
    schedule = Cron(f"{minute} 0,1,2,3,9 * * *")
    for zone in CHANGING_ALIKE:
        for change in changes(zone, 2026):
            middle = dt.datetime.combine(change, dt.time(), dt.UTC).timestamp()
            found = occurrences(schedule, zone, middle - 48 * 3_600, middle + 48 * 3_600)
            local = [dt.datetime.fromtimestamp(at, ZoneInfo(zone)) for at in found]
            shown = [moment.replace(tzinfo=None, fold=0) for moment in local]
            assert shown == sorted(set(shown)), zone  # none twice, though the clocks show it twice
            for date in (change - DAY, change, change + DAY):
                times = {moment.hour for moment in local if moment.date() == date}
                # Only hours that the clocks skip may be missing: three hours at most.
                assert 9 in times, (zone, date)
                assert date == change or times == {0, 1, 2, 3, 9}, (zone, date)


@pytest.mark.parametrize("hours", [[2], [0, 1, 2, 3]])
def test_cron_with_a_star_occurs_whenever_the_clocks_of_a_zone_show_it(hours: list[int]) -> None:
    schedule = Cron(f"*/20 {','.join(map(str, hours))} * * *")
    for zone in set(CHANGING_ALIKE) - CHANGE_WITHIN_AN_HOUR:
        for change in changes(zone, 2026):
            start = int(dt.datetime.combine(change, dt.time(), dt.UTC).timestamp()) - 18 * 3_600
            shown = [
                dt.datetime.fromtimestamp(at, ZoneInfo(zone)) for at in range(start, start + 129_600, 300)
            ]
            expected = [at.timestamp() for at in shown if at.minute % 20 == 0 and at.hour in hours]
            assert occurrences(schedule, zone, start - 1, start + 129_599) == expected, zone


def test_a_schedule_that_is_over_has_no_occurrence() -> None:
    assert next_occurrence(Once(dt.datetime.fromisoformat("2020-01-01 09:00")), "UTC", 1.7e9) is None
    assert next_occurrence(Weekly(NIGHT, frozenset()), "UTC", 1.7e9) is None
    assert next_occurrence(Cron("0 0 29 2 mon#1"), "UTC", 1.7e9) is not None  # either of both
    assert next_occurrence(Cron("0 0 */31 2 *"), "UTC", 1.7e9) is not None
    end = dt.datetime(9999, 12, 31, 23, tzinfo=dt.UTC).timestamp()
    for schedule in (Daily(NIGHT), Cron("0 9 * * *"), EveryDays(NIGHT, 5, dt.date(2020, 1, 1))):
        assert next_occurrence(schedule, "UTC", end) is None
        assert next_occurrence(schedule, "UTC", 1e18) is None


def test_every_so_many_days_begins_with_its_start() -> None:
    schedule = EveryDays(dt.time(9), 10, dt.date(2030, 5, 5))
    first = next_occurrence(schedule, "Asia/Tokyo", 1.7e9)
    assert first == dt.datetime(2030, 5, 5, tzinfo=dt.UTC).timestamp()
    assert next_occurrence(schedule, "Asia/Tokyo", first) == first + 10 * 86_400


@pytest.mark.parametrize("name", ["Europe/Berlim", "Europe", "../../etc/passwd", "/etc/passwd", "", "a\0b"])
def test_a_zone_that_is_not_in_the_database_is_named(name: str) -> None:
    with pytest.raises(BadInputError, match="is not in the database"):
        time_zone(name)
