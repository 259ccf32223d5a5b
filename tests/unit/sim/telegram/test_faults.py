import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.sim.telegram import Faults, Latency


@pytest.mark.parametrize("text", ["0", "20", "5-40", "0.5-1.5", "20~200"])
def test_a_latency_reads_back_as_written(text: str) -> None:
    assert str(Latency.parse(text)) == text
    assert Latency.parse(text + "ms") == Latency.parse(text)


@pytest.mark.parametrize("text", ["", "fast", "40-5", "-5", "5-", "~3", "0~10"])
def test_what_is_no_latency_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="not a latency"):
        Latency.parse(text)


def test_a_median_of_zero_is_told_apart_from_a_wrong_order() -> None:
    with pytest.raises(BadInputError, match="the median, before the ~, must be above 0"):
        Latency.parse("0~5")


@given(st.integers(0, 500), st.integers(0, 500), st.integers())
def test_an_even_latency_stays_within_its_bounds(low: int, more: int, seed: int) -> None:
    latency = Latency.parse(f"{low}-{low + more}")
    assert low / 1000 - 1e-9 <= latency.seconds(random.Random(seed)) <= (low + more) / 1000 + 1e-9


def test_a_tailed_latency_has_the_median_and_the_99th_percentile_it_names() -> None:
    draw = random.Random(1)
    drawn = sorted(Latency.parse("20~200").seconds(draw) for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(0.020, rel=0.1)
    assert drawn[19_800] == pytest.approx(0.200, rel=0.15)


def test_each_fate_befalls_its_share_of_the_calls() -> None:
    faults = Faults(server_error=0.2, lost_answer=0.05, malformed=0.01)
    draw = random.Random(1)
    fates = Counter(faults.fate(draw) for _ in range(20_000))
    assert fates["server_error"] == pytest.approx(4_000, rel=0.1)
    assert fates["lost_answer"] == pytest.approx(1_000, rel=0.15)
    assert fates["malformed"] == pytest.approx(200, rel=0.3)
    assert set(fates) == {"server_error", "lost_answer", "malformed", "answered"}


@pytest.mark.parametrize("shares", [{"silent": 1.1}, {"silent": -0.1}, {"silent": 0.6, "malformed": 0.6}])
def test_shares_that_cannot_be_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(BadInputError, match="between 0 and 1"):
        Faults(**shares)  # type: ignore[arg-type]
