"""The watermark leaves out no row, whatever the source's clock says and however late it commits."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.polling.watermark import Watermark

OVERLAP = 30.0


class _Server:
    """A clock that is off and runs a little fast or slow; rows are stamped first and committed later."""

    def __init__(self, off: float, speed: float, writes: list[tuple[float, float]]) -> None:
        self._off, self._speed = off, speed
        self.rows = [(float(int(self.clock(at))), at + late / speed) for at, late in writes]

    def clock(self, at: float) -> float:
        return self._off + self._speed * at

    def read(self, since: float, at: float) -> list[tuple[float, float]]:
        return [row for row in self.rows if row[0] >= since and row[1] <= at]


def draw_writes(draw: random.Random) -> list[tuple[float, float]]:
    """Some at once, which show how late it is, and some as late as they may be, which are then in danger."""
    return [(draw.uniform(0, 60), draw.choice((0.0, OVERLAP, draw.uniform(0, OVERLAP)))) for _ in range(120)]


@given(st.integers(), st.floats(1e9, 2e9), st.floats(0.9995, 1.0005), st.sampled_from([0.0, 0.3, 0.9]))
def test_nothing_is_missed_while_commits_are_no_later_than_the_overlap(
    seed: int, off: float, speed: float, failing: float
) -> None:
    draw = random.Random(seed)
    server = _Server(off, speed, draw_writes(draw))
    mark, read, now, complete = Watermark(off - 5), set[tuple[float, float]](), 0.0, -1.0
    while now < 100:
        began = now + draw.uniform(0.01, 1)
        evaluated = began + draw.uniform(0, 0.2)
        now = evaluated + draw.uniform(0, 0.2)
        since = mark.since(OVERLAP)
        assert since is not None
        if draw.random() < failing:
            continue
        fresh = set(server.read(since, evaluated)) - read
        read |= fresh
        for changed, _ in fresh:
            mark.saw(changed, now)
        mark.passed(began)
        complete = evaluated
    assert {row for row in server.rows if row[1] <= complete} == read


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e3)), min_size=1))
def test_the_mark_never_goes_back_by_itself(rows: list[tuple[float, float]]) -> None:
    mark, before = Watermark(), float("-inf")
    for changed, heard in rows:
        mark.saw(changed, heard)
        mark.passed(heard)
        now = mark.since(OVERLAP)
        assert now is not None
        assert now >= before
        before = now


def test_a_burst_is_not_read_again_until_the_next_payment() -> None:
    mark = Watermark()
    mark.saw(5_000.0, heard=100.0)
    mark.passed(100.0)
    assert mark.since(OVERLAP) == pytest.approx(5_000 - 31)
    mark.passed(140.0)  # nothing new was seen
    assert mark.since(OVERLAP) == pytest.approx(5_000 + 40 - 31, abs=0.1)


def test_a_source_whose_clock_runs_slow_is_not_outrun_in_a_long_quiet() -> None:
    mark = Watermark()
    mark.saw(5_000.0, heard=0.0)
    day = 86_400.0
    mark.passed(day)
    since = mark.since(OVERLAP)
    assert since is not None
    assert since <= 5_000 + day * 0.9995 - OVERLAP


def test_time_without_answers_does_not_move_it() -> None:
    mark = Watermark()
    mark.saw(5_000.0, heard=100.0)
    mark.passed(100.0)
    before = mark.since(OVERLAP)
    mark.saw(5_090.0, heard=200.0)  # a first page, but the second never came
    assert mark.since(OVERLAP) == before


def test_what_is_kept_is_the_time_of_a_row_and_another_run_begins_there() -> None:
    mark = Watermark()
    assert mark.to_save is None
    mark.saw(5_000.0, heard=100.0)
    mark.passed(400.0)
    assert mark.to_save == 5_000.0
    again = Watermark(mark.to_save)
    assert again.to_save == 5_000.0
    assert again.since(OVERLAP) == 5_000 - 31
    again.passed(7.0)  # without a row nothing is known of the clock
    assert again.since(OVERLAP) == 5_000 - 31


def test_rows_of_later_pages_do_not_hide_what_was_written_while_they_were_read() -> None:
    mark = Watermark()
    mark.saw(5_000.0, heard=100.0)
    mark.saw(5_020.0, heard=120.0)  # the last page, twenty seconds later
    mark.passed(99.0)
    since = mark.since(OVERLAP)
    assert since is not None
    assert since <= 5_000 - 30
    assert mark.to_save is not None
    assert mark.to_save <= 5_000


def test_a_clock_that_was_set_back_sets_the_mark_back() -> None:
    mark = Watermark()
    mark.saw(9_000.0, heard=100.0)
    mark.passed(100.0)
    mark.set_back(5_000.0, heard=110.0, began=105.0)
    since = mark.since(OVERLAP)
    assert since is not None
    assert since <= 5_000 - 5 - 30
    assert mark.to_save is not None
    assert mark.to_save <= 5_000
    mark.passed(200.0)
    since = mark.since(OVERLAP)
    assert since is not None
    assert 5_050 < since < 5_060


def test_a_row_without_a_time_proves_nothing() -> None:
    mark = Watermark()
    mark.saw(None, heard=100.0)
    mark.passed(100.0)
    assert (mark.since(OVERLAP), mark.to_save) == (None, None)


def test_a_clock_that_was_set_back_before_anything_was_read_to_its_end_gives_a_mark() -> None:
    mark = Watermark()
    mark.set_back(5_000.0, heard=100.0, began=100.0)
    assert mark.since(OVERLAP) == pytest.approx(5_000 - 31)
    assert mark.to_save == 5_000.0


def test_a_clock_that_was_set_back_does_not_carry_the_mark_forward() -> None:
    mark = Watermark(4_000.0)
    mark.set_back(5_000.0, heard=100.0, began=100.0)
    assert mark.since(OVERLAP) == 4_000 - 31
    mark.saw(5_100.0, heard=190.0)  # its clock is further ahead than was known
    mark.passed(200.0)
    assert mark.since(OVERLAP) == pytest.approx(5_110 - 31, abs=0.2)
    assert mark.to_save == 5_100.0
    mark.saw(5_050.0, heard=210.0)  # an older row that was committed late
    mark.passed(210.0)
    assert mark.since(OVERLAP) == pytest.approx(5_120 - 31, abs=0.2)
    assert mark.to_save == 5_100.0
