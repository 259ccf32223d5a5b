"""The interval of deltas: by the number of people, within a share of the limit, with room for others."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.polling.delta import SHORTEST_CYCLE, AdaptiveInterval, delta_interval_for
from tidegate.polling.per_user import DEFAULT_INTERVAL

FIVE = Rate(5, 1)
MANY = st.integers(1, 1_000_000)


@given(MANY)
def test_deltas_for_any_number_of_people_are_no_more_than_requests_for_each(people: int) -> None:
    assert 1 / delta_interval_for(people) <= people / DEFAULT_INTERVAL


@given(MANY, MANY)
def test_the_more_people_the_more_often(some: int, others: int) -> None:
    fewer, more = sorted((some, others))
    assert delta_interval_for(fewer) >= delta_interval_for(more)


@given(MANY)
def test_nobody_waits_longer_than_with_requests_for_each_and_deltas_stay_below_one_a_second(
    people: int,
) -> None:
    assert 1 < delta_interval_for(people) <= DEFAULT_INTERVAL


@pytest.mark.parametrize(
    ("people", "seconds"), [(1, 60), (2, 40), (3, 30), (5, 20), (9, 12), (99, 1.25), (300, 1.25)]
)
def test_the_interval_for_some_numbers_of_people(people: int, seconds: float) -> None:
    assert delta_interval_for(people) == seconds


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
        assert took >= SHORTEST_CYCLE
        assert requests / took <= share * count / seconds * (1 + 1e-9)


@pytest.mark.parametrize("share", [0, -1, 1.1, math.nan, "half"])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(BadInputError, match="above 0 and at most 1"):
        AdaptiveInterval(share)
