"""The histogram of the event loop's delays: how late it runs what is due."""

from bisect import bisect_left
from itertools import accumulate
from typing import Final

import msgspec

# Upper bounds in seconds; the last bucket, without a bound, is beyond them.
BUCKETS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 2.0, 5.0, 10.0, 30.0),
)

ROUNDING: Final = 1e-9  # seconds


class LoopDelay(msgspec.Struct, frozen=True):
    """How late the event loop was since it has been watched, in seconds.

    A sample is a moment, not a delay: a block of one second counts for every moment in it. `p50` and `p99`
    are read from the buckets, `worst` is exact. `buckets` are cumulative, as Prometheus counts: (bound,
    samples up to it).
    """

    samples: int
    p50: float
    p99: float
    worst: float
    total: float  # the sum of all samples
    buckets: tuple[tuple[float, int], ...]


class DelayHistogram:
    """Counts delays in fixed buckets. Written by one thread; any thread may read it."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self._total = self._worst = 0.0

    def record(self, delay: float, every: float) -> None:
        """Count a delay, sampled `every` so many seconds, and the samples that it has kept from being taken.

        Those would have met what was left of it. Without them a long block would weigh as little as a moment.
        """
        self._worst = max(self._worst, delay)
        self._add(max(delay, 0.0))
        left = delay - every
        while left > ROUNDING:
            self._add(left)
            left -= every

    def reading(self) -> LoopDelay:
        counts = list(accumulate(self._counts))
        return LoopDelay(
            samples=counts[-1],
            p50=self._quantile(0.5, counts),
            p99=self._quantile(0.99, counts),
            worst=self._worst,
            total=self._total,
            buckets=tuple(zip(BUCKETS, counts, strict=False)),
        )

    def _add(self, delay: float) -> None:
        self._counts[bisect_left(BUCKETS, delay)] += 1
        self._total += delay

    def _quantile(self, share: float, counts: list[int]) -> float:
        """Interpolate within the bucket in which the quantile lies; never beyond the worst delay."""
        rank = share * counts[-1]
        at = bisect_left(counts, rank) if rank else 0
        below = counts[at - 1] if at else 0
        low = BUCKETS[at - 1] if at else 0.0
        high = BUCKETS[at] if at < len(BUCKETS) else self._worst
        inside = counts[at] - below
        return min(self._worst, low + (high - low) * (rank - below) / inside) if inside else 0.0
