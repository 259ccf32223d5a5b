"""Counts of the requests that arrived and of their answers, and a log of the latest."""

from collections import Counter, deque
from typing import Any, NamedTuple

from tidegate.sim.sliding_window import RequestRate

LOG_KEPT = 1_000
SECONDS_KEPT = 86_400


class LoggedRequest(NamedTuple):
    at: float  # seconds since the epoch, by true time
    method: str
    path: str  # without query, cut
    status: int
    size: int  # bytes of the answer


class NocoDbRequestLog:
    """Bounded in memory. `clear` empties it."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._rate = RequestRate()
        self.refused = 0
        self.statuses: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.log: deque[LoggedRequest] = deque(maxlen=LOG_KEPT)
        self._seconds: dict[int, int] = {}  # since the first request

    def arrive(self, now: float) -> None:
        """Count a request, however it is answered. `now` is monotonic."""
        self._rate.add(now)
        second = int(now - (self._rate.first or 0.0))
        self._seconds[second] = self._seconds.get(second, 0) + 1
        if len(self._seconds) > SECONDS_KEPT:
            del self._seconds[next(iter(self._seconds))]

    def answer(self, entry: LoggedRequest) -> None:
        self.statuses[str(entry.status)] += 1
        self.refused += entry.status == 429  # noqa: PLR2004  (too many requests)
        self.log.append(entry)

    def report(self) -> dict[str, Any]:
        """Return the counts in the words of all reports. `seconds`: from the first request to the last."""
        return {
            "requests": self._rate.requests,
            "refused": self.refused,
            "statuses": dict(sorted(self.statuses.items())),
            "faults": dict(self.faults),
            **self._rate.report(),
            "per_second": self._per_second(),
        }

    def _per_second(self) -> list[int]:
        if not self._seconds:
            return []
        last = next(reversed(self._seconds))
        first = max(next(iter(self._seconds)), last + 1 - SECONDS_KEPT)
        return [self._seconds.get(second, 0) for second in range(first, last + 1)]
