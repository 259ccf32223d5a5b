"""What arrived and how it was answered, counted."""

from collections import Counter, deque
from typing import Any, NamedTuple

LOG_KEPT = 1_000
SECONDS_KEPT = 86_400


class LoggedRequest(NamedTuple):
    at: float  # seconds since the epoch, by true time
    method: str
    path: str  # without query, cut
    status: int
    size: int  # bytes of the answer


class NocoDbRequestLog:
    """Bounded, whatever comes. `clear` begins anew."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.requests = 0
        self.refused = 0
        self.peak_rps = 0
        self.statuses: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.log: deque[LoggedRequest] = deque(maxlen=LOG_KEPT)
        self._first: float | None = None
        self._last = 0.0
        self._last_second: deque[float] = deque()
        self._seconds: dict[int, int] = {}  # since the first request

    def arrive(self, now: float) -> None:
        """A request has come, whatever becomes of it. `now` is monotonic."""
        self.requests += 1
        if self._first is None:
            self._first = now
        self._last = now
        recent = self._last_second
        recent.append(now)
        while recent[0] + 1 <= now:
            recent.popleft()
        self.peak_rps = max(self.peak_rps, len(recent))
        second = int(now - self._first)
        self._seconds[second] = self._seconds.get(second, 0) + 1
        if len(self._seconds) > SECONDS_KEPT:
            del self._seconds[next(iter(self._seconds))]

    def answer(self, entry: LoggedRequest) -> None:
        self.statuses[str(entry.status)] += 1
        self.refused += entry.status == 429  # noqa: PLR2004  (too many requests)
        self.log.append(entry)

    def report(self) -> dict[str, Any]:
        """In the vocabulary that all reports share. `seconds`: from the first request to the last."""
        seconds = self._last - self._first if self._first is not None else 0.0
        return {
            "requests": self.requests,
            "refused": self.refused,
            "statuses": dict(sorted(self.statuses.items())),
            "faults": dict(self.faults),
            "avg_rps": round(self.requests / seconds, 2) if seconds > 0 else 0.0,
            "peak_rps": self.peak_rps,
            "seconds": round(seconds, 3),
            "per_second": self._per_second(),
        }

    def _per_second(self) -> list[int]:
        if not self._seconds:
            return []
        last = next(reversed(self._seconds))
        first = max(next(iter(self._seconds)), last + 1 - SECONDS_KEPT)
        return [self._seconds.get(second, 0) for second in range(first, last + 1)]
