"""The histogram of the loop's delays weighs moments, and is read as quantiles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.ops.loop_delay import BUCKETS, DelayHistogram

EVERY = 0.075


def test_nothing_was_seen_yet() -> None:
    reading = DelayHistogram().reading()
    assert (reading.samples, reading.p50, reading.p99, reading.worst) == (0, 0.0, 0.0, 0.0)


def test_a_block_counts_for_every_moment_in_it() -> None:
    histogram = DelayHistogram()
    for _ in range(90):
        histogram.record(0.0004, EVERY)
    histogram.record(0.75, EVERY)  # ten beats fell into it: 0.75, 0.675, … 0.075 s late

    reading = histogram.reading()
    assert reading.samples == 100
    assert reading.p50 < 0.001
    assert reading.p99 > 0.5
    assert reading.worst == 0.75
    assert dict(reading.buckets)[0.1] == 91
    assert reading.total == pytest.approx(90 * 0.0004 + sum(0.075 * step for step in range(1, 11)))


def test_a_beat_that_comes_a_little_early_counts_as_no_delay() -> None:
    histogram = DelayHistogram()
    histogram.record(-0.001, EVERY)
    assert histogram.reading().total == 0.0


@given(st.lists(st.floats(0, 40), min_size=1, max_size=50))
def test_quantiles_are_in_order_and_within_the_bucket_that_holds_them(delays: list[float]) -> None:
    histogram = DelayHistogram()
    for delay in delays:
        histogram.record(delay, 1_000.0)
    reading = histogram.reading()

    assert 0 <= reading.p50 <= reading.p99 <= reading.worst == max(delays)
    assert reading.samples == len(delays)
    counts = [count for _, count in reading.buckets]
    assert counts == sorted(counts)
    median = sorted(delays)[(len(delays) - 1) // 2]
    bound = next((bound for bound in BUCKETS if median <= bound), max(delays))
    assert reading.p50 <= bound
