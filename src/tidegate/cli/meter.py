"""How fast something goes, from a total that is read now and then."""

import math
from bisect import bisect_right

BARS = "▁▂▃▄▅▆▇█"


class Meter:
    """Remembers the last `seconds`. Times must not go back; a total that falls was reset."""

    def __init__(self, seconds: int = 60) -> None:
        self._seconds = seconds
        self._times: list[float] = []
        self._totals: list[int] = []

    def read(self, now: float, total: int) -> None:
        self._times.append(now)
        self._totals.append(total)
        old = bisect_right(self._times, now - self._seconds - 2)
        del self._times[:old], self._totals[:old]

    def per_second(self) -> int:
        """In the latest second."""
        return self._between(self._times[-1] - 1, self._times[-1]) if self._times else 0

    def history(self) -> list[int]:
        """For each of the last whole seconds, oldest first."""
        end = math.floor(self._times[-1]) if self._times else 0
        return [self._between(end - i - 1, end - i) for i in reversed(range(self._seconds))]

    def _between(self, start: float, end: float) -> int:
        return max(0, self._at(end) - self._at(start))

    def _at(self, time: float) -> int:
        return self._totals[max(0, bisect_right(self._times, time) - 1)] if self._totals else 0


def sparkline(counts: list[int], top: int) -> str:
    """One character for each count; `top` and above are full."""
    return "".join(_bar(count, max(1, top)) for count in counts)


def _bar(count: int, top: int) -> str:
    return BARS[min(len(BARS) - 1, count * len(BARS) // (top + 1))] if count else " "
