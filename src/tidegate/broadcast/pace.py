"""How fast something goes, from its events."""

from collections import deque
from typing import Final

from tidegate.clock import Clock

LOOKS_BACK: Final = 10.0  # seconds
STEPS: Final = 0.25  # seconds whose events are counted together


class Pace:
    """Events a second over the last few seconds. Small, however fast it goes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._steps: deque[tuple[float, int]] = deque()  # when, and how many

    def count(self) -> None:
        now = self._clock.monotonic()
        if self._steps and now - self._steps[-1][0] < STEPS:
            when, many = self._steps.pop()
            self._steps.append((when, many + 1))
        else:
            self._steps.append((now, 1))
        self._drop(now)

    def per_second(self) -> float:
        now = self._clock.monotonic()
        self._drop(now)
        span = min(LOOKS_BACK, now - self._since)
        return sum(many for _, many in self._steps) / span if span > 0 else 0.0

    def _drop(self, now: float) -> None:
        while self._steps and self._steps[0][0] <= now - LOOKS_BACK:
            self._steps.popleft()
