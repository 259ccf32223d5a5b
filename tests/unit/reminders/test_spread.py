import datetime as dt
from collections import Counter
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.reminders.reminder import SPREAD_ORDERS, QuietHours, Spread
from tidegate.reminders.spread import due_time, end_of_quiet, spread_offset

IDS = st.integers(1, 2**62)
SPREADS = st.builds(
    Spread, st.floats(0.1, 86_400), st.sampled_from(SPREAD_ORDERS), st.integers(-(2**63), 2**63 - 1)
)
INSTANTS = st.integers(1_600_000_000, 1_900_000_000).map(float)
NINE = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC).timestamp()
NIGHT = QuietHours(dt.time(22), dt.time(7))
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Antarctica/Troll", "2026-03-29"),
    ("Pacific/Apia", "2011-12-30"),
    ("Asia/Beirut", "2026-03-29"),
]


@given(SPREADS, IDS, INSTANTS, st.floats(0, 1))
def test_an_offset_lies_in_the_window_and_is_always_the_same(
    spread: Spread, reminder_id: int, occurrence: float, engagement: float
) -> None:
    offset = spread_offset(spread, reminder_id, occurrence, engagement)
    assert 0 <= offset < spread.seconds
    assert offset == spread_offset(spread, reminder_id, occurrence, engagement)


