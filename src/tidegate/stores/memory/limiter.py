"""A limiter counted in this process, for an API and token that no other process uses."""

import asyncio
from typing import Final

from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.pacing.learned import LearnedLimit
from tidegate.pacing.window import Window
from tidegate.upstream.limiter import BACKGROUND_PATIENCE, Limiter, LimiterLines, LimiterTurn, as_rate

SHORTEST_TIMER: Final = (
    1e-6  # seconds: a timer that is early by rounding must not be set to the same instant again
)


class MemoryLimiter(Limiter):
    """Belongs to one event loop. Its steps do not await, so each is atomic."""

    def __init__(self, rate: Rate, clock: Clock) -> None:
        rate = as_rate(rate)
        self._clock = clock
        self._window = Window.of(rate)
        self._learned = LearnedLimit(rate)
        self._lines = LimiterLines()
        self._closed_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def introduce(self, name: str, longest: float) -> None:
        """Nothing to set: it logs nothing, and its slots end with this process."""

    @property
    def rate(self) -> Rate:
        self._learn(self._clock.monotonic())
        return self._learned.rate

    @property
    def closed_for(self) -> float:
        return max(0.0, self._closed_until - self._clock.monotonic())

    async def take(self, *, background: bool = False) -> float:
        began = self._clock.monotonic()
        turn = self._lines.join(background=background)
        starving = (
            self._clock.call_later(BACKGROUND_PATIENCE, lambda: self._promote(turn)) if background else None
        )
        self._serve()
        try:
            await self._lines.wait(turn, left=self._serve, spare=self._free)
        finally:
            if starving is not None:
                starving.cancel()
        return self._clock.monotonic() - began

    def _promote(self, turn: LimiterTurn) -> None:
        if self._lines.promote(turn):
            self._serve()

    async def answered(self) -> None:
        self._window.answered(self._clock.monotonic())
        self._serve()

    async def give_back(self) -> None:
        self._free()

    async def close_for(self, seconds: float, *, refused: bool) -> None:
        now = self._clock.monotonic()
        # Requests that were on their way when the API closed are refused too, and teach nothing new.
        if refused and now >= self._closed_until and self._learned.refused(now):
            self._window.resize(self._learned.rate)
        self._closed_until = max(self._closed_until, now + seconds)
        self._serve()

    def _free(self) -> None:
        self._window.give_back()
        self._serve()

    def _serve(self) -> None:
        """Give every caller a turn that may have one now, and set a timer for the next."""
        now = self._clock.monotonic()
        self._learn(now)
        while (
            self._lines and self._wait(now) <= 0 and self._lines.call(background=not self._lines.foreground)
        ):
            self._window.take()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = self._wait(now) if self._lines else float("inf")
        if wait < float("inf"):
            self._timer = self._clock.call_later(max(wait, SHORTEST_TIMER), self._serve)

    def _wait(self, now: float) -> float:
        """Return the seconds until the first in line may go; infinite while an answer has to come first."""
        kept_free = 0 if self._lines.foreground or self._window.count == 1 else 1
        return max(self._closed_until - now, self._window.wait(now, 1 + kept_free))

    def _learn(self, now: float) -> None:
        if self._learned.quiet(now):
            self._window.resize(self._learned.rate)
