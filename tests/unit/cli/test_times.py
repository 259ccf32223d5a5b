"""Times as people say them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.times import distance, moment, short_moment, span
from tidegate.errors import BadInputError
from tidegate.outbox.message_times import duration

NOON = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("1.5d", 129_600), (" 1w ", 604_800)]
)
def test_durations_are_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration("--older-than", text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2 hours", "2h30m", "1e9s", "inf"])
def test_other_durations_are_refused_and_the_option_is_named(text: str) -> None:
    with pytest.raises(BadInputError, match=r"--older-than: .* is not a duration: write a number and"):
        duration("--older-than", text)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 s"), (119, "119 s"), (180, "3 min"), (7_199, "119 min"), (7_200, "2 h"), (200_000, "2 d")],
)
def test_spans_keep_two_digits_of_meaning(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_a_time_is_told_with_its_distance() -> None:
    assert distance(NOON - 180, NOON) == "3 min ago"
    assert distance(NOON + 30, NOON) == "in 30 s"
    assert distance(NOON, NOON) == "now"
    assert moment(NOON - 180, NOON).endswith(" (3 min ago)")
    assert short_moment(NOON - 86_400 * 3, NOON).endswith(", 3 d ago")
    assert short_moment(NOON, NOON).count(":") == 2  # of today: to the second, without a date


@given(st.floats())
def test_no_time_breaks_the_view(at: float) -> None:
    assert moment(at, NOON)
    assert short_moment(at, NOON)


def test_what_has_no_end_never_comes() -> None:
    assert distance(math.inf, NOON) == "never"
    assert span(math.inf) == "for ever"
