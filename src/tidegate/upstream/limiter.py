"""The limiter port, and the waiting lines in which its implementations serve callers."""

import asyncio
import math
from collections.abc import Callable
from typing import ClassVar, Final, Protocol

from tidegate.errors import BadInputError
from tidegate.model import Rate


def as_rate(given: object) -> Rate:
    """Raises BadInputError for what is no rate, or would let nobody or everybody pass."""
    if not isinstance(given, Rate):
        raise BadInputError(f'a rate is Rate(5, 1), or Rate.parse("5/1"), not {given!r:.60}')
    if given.count < 1 or not 0 < given.seconds < math.inf:
        raise BadInputError(f"a rate of {given}: calls and seconds must both be above 0, such as Rate(5, 1)")
    return given


class Limiter(Protocol):
    """The limit of one API and token: n slots, each free again W seconds after the answer to its request."""

    shared: ClassVar[bool] = False  # what it knows is kept outside of this process

    def introduce(self, name: str, longest: float) -> None:
        """Whose it is: the API's name, for the log, and the seconds that a request may last at most."""

    @property
    def rate(self) -> Rate:
        """What is allowed now: the rule, or less where a 429 has taught so."""
        ...

    async def take(self, *, background: bool = False) -> float:
        """Wait for a slot; the seconds that it took. First come, first served, background after all others.

        Background leaves one slot free (if there are two), for whoever comes, and stands behind the others
        like one of them after two seconds: it does not starve. One that is cancelled while
        it waits has taken nothing.
        """
        ...

    async def answered(self) -> None:
        """The answer came, or none will: the slot begins to cool."""

    async def give_back(self) -> None:
        """The request never left: the slot is free at once."""

    async def close_for(self, seconds: float, *, refused: bool) -> None:
        """Nobody takes a slot for so long, in any process. `refused`: by a 429, from which to learn."""

    @property
    def closed_for(self) -> float:
        """Seconds until it opens again, as this process knows it; 0.0 while it is open."""
        ...


LimiterTurn = asyncio.Future[None]

BACKGROUND_PATIENCE: Final = 2.0  # seconds that one of the background lets all others go first


class LimiterLines:
    """Two lines. A turn that was given to somebody who left at that moment goes back by `spare`."""

    __slots__ = ("_background", "_foreground")

    def __init__(self) -> None:
        self._foreground: dict[LimiterTurn, None] = {}  # in their order; whoever leaves is found at once
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
        """One of the background that has waited long enough stands with the others now, behind them."""
        if self._background.pop(turn, turn) is turn:
            return False  # it is not there any more
        self._foreground[turn] = None
        return True

    def call(self, *, background: bool) -> bool:
        """Give the first of a line its turn; False if nobody stands there any more."""
        line = self._background if background else self._foreground
        while line:
            turn = next(iter(line))
            del line[turn]
            if not turn.done():
                turn.set_result(None)
                return True
        return False

    async def wait(self, turn: LimiterTurn, *, left: Callable[[], None], spare: Callable[[], None]) -> None:
        """Until it is this one's turn. Cancelled: `left` if it had not come, `spare` if it had."""
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
