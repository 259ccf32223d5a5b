"""Times and checkboxes in the spellings of several databases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.upstream.nocodb.values import instant, truth
from tidegate.upstream.nocodb.where import Condition, since


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-05 09:00:00+00:00",
        "2026-01-05 12:00:00+03:00",
        "2026-01-05T09:00:00.000Z",
        "2026-01-05 09:00:00",
    ],
)
def test_a_time_is_seconds_since_the_epoch(text: str) -> None:
    assert instant(text) == 1767603600.0


@given(st.integers(min_value=0, max_value=4_000_000_000))
def test_a_time_that_is_asked_for_is_read_back(seconds: int) -> None:
    where = since("UpdatedAt", float(seconds))
    assert isinstance(where, Condition)
    assert instant(where.values[1]) == seconds


@pytest.mark.parametrize("value", [None, 5, "", "soon", "2026-13-05 09:00:00", [], "5" * 500])
def test_no_time_is_refused(value: object) -> None:
    with pytest.raises(BadInputError, match="not a time"):
        instant(value)


@pytest.mark.parametrize(
    ("value", "ticked"), [(1, True), (0, False), (True, True), (False, False), (None, False)]
)
def test_a_checkbox_is_ticked_or_not(value: object, ticked: bool) -> None:  # noqa: FBT001  (what is expected)
    assert truth(value) is ticked


@pytest.mark.parametrize("value", [2, "yes", [], {}, "paid"])
def test_what_no_checkbox_holds_is_refused(value: object) -> None:
    with pytest.raises(BadInputError, match="checkbox"):
        truth(value)
