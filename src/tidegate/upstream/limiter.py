"""The limiter port, and the waiting lines in which its implementations serve callers."""

import asyncio
import math
from collections.abc import Callable
from typing import ClassVar, Final, Protocol

from tidegate.errors import BadInputError
from tidegate.model import Rate


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

    def introduce(self, name: str, longest: float) -> None:
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


LimiterTurn = asyncio.Future[None]

BACKGROUND_PATIENCE: Final = 2.0  # seconds that a background call lets all others go first


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
