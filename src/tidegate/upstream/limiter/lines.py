"""Who waits for a slot: first come, first served, background behind all others."""

import asyncio
from collections.abc import Callable

Turn = asyncio.Future[None]


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
