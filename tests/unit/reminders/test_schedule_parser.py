import contextlib
import datetime as dt
import zoneinfo
from collections.abc import Callable
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.reminders.occurrences import next_occurrence
from tidegate.reminders.reminder import Cron, QuietHours
from tidegate.reminders.schedule_parser import (
    parse_cron,
    parse_date,
    parse_days,
    parse_every,
    parse_moment,
    parse_quiet_hours,
    parse_span,
    parse_time,
    parse_window,
    parse_zone,
)


@given(st.times().map(lambda at: at.replace(microsecond=0, fold=0)))
def test_a_time_is_read_as_it_is_written(at: dt.time) -> None:
    assert parse_time(at.isoformat()) == parse_time(at) == at
    assert parse_time(f" {at.hour}:{at.minute:02} ") == at.replace(second=0)


@pytest.mark.parametrize("text", ["25:00", "09:60", "9", "nine", "", "09:00:61", "-1:00", "٠٩:٠٠", "9 am"])  # noqa: RUF001
def test_what_is_not_a_time_of_day_is_named_with_what_to_write(text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_time(text)
    assert str(caught.value) == f"{text!r} is not a time of day: write HH:MM, such as 09:00"


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("mon,wed", {0, 2}),
        ("Monday, Friday", {0, 4}),
        ("mon-fri", {0, 1, 2, 3, 4}),
        ("fri-mon", {4, 5, 6, 0}),
        ("weekdays", {0, 1, 2, 3, 4}),
        ("weekend", {5, 6}),
        ("weekend, wed", {2, 5, 6}),
        ("sun", {6}),
        ([0, "tue"], {0, 1}),
        ("day", set(range(7))),
    ],
)
def test_days_of_the_week(text: object, days: set[int]) -> None:
    assert parse_days(text) == days


@pytest.mark.parametrize("text", ["mun", "", "mon-", "-", "mon,,", [], [7], [True], 3, None, "mon-xyz"])
def test_what_is_not_a_day_is_named_with_what_to_write(text: object) -> None:
    with pytest.raises(BadInputError, match=r"is not a day of the week: write mon, tue, wed, .* or mon-fri"):
        parse_days(text)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("day", 1),
        ("daily", 1),
        ("every day", 1),
        ("2 days", 2),
        ("Week", 7),
        ("weekly", 7),
        ("every 3 weeks", 21),
    ],
)
def test_intervals(text: str, days: int) -> None:
    assert parse_every(text) == days


@pytest.mark.parametrize("text", ["hour", "0 days", "-1 days", "2", "fortnight", "1.5 days", None])
def test_other_intervals_are_refused_with_a_way_out(text: object) -> None:
    with pytest.raises(BadInputError, match=r"is not an interval: write day, 2 days, .* a cron expression"):
        parse_every(text)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berlim", "Europe/Berlin may be meant"),
        ("europe/berlin", "Europe/Berlin may be meant"),
        ("Berlin", "Europe/Berlin may be meant"),
        ("oslo", "Europe/Oslo may be meant"),
        ("new york", "America/New_York may be meant"),
        ("Moskow", "Europe/Moscow may be meant"),
        ("XYZ!", "write one of the IANA database, such as Europe/Berlin"),
        ("../../etc/passwd", "write one of the IANA database"),
        (3, "write one of the IANA database"),
    ],
)
def test_an_unknown_zone_is_named_with_the_nearest_one(name: object, hint: str) -> None:
    with pytest.raises(BadInputError, match="is not a time zone: ") as caught:
        parse_zone(name)
    assert hint in str(caught.value)


def test_a_zone_with_an_offset_is_not_taken_for_one_without() -> None:
    for offset in ("UTC+3", "GMT-5", "utc 2"):
        with pytest.raises(BadInputError, match="write one of the IANA database"):
            parse_zone(offset)
    with pytest.raises(BadInputError, match=r"Etc/GMT-3 may be meant"):
        parse_zone("etc/gmt-3")


@pytest.mark.parametrize("name", ["MSK", "msk", "IST", "PDT", "AEST", "CEST"])
def test_an_abbreviation_is_not_taken_for_a_zone_that_is_spelt_alike(name: str) -> None:
    with pytest.raises(BadInputError, match="is not a time zone: write one of the IANA database"):
        parse_zone(name)


def test_an_empty_zone_is_missing() -> None:
    with pytest.raises(BadInputError, match="the time zone is missing: write one"):
        parse_zone(" ")


def test_every_zone_of_the_database_is_known() -> None:
    assert {parse_zone(name) for name in zoneinfo.available_timezones()} == zoneinfo.available_timezones()
    assert parse_zone(ZoneInfo("Asia/Tokyo")) == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("61 * * * *", "the minute cannot be '61'"),
        ("0 25 * * *", "the hour cannot be '25'"),
        ("0 9 32 * *", "the day-of-month cannot be '32'"),
        ("0 9 * 13 *", "the month cannot be '13'"),
        ("0 9 * * funday", "the day-of-week cannot be 'FUNDAY'"),
        ("0 9 30 2 *", "the day-of-month cannot be '30'"),
        ("0 9 * *", "it has 4 fields"),
        ("0 0 9 * * *", "it has 6 fields"),
        ("@daily", "it has 1 fields"),
        ("every morning", "it has 2 fields"),
        (f"{'9' * 5_000} * * * *", "it has 5 fields"),
        (f"{'1,' * 90}1 * * * *", ""),
    ],
)
def test_cron_nonsense_is_named_with_the_reason(text: str, reason: str) -> None:
    if not reason:
        assert parse_cron(text) == text
        return
    with pytest.raises(BadInputError) as caught:
        parse_cron(text)
    assert f"is not a cron expression: {reason}; write five fields" in str(caught.value).replace(
        "'funday'", "'FUNDAY'"
    )


