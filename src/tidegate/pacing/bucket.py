"""Token buckets, for calls made to us.

A bucket is kept as one number, the instant at which it is full again (GCRA), so that a key costs a float.
"""

from collections.abc import Hashable
from typing import Final

from tidegate.errors import BadInputError

_OTHERS: Final = object()  # the key of the bucket that all share for whom there is no room


class Bucket:
    """`capacity` tokens at once, `refill` more each second. Holds no state: the caller keeps the number."""

    __slots__ = ("_interval", "capacity", "depth", "refill")

    def __init__(self, capacity: float, refill: float) -> None:
        if not (capacity > 0 and refill > 0):
            raise BadInputError(f"a bucket needs capacity and refill above 0, not {capacity} and {refill}")
        self.capacity, self.refill = capacity, refill
        self._interval = 1 / refill
        self.depth = capacity / refill  # seconds from empty to full

    def take(self, full_at: float, now: float, cost: float = 1) -> tuple[float, float]:
        """The new number and 0 if `cost` tokens were taken, else the old one and the seconds to wait."""
        base = max(full_at, now)
        after = base + cost * self._interval
        wait = after - self.depth - now
        # A bucket may be off by the rounding of a sum: a billionth of a token does not count.
        return (after, 0.0) if wait <= 1e-9 * self.depth else (full_at, wait)


class KeyedBuckets:
    """One bucket for each key, forgotten once it is full again.

    A bucket that was not used for as long as an empty one needs to fill is full. So keys are kept in two
    generations, and the older one is dropped as a whole, without a look at its keys. While there are `most`
    keys, all further ones share one bucket.
    """

    def __init__(self, bucket: Bucket, most: int | None = None) -> None:
        self._bucket = bucket
        self._most = most
        self._young: dict[Hashable, float] = {}
        self._old: dict[Hashable, float] = {}
        self._turned_at = 0.0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def take(self, key: Hashable, now: float, cost: float = 1) -> float:
        """Returns 0 if taken, else the seconds to wait."""
        key = self._place_of(key, now)
        full_at, wait = self._bucket.take(self._full_at(key), now, cost)
        if wait == 0:
            self._young[key] = full_at
            self._old.pop(key, None)
        return wait

    def wait(self, key: Hashable, now: float, cost: float = 1) -> float:
        """Returns the seconds until `cost` tokens can be taken, and takes none."""
        return self._bucket.take(self._full_at(self._place_of(key, now)), now, cost)[1]

    def _place_of(self, key: Hashable, now: float) -> Hashable:
        if now - self._turned_at >= self._bucket.depth:
            self._turn(now)
        is_full = self._most is not None and len(self) >= self._most
        return _OTHERS if is_full and key not in self._young and key not in self._old else key

    def _full_at(self, key: Hashable) -> float:
        return self._young.get(key) or self._old.get(key, 0.0)

    def _turn(self, now: float) -> None:
        untouched = now - self._turned_at >= 2 * self._bucket.depth
        self._old = {} if untouched else self._young
        self._young, self._turned_at = {}, now
