"""The limiter of one API and token: the port, lines of waiting callers, and the limiter in memory."""

import asyncio
import math
from collections.abc import Callable
from typing import ClassVar, Final, Protocol

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.pacing.learned import LearnedLimit
from tidegate.pacing.window import Window

BACKGROUND_PATIENCE: Final = 2.0  # seconds that a background call lets all others go first
SHORTEST_TIMER: Final = 1e-6  # seconds: a timer may fire early by rounding, and is then set again

LimiterTurn = asyncio.Future[None]


def as_rate(given: object) -> Rate:
    """Raises BadInputError if it is not a rate, or one that would let no or any number of calls pass."""
    if not isinstance(given, Rate):
        raise BadInputError(f'a rate is Rate(5, 1), or Rate.parse("5/1"), not {given!r:.60}')
    if given.count < 1 or not 0 < given.seconds < math.inf:
        raise BadInputError(f"a rate of {given}: calls and seconds must both be above 0, such as Rate(5, 1)")
    return given


class Limiter(Protocol):
    """The limit of one API and token: n slots, each free again W seconds after the answer to its request."""

    shared: ClassVar[bool] = False  # True if its state is kept in a store, not in this process

    def configure(self, name: str, longest: float) -> None:
        """Set the API's name, for the log, and the seconds that a request may last at most."""

    @property
    def rate(self) -> Rate:
        """The rate that is allowed now: the given one, or less if 429s have taught so."""
        ...

    async def take(self, *, background: bool = False) -> float:
        """Wait for a slot and return the seconds waited. First come, first served; background calls go last.

        A background call leaves one slot free (if there are two) for calls to come, and joins the end of the
        foreground line after two seconds, so it does not starve. A cancelled wait has taken no slot.
        """
        ...

    async def answered(self) -> None:
        """The answer came, or none will: the slot begins to cool."""

    async def give_back(self) -> None:
        """The request never left: the slot is free at once."""

    async def close_for(self, seconds: float, *, refused: bool) -> None:
        """Give out no slot for so long, in any process. `refused`: by a 429, which lowers the rate."""

    @property
    def closed_for(self) -> float:
        """Seconds until slots are given out again, as this process knows it; 0.0 while they are."""
        ...


class LimiterLines:
    """A foreground and a background line of callers that wait for a slot."""

    __slots__ = ("_background", "_foreground")

    def __init__(self) -> None:
        self._foreground: dict[
            LimiterTurn, None
        ] = {}  # in order of arrival; a dict, so that leaving costs O(1)
        self._background: dict[LimiterTurn, None] = {}

    @property
    def foreground(self) -> int:
        return len(self._foreground)

    @property
    def background(self) -> int:
        return len(self._background)

    def __bool__(self) -> bool:
        return bool(self._foreground or self._background)

    def join(self, *, background: bool) -> LimiterTurn:
        turn = asyncio.get_running_loop().create_future()
        (self._background if background else self._foreground)[turn] = None
        return turn

    def promote(self, turn: LimiterTurn) -> bool:
        """Move a background turn to the end of the foreground line; False if it waits no more."""
        if self._background.pop(turn, turn) is turn:
            return False
        self._foreground[turn] = None
        return True

    def call(self, *, background: bool) -> bool:
        """Give the first of a line its turn; False if the line is empty."""
        line = self._background if background else self._foreground
        while line:
            turn = next(iter(line))
            del line[turn]
            if not turn.done():
                turn.set_result(None)
                return True
        return False

    async def wait(self, turn: LimiterTurn, *, left: Callable[[], None], spare: Callable[[], None]) -> None:
        """Wait for the turn. On cancellation call `left` if it had not come, `spare` if it had."""
        try:
            await turn
        except asyncio.CancelledError:
            self._foreground.pop(turn, None)
            self._background.pop(turn, None)
            if turn.cancelled():
                left()
            else:
                spare()
            raise


class MemoryLimiter(Limiter):
    """A limiter counted in this process, for an API and token that no other process uses.

    Belongs to one event loop. Its steps do not await, so each is atomic.
    """

    def __init__(self, rate: Rate, clock: Clock) -> None:
        rate = as_rate(rate)
        self._clock = clock
        self._window = Window.of(rate)
        self._learned = LearnedLimit(rate)
        self._lines = LimiterLines()
        self._closed_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def configure(self, name: str, longest: float) -> None:
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
