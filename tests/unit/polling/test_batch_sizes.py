"""Batch sizes: small, unless a cycle would need too many requests; never too long a URL."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.polling.batch import batch_size_for, split_batches
from tidegate.polling.per_user import even_spread


@pytest.mark.parametrize(
    ("subscribers", "size"),
    [(1, 20), (300, 20), (301, 30), (1_000, 30), (1_001, 50), (3_000, 50), (10_000, 167)],
)
def test_the_size_grows_with_the_number_of_subscribers(subscribers: int, size: int) -> None:
    assert batch_size_for(subscribers, 60) == size


@given(st.integers(1, 100_000), st.floats(1, 3_600))
def test_a_cycle_never_needs_more_than_a_request_per_second(subscribers: int, interval: float) -> None:
    batches = -(-subscribers // batch_size_for(subscribers, interval))
    assert batches <= interval


@given(st.lists(st.text(max_size=5), max_size=60), st.integers(1, 20), st.integers(0, 30))
def test_batches_hold_every_key_once_in_order_and_no_more_than_fits(
    keys: list[str], size: int, room: int
) -> None:
    batches = list(split_batches(keys, size, lambda _: room))
    assert [key for batch in batches for key in batch] == keys
    assert all(len(batch) <= max(1, min(size, room)) for batch in batches)


def test_places_are_spread_evenly_whatever_their_number() -> None:
    for count in range(1, 200):
        places = sorted(even_spread(number) for number in range(count))
        gaps = [after - before for before, after in zip(places, [*places[1:], 1.0], strict=True)]
        assert max(gaps) <= 2 / count


def test_a_key_that_cannot_be_asked_for_is_alone_and_the_others_are_not() -> None:
    keys = [f"k{number}" for number in range(100)]
    keys[37] = "both ' and \""

    def most(batch: Sequence[str]) -> int:
        if keys[37] in batch:
            raise BadInputError("it holds both kinds of quotes")
        return len(batch)

    batches = list(split_batches(keys, 20, most))

    assert [key for batch in batches for key in batch] == keys
    assert [keys[37]] in batches
    assert len(batches) < 15
