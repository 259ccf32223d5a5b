"""A total that is read now and then, as a speed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.progress import BARS, Meter, sparkline


def test_speed_is_that_of_the_latest_second() -> None:
    meter = Meter()

    for quarter in range(13):
        meter.read(quarter / 4, 10 * quarter)

    assert meter.per_second() == 40


def test_nothing_read_is_no_speed() -> None:
    assert Meter(3).per_second() == 0
    assert Meter(3).history() == [0, 0, 0]


def test_history_has_whole_seconds_oldest_first() -> None:
    meter = Meter(3)

    for now, total in ((10.0, 0), (11.0, 5), (12.0, 7), (13.0, 7), (13.5, 100)):
        meter.read(now, total)

    assert meter.history() == [5, 2, 0]


def test_a_total_that_was_reset_is_no_negative_speed() -> None:
    meter = Meter(2)

    meter.read(0.0, 50)
    meter.read(1.0, 3)

    assert meter.per_second() == 0


@given(st.lists(st.integers(0, 1000), max_size=100), st.integers(0, 1000))
def test_sparkline_has_one_mark_for_each_count(counts: list[int], top: int) -> None:
    line = sparkline(counts, top)

    assert len(line) == len(counts)
    assert all((mark == " ") == (count == 0) for mark, count in zip(line, counts, strict=True))


@pytest.mark.parametrize(("count", "mark"), [(1, BARS[0]), (30, BARS[-1]), (90, BARS[-1])])
def test_the_top_is_full(count: int, mark: str) -> None:
    assert sparkline([count], 30) == mark
