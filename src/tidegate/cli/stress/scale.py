"""From numbers to places in a drawing, each decade as high as the next: 0.1 and 100 fit one picture."""

import math
from collections.abc import Iterable
from typing import NamedTuple, Self

STEPS = ((60, "{:.0f} s"), (1, "{:.3g} s"), (0, "{:.2f} s"))


class LogScale(NamedTuple):
    """Places are pixels from the top: `top` is that of 10^high, `bottom` that of 10^low."""

    low: int
    high: int
    top: float
    bottom: float

    @classmethod
    def around(cls, numbers: Iterable[float], top: float, bottom: float) -> Self:
        """With room for all that are above 0: whole decades, the smallest number not on the ground."""
        logs = [math.log10(number) for number in numbers if number > 0] or [0.0]
        low = math.floor(min(logs))
        if min(logs) - low < 0.05:  # noqa: PLR2004  (a bar that could not be seen)
            low -= 1
        return cls(low, max(low + 1, math.ceil(max(logs))), top, bottom)

    def place(self, number: float) -> float:
        """What is below the scale lies on its ground."""
        if number <= 0:
            return self.bottom
        part = (math.log10(number) - self.low) / (self.high - self.low)
        return self.bottom - min(1.0, max(0.0, part)) * (self.bottom - self.top)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def duration(ms: float) -> str:
    """Milliseconds as people read them: 0.31 s, 4.5 s, 58 s, 312 s."""
    seconds = ms / 1_000
    return next(form for above, form in STEPS if seconds >= above).format(seconds)


def per_second(rate: float) -> str:
    return f"{rate:.2f}" if rate < 10 else f"{rate:.0f}"  # noqa: PLR2004  (three digits say enough)
