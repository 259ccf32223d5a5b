"""The interval of deltas: as short as the limit allows, with room for others."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.polling.delta import SHORTEST_INTERVAL, AdaptiveInterval

FIVE = Rate(5, 1)


def test_half_of_five_a_second_is_a_cycle_every_four_tenths() -> None:
    assert AdaptiveInterval(0.5).after(1, 0.0, FIVE) == pytest.approx(0.4)


def test_more_pages_make_a_longer_cycle() -> None:
    assert AdaptiveInterval(0.5).after(5, 0.0, FIVE) == pytest.approx(2.0)


def test_a_learned_limit_slows_it_at_once() -> None:
    assert AdaptiveInterval(0.5).after(1, 0.0, Rate(1, 2.0)) == pytest.approx(4.0)


def test_it_gives_way_when_it_was_kept_waiting_and_comes_back() -> None:
    pace = AdaptiveInterval(0.5)
    crowded = [pace.after(1, 0.3, FIVE) for _ in range(10)]
    assert crowded[0] == pytest.approx(0.6)
    assert crowded == sorted(crowded)
    assert crowded[-1] == pytest.approx(0.4 * 8)
    quiet = [pace.after(1, 0.0, FIVE) for _ in range(10)]
    assert quiet == sorted(quiet, reverse=True)
    assert quiet[-1] == pytest.approx(0.4)


def test_errors_slow_it_too() -> None:
    pace = AdaptiveInterval(0.5)
    pace.failed()
    pace.failed()
    assert pace.after(1, 0.0, FIVE) == pytest.approx(0.6)
    assert pace.after(1, 0.0, FIVE) == pytest.approx(0.4)


@given(
    st.floats(0.01, 1),
    st.lists(st.tuples(st.integers(0, 20), st.floats(0, 5)), min_size=1),
    st.integers(1, 100),
    st.floats(0.1, 60),
)
def test_it_never_takes_more_than_its_share_nor_goes_faster_than_the_fastest(
    share: float, cycles: list[tuple[int, float]], count: int, seconds: float
) -> None:
    pace = AdaptiveInterval(share)
    for requests, waited in cycles:
        took = pace.after(requests, waited, Rate(count, seconds))
        assert took >= SHORTEST_INTERVAL
        assert requests / took <= share * count / seconds * (1 + 1e-9)


@pytest.mark.parametrize("share", [0, -1, 1.1, math.nan, "half"])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(BadInputError, match="above 0 and at most 1"):
        AdaptiveInterval(share)
