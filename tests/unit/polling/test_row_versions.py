"""Overlapping deltas read rows repeatedly: each version is new once, and memory is bounded."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.polling.source import SourceRow
from tidegate.polling.watermark import RowVersions


def row(number: int, changed: float) -> SourceRow:
    return SourceRow(str(number), str(number), met=True, changed=changed)


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8)))
def test_each_version_of_a_row_is_new_once(reads: list[list[tuple[int, int]]]) -> None:
    seen, newest = RowVersions(), dict[str, float | None]()
    for read in reads:
        rows = list({number: row(number, float(changed)) for number, changed in read}.values())
        expected = [each for each in rows if newest.get(each.id) != each.changed]
        assert seen.fresh(rows) == expected
        newest.update((each.id, each.changed) for each in rows)


def test_what_is_older_than_the_window_is_forgotten() -> None:
    seen = RowVersions()
    seen.fresh([row(number, float(number)) for number in range(100)])
    seen.forget_before(90.0)
    assert len(seen) == 10
    assert seen.fresh([row(90, 90.0)]) == []
    assert seen.fresh([row(89, 89.0)]) == [row(89, 89.0)]


@given(st.lists(st.integers(0, 1_000), min_size=30, max_size=60))
def test_it_never_holds_more_than_it_may_and_keeps_the_newest(times: list[int]) -> None:
    seen = RowVersions(at_most=20)
    for number, changed in enumerate(times):
        seen.fresh([row(number, float(changed))])
        assert len(seen) <= 20
    assert len(seen) >= 15


def test_of_too_many_the_newest_three_quarters_are_kept() -> None:
    seen = RowVersions(at_most=20)
    order = [*range(20, 0, -1), 21]  # the newest is not the one that was read last
    for number in order[:-1]:
        seen.fresh([row(number, float(number))])
    assert len(seen) == 20

    seen.fresh([row(21, 21.0)])

    assert len(seen) == 15
    assert [number for number in range(1, 22) if not seen.fresh([row(number, float(number))])] == [
        *range(7, 22)
    ]


def test_a_row_without_a_time_is_never_new() -> None:
    seen = RowVersions()
    timeless = SourceRow("1", "1", met=True, changed=None)

    assert seen.fresh([timeless, row(2, 2.0)]) == [row(2, 2.0)]
    assert len(seen) == 1
