"""Exact counting of arrivals. Independent of `tidegate.pacing`, which is tested against it."""

import math
from collections import deque
from typing import Any, Final

from tidegate.model import Rate

_ROUNDING: Final = 1e-9  # arrivals: the error of a sum


class SlidingWindow:
    """The arrivals of the last `seconds`, exactly. An arrival leaves when it is `seconds` old.

    "Old" is always `arrival + seconds <= now`: another form of it rounds to another instant.
    """

    __slots__ = ("arrivals", "rate")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.arrivals: deque[float] = deque()

    def wait(self, now: float, cost: int) -> float:
        """Return the seconds until `cost` more arrivals fit; 0 if they fit now.

        A cost above the size of the window fits when the window is empty.
        """
        arrivals, count, seconds = self.arrivals, self.rate.count, self.rate.seconds
        while arrivals and arrivals[0] + seconds <= now:
            arrivals.popleft()
        excess = len(arrivals) + cost - count
        if excess <= 0 or not arrivals:
            return 0.0
        return arrivals[min(excess, len(arrivals)) - 1] + seconds - now

    def add(self, now: float, cost: int) -> int:
        """Count `cost` arrivals; returns how many the window now holds."""
        if cost == 1:
            self.arrivals.append(now)
        else:
            self.arrivals.extend([now] * cost)
        return len(self.arrivals)

    def is_idle(self, now: float) -> bool:
        return not self.arrivals or self.arrivals[-1] + self.rate.seconds <= now


class BurstBucket:
    """`burst` arrivals at once, then as many as the rate gives back: a token bucket."""

    __slots__ = ("_at", "_burst", "_used", "rate")

    def __init__(self, rate: Rate, burst: int) -> None:
        self.rate = rate
        self._burst = burst
        self._used, self._at = 0.0, 0.0  # arrivals that are not given back yet, and when that was so

    def wait(self, now: float, cost: int) -> float:
        """Return the seconds until `cost` more arrivals fit; 0 if they fit now.

        A cost above the burst fits when nothing of it is used.
        """
        excess = self._used_by(now) + min(cost, self._burst) - self._burst
        return excess / self._per_second if excess > _ROUNDING else 0.0

    def add(self, now: float, cost: int) -> int:
        """Count `cost` arrivals; returns how many it now holds."""
        self._used, self._at = self._used_by(now) + cost, now
        return math.ceil(self._used - _ROUNDING)

    def is_idle(self, now: float) -> bool:
        return self._used_by(now) == 0

    def _used_by(self, now: float) -> float:
        return max(0.0, self._used - (now - self._at) * self._per_second)

    @property
    def _per_second(self) -> float:
        return self.rate.count / self.rate.seconds


ArrivalCounter = SlidingWindow | BurstBucket


class RequestRate:
    """Counts requests, the most in any second, and the time from the first to the last."""

    def __init__(self) -> None:
        self.requests = 0
        self.peak = 0
        self.first: float | None = None
        self._last = 0.0
        self._last_second: deque[float] = deque()

    def add(self, now: float) -> None:
        """Count a request that arrives at `now` (monotonic)."""
        self.requests += 1
        if self.first is None:
            self.first = now
        self._last = now
        second = self._last_second
        second.append(now)
        while second[0] + 1 <= now:
            second.popleft()
        self.peak = max(self.peak, len(second))

    def report(self) -> dict[str, Any]:
        seconds = self._last - self.first if self.first is not None else 0.0
        return {
            "avg_rps": round(self.requests / seconds, 2) if seconds > 0 else 0.0,
            "peak_rps": self.peak,
            "seconds": round(seconds, 3),
        }
