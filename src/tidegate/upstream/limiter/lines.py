"""Who waits for a slot: first come, first served, background behind all others, but not for ever."""

import asyncio
from collections.abc import Callable
from typing import Final

Turn = asyncio.Future[None]

STARVING: Final = 2.0  # seconds that one of the background lets all others go first


class Lines:
    """Two lines. A turn that was given to somebody who left at that moment goes back by `spare`."""

    __slots__ = ("_background", "_foreground")

    def __init__(self) -> None:
        self._foreground: dict[Turn, None] = {}  # in their order; whoever leaves is found at once
        self._background: dict[Turn, None] = {}

    @property
    def foreground(self) -> int:
        return len(self._foreground)

    @property
    def background(self) -> int:
        return len(self._background)

    def __bool__(self) -> bool:
        return bool(self._foreground or self._background)

    def join(self, *, background: bool) -> Turn:
        turn = asyncio.get_running_loop().create_future()
        (self._background if background else self._foreground)[turn] = None
        return turn

    def promote(self, turn: Turn) -> bool:
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

    async def wait(self, turn: Turn, *, left: Callable[[], None], spare: Callable[[], None]) -> None:
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