@pytest.mark.parametrize("order", ["stable", "random"])
@pytest.mark.parametrize("step", [1, 2, 10, 987, 2**32])  # of ids: all, those of a shard, of many machines
def test_ten_thousand_ids_in_a_row_are_spread_evenly(order: str, step: int) -> None:
    spread = Spread(1_800, "stable" if order == "stable" else "random", seed=3)
    buckets = Counter(int(spread_offset(spread, 1 + step * n, NINE) // 18) for n in range(10_000))
    # 100 in each of 100 buckets, with a standard deviation of 10: five of them are hardly ever exceeded.
    assert len(buckets) == 100
    assert max(abs(found - 100) for found in buckets.values()) <= 50


def test_a_random_offset_is_another_one_for_each_occurrence_and_seed() -> None:
    offsets = {
        spread_offset(Spread(3_600, "random", seed), 7, NINE + day * 86_400)
        for seed in range(10)
        for day in range(100)
    }
    assert len(offsets) > 990
    stable = {spread_offset(Spread(3_600, "stable"), 7, NINE + day * 86_400) for day in range(100)}
    assert len(stable) == 1


@given(IDS, IDS, st.floats(0, 1), st.floats(0, 1))
def test_the_more_engaged_goes_first_by_tenths(one: int, two: int, more: float, less: float) -> None:
    spread = Spread(600, "engagement")
    if more - less >= 0.11:
        assert spread_offset(spread, one, NINE, more) < spread_offset(spread, two, NINE, less)


def test_users_as_engaged_as_each_other_are_spread_within_their_tenth() -> None:
    spread = Spread(7_200, "engagement")
    best = [spread_offset(spread, reminder_id, NINE, 1.0) for reminder_id in range(1, 1_001)]
    assert max(best) < 720
    buckets = Counter(int(offset // 72) for offset in best)
    assert max(abs(found - 100) for found in buckets.values()) <= 50
    everybody = Counter(
        int(spread_offset(spread, user, NINE, user % 1_000 / 1_000) // 720) for user in range(10_000)
    )
    assert all(900 <= everybody[tenth] <= 1_100 for tenth in range(10))
    assert 0 <= spread_offset(spread, 1, NINE, 5.0) < 720
    assert 6_480 <= spread_offset(spread, 1, NINE, -1.0) < 7_200


def clock(at: float, zone: str) -> dt.datetime:
    return dt.datetime.fromtimestamp(at, ZoneInfo(zone))


def is_quiet(at: float, quiet: QuietHours, zone: str) -> bool:
    minute, start, end = (
        time.hour * 3_600 + time.minute * 60 + time.second
        for time in (clock(at, zone).time(), quiet.start, quiet.end)
    )
    return (minute - start) % 86_400 < (end - start) % 86_400


@pytest.mark.parametrize(("zone", "date"), CHANGES)
@given(
    hours=st.floats(-40, 40),
    start=st.times().map(lambda at: at.replace(microsecond=0)),
    end=st.times().map(lambda at: at.replace(microsecond=0)),
)
def test_the_end_of_quiet_hours_is_not_quiet_and_not_long_after(
    zone: str, date: str, hours: float, start: dt.time, end: dt.time
) -> None:
    at = round(dt.datetime.fromisoformat(f"{date}T00:00+00:00").timestamp() + hours * 3_600)
    quiet = QuietHours(start, end)
    found = end_of_quiet(at, quiet, zone)
    assert not is_quiet(found, quiet, zone)
    if not is_quiet(at, quiet, zone):
        assert found == at
    else:
        assert at < found <= at + 72 * 3_600
        between = [at + part * (found - at) / 20 for part in range(20)]
        if clock(at, zone).utcoffset() == clock(found, zone).utcoffset():
            assert all(is_quiet(moment, quiet, zone) for moment in between)


@pytest.mark.parametrize(
    ("at", "quiet", "end"),
    [
        ("2026-03-02T23:00+01:00", NIGHT, "2026-03-03T07:00+01:00"),  # over midnight
        ("2026-03-02T03:00+01:00", NIGHT, "2026-03-02T07:00+01:00"),
        ("2026-03-02T22:00+01:00", NIGHT, "2026-03-03T07:00+01:00"),  # its start is quiet, its end is not
        ("2026-03-02T07:00+01:00", NIGHT, "2026-03-02T07:00+01:00"),
        ("2026-03-02T12:00+01:00", QuietHours(dt.time(12), dt.time(14)), "2026-03-02T14:00+01:00"),
        ("2026-03-02T12:30+01:00", QuietHours(dt.time(12), dt.time(14)), "2026-03-02T14:00+01:00"),
        ("2026-03-28T23:00+01:00", NIGHT, "2026-03-29T07:00+02:00"),  # the clocks are changed meanwhile
        (
            "2026-03-29T01:00+01:00",
            QuietHours(dt.time(0), dt.time(2, 30)),
            "2026-03-29T03:30+02:00",
        ),  # skipped
        (
            "2026-10-25T01:00+02:00",
            QuietHours(dt.time(0), dt.time(2, 30)),
            "2026-10-25T02:30+02:00",
        ),  # the first
        (
            "2026-10-25T02:10+01:00",
            QuietHours(dt.time(0), dt.time(2, 30)),
            "2026-10-25T02:30+01:00",
        ),  # the second
        (
            "2026-03-02T09:00+01:00",
            QuietHours(dt.time(9), dt.time(9)),
            "2026-03-02T09:00+01:00",
        ),  # empty
    ],
)
def test_quiet_hours_end_by_the_clock_on_the_wall(at: str, quiet: QuietHours, end: str) -> None:
    found = end_of_quiet(dt.datetime.fromisoformat(at).timestamp(), quiet, "Europe/Berlin")
    assert found == dt.datetime.fromisoformat(end).timestamp()


@given(SPREADS, IDS, INSTANTS, st.sampled_from(["Europe/Berlin", "Asia/Kathmandu"]))
def test_nothing_is_due_in_quiet_hours_or_before_its_occurrence(
    spread: Spread, reminder_id: int, occurrence: float, zone: str
) -> None:
    due = due_time(occurrence, reminder_id=reminder_id, zone=zone, spread=spread, quiet=NIGHT)
    assert due >= occurrence
    assert not is_quiet(due, NIGHT, zone)


def test_what_waits_for_the_end_of_quiet_hours_is_spread_from_there() -> None:
    spread, three = Spread(3_600), NINE - 6 * 3_600
    due = [
        due_time(three, reminder_id=user, zone="UTC", spread=spread, quiet=NIGHT) for user in range(1, 1_001)
    ]
    minutes = Counter(clock(at, "UTC").strftime("%H:%M") for at in due)
    assert min(minutes) == "07:00"
    assert max(minutes) == "07:59"
    assert max(minutes.values()) < 40


def test_a_window_that_reaches_into_quiet_hours_goes_on_after_them() -> None:
    half_past_nine = NINE + 12.5 * 3_600
    due = [
        due_time(half_past_nine, reminder_id=user, zone="UTC", spread=Spread(3_600), quiet=NIGHT)
        for user in range(1, 1_001)
    ]
    hours = Counter(clock(at, "UTC").hour for at in due)
    assert set(hours) == {21, 7}
    assert max(Counter(due).values()) == 1


def test_without_spread_or_quiet_hours_an_occurrence_is_due_at_once() -> None:
    assert due_time(NINE, reminder_id=1, zone="UTC") == NINE


def test_offsets_are_the_same_in_every_version() -> None:
    """Of SplitMix64: a user's reminders do not come at another time after an update."""
    whole = Spread(2**32)
    assert [int(spread_offset(whole, number, NINE)) for number in (0, 1)] == [0xE220A839, 0x910A2DEC]
    assert round(spread_offset(Spread(3_600, "random", seed=7), 42, NINE), 3) == 3003.437


def test_a_spread_occurrence_is_due_after_its_offset() -> None:
    spread = Spread(600, "engagement")
    due = due_time(NINE, reminder_id=5, zone="UTC", spread=spread, engagement=0.35)
    assert due == NINE + spread_offset(spread, 5, NINE, 0.35)
    assert NINE + 360 <= due < NINE + 420
