"""How far the source's clock has come, judged by the times in its own rows.

A row of time w that was heard of at our time m proves that the source's clock stood at w or later then, and
so at w + (now - m) or later now. Hence the mark moves on in quiet times too, without a look at our wall
clock; else the last rows before the quiet would be read again and again.
"""

from typing import Final

STEADY: Final = 0.999  # of our time: no clock runs slower than that against ours, even while it is corrected
RESOLUTION: Final = 1.0  # seconds: times in rows are cut to whole ones


class Watermark:
    """What was written before `since` has been read. It never goes back, but for `set_back`.

    Times of rows are in seconds since the epoch by the source's clock, `heard` and `began` are monotonic
    ones of ours.
    """

    def __init__(self, kept: float | None = None) -> None:
        self._mark = kept
        self._newest = kept  # time of a row
        self._ahead: float | None = None  # of our time, at least

    def saw(self, changed: float | None, heard: float) -> None:
        """A row that was not seen before. One that was proves nothing: the clock may have been set since. Nor
        does one without a time.
        """
        if changed is None:
            return
        ahead = changed - STEADY * heard
        self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)
        self._newest = changed if self._newest is None else max(self._newest, changed)

    def passed(self, began: float) -> None:
        """All that was there at `began` has been read, to the last page, or concerns nobody."""
        if self._ahead is not None:
            reached = self._ahead + STEADY * began
            self._mark = reached if self._mark is None else max(self._mark, reached)

    def set_back(self, changed: float, heard: float, began: float) -> None:
        """A row was written since the last look, with a time long over: so the clock was set back.

        All that was there at `began` has been read.
        """
        self._ahead = changed - STEADY * heard
        reached = self._ahead + STEADY * began
        self._mark = reached if self._mark is None else min(self._mark, reached)
        self._newest = changed

    def since(self, overlap: float) -> float | None:
        """What is to be asked for: all that may have been committed up to `overlap` seconds late.

        None: no row was ever seen, and everything has to be read.
        """
        return None if self._mark is None else self._mark - overlap - RESOLUTION

    @property
    def to_keep(self) -> float | None:
        """From where another run may go on: the time of a row, never one that was computed from our clock."""
        if self._mark is None or self._newest is None:
            return None
        return min(self._mark, self._newest)