def test_a_cron_expression_is_read_with_any_spaces() -> None:
    assert parse_cron("  0  9 * *   mon-fri ") == "0 9 * * mon-fri"


@pytest.mark.parametrize("text", ["2026-02-30", "31.12.2026", "2026-1-1", "tomorrow", "", 5, None])
def test_what_is_not_a_date_is_named_with_what_to_write(text: object) -> None:
    with pytest.raises(BadInputError, match=r"is not a date: write YYYY-MM-DD, such as 2026-12-31"):
        parse_date(text)


@pytest.mark.parametrize(
    ("given_", "utc"),
    [
        ("2026-07-01", "2026-06-30T22:00"),
        ("2026-07-01 09:30", "2026-07-01T07:30"),
        ("2026-07-01T09:30Z", "2026-07-01T09:30"),
        ("2026-07-01 09:30+05:00", "2026-07-01T04:30"),
        (dt.date(2026, 7, 1), "2026-06-30T22:00"),
        (dt.datetime.fromisoformat("2026-07-01T09:30"), "2026-07-01T07:30"),
        (dt.datetime(2026, 7, 1, 9, 30, tzinfo=dt.UTC), "2026-07-01T09:30"),
        (dt.timedelta(hours=1), "1970-01-01T01:16:40"),
        (3_600, "1970-01-01T01:00"),
    ],
)
def test_a_moment_is_meant_in_the_zone_of_the_reminder(given_: object, utc: str) -> None:
    expected = dt.datetime.fromisoformat(f"{utc}+00:00").timestamp()
    assert parse_moment("start", given_, "Europe/Berlin", 1_000.0) == expected


def test_the_end_of_a_date_is_its_last_second() -> None:
    end = parse_moment("until", "2026-10-25", "Europe/Berlin", 0, end_of_day=True)  # it has 25 hours
    assert (
        dt.datetime.fromtimestamp(end, ZoneInfo("Europe/Berlin")).isoformat() == "2026-10-25T23:59:59+01:00"
    )


@pytest.mark.parametrize("wrong", ["soon", "", True, None, float("nan"), 1e300, 10**400, "9999-12-31"])
def test_what_is_no_moment_is_named_with_its_option(wrong: object) -> None:
    with pytest.raises(BadInputError, match=r"until: .* is not a time: write a date"):
        parse_moment("until", wrong, "Europe/Berlin", 0, end_of_day=True)


def test_ranges_of_times_may_include_midnight() -> None:
    assert parse_window("08:00-10:00").seconds == 7_200
    assert parse_window("23:00 - 01:30").seconds == 9_000
    assert parse_quiet_hours("22:00-07:00") == QuietHours(dt.time(22), dt.time(7))


@pytest.mark.parametrize("text", ["22:00", "22:00-", "22:00-25:00", "22:00-22:00", "night", 5, None])
def test_other_ranges_are_refused(text: object) -> None:
    with pytest.raises(BadInputError, match=r"is not a range of times: write two, such as 22:00-07:00"):
        parse_quiet_hours(text)


@pytest.mark.parametrize(
    ("given_", "seconds"),
    [("90", 90), ("30m", 1_800), ("1.5h", 5_400), (2, 2), (dt.timedelta(minutes=1), 60)],
)
def test_durations(given_: object, seconds: float) -> None:
    assert parse_span("spread", given_) == seconds


@pytest.mark.parametrize(
    "wrong", ["", "half an hour", "0", 0, -5, float("nan"), float("inf"), True, None, "999w"]
)
def test_other_durations_are_refused_and_the_option_is_named(wrong: object) -> None:
    with pytest.raises(BadInputError, match=r"^spread"):
        parse_span("spread", wrong)


CRON_PARTS = ["0", "1", "59", "*", "L", "?", "W", "#", "-", ",", "/", "mon", "*/2", "1-5", "5-1", "LW"]
CRON_PARTS += ["3#2", "5L", "1/0", "*/70"]
PARSERS = [parse_time, parse_zone, parse_days, parse_every, parse_date, parse_quiet_hours, parse_window]


@pytest.mark.parametrize("parse", PARSERS)
@given(
    text=st.one_of(
        st.text(),
        st.text("0123456789:-,/*LW# monfri", max_size=12),
        st.integers(),
        st.floats(),
        st.none(),
        st.lists(st.none()),
    )
)
def test_whatever_is_written_is_read_or_refused_with_words(
    parse: Callable[[object], object], text: object
) -> None:
    with contextlib.suppress(BadInputError):
        assert parse(text) is not None


@given(st.text() | st.lists(st.sampled_from(CRON_PARTS), min_size=4, max_size=6).map(" ".join))
@settings(max_examples=150)
def test_a_cron_expression_that_is_accepted_can_be_used(text: str) -> None:
    with contextlib.suppress(BadInputError):
        found = next_occurrence(Cron(parse_cron(text)), "Europe/Berlin", 1.7e9)
        assert found is None or found > 1.7e9
