"""A token bucket, for calls made to us, and where an operator wants smoothness.

Kept as one number, the instant at which the bucket is full again (GCRA), so that a key costs a float.
"""

from collections.abc import Hashable

from tidegate.errors import BadInputError


class Bucket:
    """`capacity` tokens at once, `refill` more each second. Holds no state: the caller keeps the number."""

    __slots__ = ("_depth", "_interval", "capacity", "refill")

    def __init__(self, capacity: float, refill: float) -> None:
        if not (capacity > 0 and refill > 0):
            raise BadInputError(f"a bucket needs capacity and refill above 0, not {capacity} and {refill}")
        self.capacity, self.refill = capacity, refill
        self._interval = 1 / refill
        self._depth = capacity / refill

    def take(self, full_at: float, now: float, cost: float = 1) -> tuple[float, float]:
        """The new number and 0 if `cost` tokens were taken; the old one and the seconds to wait if not."""
        base = max(full_at, now)
        after = base + cost * self._interval
        wait = after - self._depth - now
        # An empty bucket may be off by the rounding of a sum; a billionth of a token is none.
        return (after, 0.0) if wait <= 1e-9 * self._depth else (full_at, wait)


class Buckets:
    """One bucket for each key, forgotten once it is full again."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._full_at: dict[Hashable, float] = {}
        self._sweep_at = 1_000

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, key: Hashable, now: float, cost: float = 1) -> float:
        """0 if taken, else the seconds to wait."""
        full_at, wait = self._bucket.take(self._full_at.get(key, 0.0), now, cost)
        if wait == 0:
            self._full_at[key] = full_at
            if len(self._full_at) >= self._sweep_at:
                self._sweep(now)
        return wait

    def _sweep(self, now: float) -> None:
        """At twice what is left each time, so that a take stays cheap on average."""
        self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
        self._sweep_at = max(1_000, 2 * len(self._full_at))
