"""Token buckets against the plain definition: tokens that drip in, and are taken out."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.pacing.bucket import Bucket, KeyedBuckets

takes = st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 6)), max_size=60)


class PlainBucket:
    """Tokens, counted exactly."""

    def __init__(self, capacity: int, refill: int) -> None:
        self.capacity, self.refill = capacity, refill
        self.tokens, self.at = Fraction(capacity), Fraction(0)

    def take(self, now: Fraction, cost: int) -> Fraction:
        self.tokens = min(Fraction(self.capacity), self.tokens + (now - self.at) * self.refill)
        self.at = now
        if self.tokens >= cost:
            self.tokens -= cost
            return Fraction(0)
        return (cost - self.tokens) / self.refill


@given(takes, st.integers(1, 5), st.sampled_from([1, 2, 4, 8]))
def test_a_bucket_is_the_plain_token_bucket(
    wanted: list[tuple[int, int]], capacity: int, refill: int
) -> None:
    bucket, plain = Bucket(capacity, refill), PlainBucket(capacity, refill)
    full_at, now = 0.0, Fraction(0)
    for gap, cost in wanted:
        now += Fraction(gap, 1024)  # exact as a float
        full_at, wait = bucket.take(full_at, float(now), cost)
        assert wait == pytest.approx(float(plain.take(now, cost)), abs=1e-9)


@given(takes, st.integers(1, 5), st.floats(0.1, 50))
def test_after_the_wait_it_names_the_tokens_are_there(
    wanted: list[tuple[int, int]], capacity: int, refill: float
) -> None:
    bucket = Bucket(capacity, refill)
    full_at, now = 0.0, 0.0
    for gap, cost in wanted:
        now += gap / 1000
        full_at, wait = bucket.take(full_at, now, min(cost, capacity))
        if wait:
            now += wait
            full_at, wait = bucket.take(full_at, now, min(cost, capacity))
            assert wait == 0


def test_what_is_not_given_is_not_taken() -> None:
    bucket = Bucket(2, 1)
    emptied, _ = bucket.take(0.0, 10.0, 2)

    assert bucket.take(emptied, 10.0) == (emptied, 1.0)


@pytest.mark.parametrize(("capacity", "refill"), [(0, 1), (1, 0), (-1, 1), (1, -1), (float("nan"), 1)])
def test_a_bucket_that_would_never_give_is_refused(capacity: float, refill: float) -> None:
    with pytest.raises(BadInputError, match="above 0"):
        Bucket(capacity, refill)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3_000), st.integers(1, 3)), max_size=80))
def test_forgetting_a_full_bucket_changes_nothing(wanted: list[tuple[int, int, int]]) -> None:
    bucket, buckets = Bucket(3, 2), KeyedBuckets(Bucket(3, 2))
    remembered: dict[int, float] = {}
    now = 0.0
    for key, gap, cost in wanted:
        now += gap / 1000
        remembered[key], wait = bucket.take(remembered.get(key, 0.0), now, cost)
        assert buckets.take(key, now, cost) == wait


def test_a_million_users_are_forgotten_once_their_buckets_are_full() -> None:
    buckets = KeyedBuckets(Bucket(5, 1))
    for user in range(1_000_000):
        buckets.take(user, now=user / 1_000_000)
    assert len(buckets) == 1_000_000

    for second in (6, 12, 18):  # one user goes on
        buckets.take("the last one", now=second)

    assert len(buckets) == 1


def test_users_are_forgotten_by_generations() -> None:
    buckets = KeyedBuckets(Bucket(2, 1))  # full again after two seconds
    buckets.take("first", 10.0)
    buckets.take("second", 12.0)
    assert len(buckets) == 2

    buckets.take("first", 12.5)
    assert len(buckets) == 2  # known once, though it was of the older generation

    buckets.take("third", 14.0)
    assert len(buckets) == 3
    buckets.take("third", 16.0)
    assert len(buckets) == 1
    buckets.take("fourth", 20.0)  # nobody came for two generations
    assert len(buckets) == 1


def test_a_key_takes_one_token_unless_told_otherwise() -> None:
    buckets = KeyedBuckets(Bucket(2, 1))

    assert [buckets.take("user", 10.0) for _ in range(3)] == [0.0, 0.0, 1.0]


def test_whoever_only_asks_takes_nothing() -> None:
    buckets = KeyedBuckets(Bucket(2, 1))

    assert [buckets.wait("user", 10.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert len(buckets) == 0
    buckets.take("user", 10.0, 2)
    assert buckets.wait("user", 10.0) == 1.0
    assert buckets.wait("user", 11.0) == 0.0


def test_keys_for_whom_there_is_no_room_share_a_bucket() -> None:
    buckets = KeyedBuckets(Bucket(2, 1), most=2)
    for user in ("one", "two", "three", "four"):
        assert buckets.take(user, 10.0) == 0.0

    assert len(buckets) == 3
    assert [buckets.wait(user, 10.0) for user in ("one", "four", "five")] == [0.0, 1.0, 1.0]
    assert buckets.wait("five", 14.0) == 0.0
    assert buckets.take("five", 14.0) == 0.0
    assert len(buckets) == 1
