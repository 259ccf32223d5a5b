import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.model import Rate


@given(st.integers(1, 10**9 - 1), st.integers(1, 10**6))
def test_a_rate_reads_back_as_written(count: int, seconds: int) -> None:
    rate = Rate(count, seconds)
    assert Rate.parse(f"{count}/{seconds}") == rate
    assert hash(Rate.parse(f" {count}/{seconds} ")) == hash(rate)


def test_a_rate_may_have_fractions_of_seconds() -> None:
    assert Rate.parse("3/0.5") == Rate(3, 0.5)
    assert str(Rate(3, 0.5)) == "3/0.5"


@pytest.mark.parametrize("text", ["30/", "/1", "30", "", "x/1", "30/1/1", "-1/1", "1e3/1", "30 / 1"])
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInputError, match=r"write calls/seconds, such as 30/1"):
        Rate.parse(text)


@pytest.mark.parametrize("text", ["0/1", "1/0", "1/0.0"])
def test_a_rate_that_never_lets_anything_pass_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="above 0"):
        Rate.parse(text)
