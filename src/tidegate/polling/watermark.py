"""Decides what is new in a delta: how far the source's clock has been read, and which row versions were seen.

A row of time w that was heard of at our time m proves that the source's clock stood at w or later then, and
so at w + (now - m) or later now. So the mark moves on in quiet times too, without using our wall clock;
otherwise the last rows before the quiet would be read again and again.
"""

from collections.abc import Iterable
from typing import Final

from tidegate.polling.source import SourceRow

SLOWEST_CLOCK: Final = 0.999  # no clock runs slower than that against ours, even while it is corrected
TIME_RESOLUTION: Final = 1.0  # seconds: times in rows are cut to whole ones
MOST_ROW_VERSIONS: Final = 100_000


class Watermark:
    """All rows written before `since` have been read. It never goes back, except by `set_back`.

    Times of rows are in seconds since the epoch by the source's clock; `heard` and `began` are monotonic
    times of ours.
    """

    def __init__(self, saved: float | None = None) -> None:
        self._mark = saved
        self._newest = saved  # time of a row
        self._ahead: float | None = None  # lower bound of the source's clock minus ours

    def saw(self, changed: float | None, heard: float) -> None:
        """Learn from a row version that was not seen before.

        A version seen before proves nothing, as the clock may have been set since; nor does one without a
        time.
        """
        if changed is None:
            return
        ahead = changed - SLOWEST_CLOCK * heard
        self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)
        self._newest = changed if self._newest is None else max(self._newest, changed)

    def passed(self, began: float) -> None:
        """All rows that existed at `began` have been read, to the last page, or concern nobody."""
        if self._ahead is not None:
            reached = self._ahead + SLOWEST_CLOCK * began
            self._mark = reached if self._mark is None else max(self._mark, reached)

    def set_back(self, changed: float, heard: float, began: float) -> None:
        """The source's clock was set back: a row was written since the last scan with a time long past.

        All rows that existed at `began` have been read.
        """
        self._ahead = changed - SLOWEST_CLOCK * heard
        reached = self._ahead + SLOWEST_CLOCK * began
        self._mark = reached if self._mark is None else min(self._mark, reached)
        self._newest = changed

    def since(self, overlap: float) -> float | None:
        """Return the time from which to ask, so that commits up to `overlap` seconds late are read.

        None if no row was ever seen: everything has to be read.
        """
        return None if self._mark is None else self._mark - overlap - TIME_RESOLUTION

    @property
    def to_save(self) -> float | None:
        """Where another run may go on: the time of a row, never one that was computed from our clock."""
        if self._mark is None or self._newest is None:
            return None
        return min(self._mark, self._newest)


class RowVersions:
    """Ids of rows with the time of the newest version seen. Bounded: the oldest are forgotten first.

    Because deltas overlap, each version is read several times.
    """

    def __init__(self, at_most: int = MOST_ROW_VERSIONS) -> None:
        self._at_most = at_most
        self._changed: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._changed)

    def fresh(self, rows: Iterable[SourceRow]) -> list[SourceRow]:
        """Return the versions not seen before, and remember them. A row without a time is never fresh."""
        new = [row for row in rows if row.changed is not None and self._changed.get(row.id) != row.changed]
        self._changed.update((row.id, row.changed) for row in new if row.changed is not None)
        if len(self._changed) > self._at_most:
            newest = sorted(self._changed.items(), key=lambda entry: entry[1])[-(self._at_most * 3 // 4) :]
            self._changed = dict(newest)
        return new

    def forget_before(self, since: float) -> None:
        """Forget versions that are too old to be asked for again."""
        if any(changed < since for changed in self._changed.values()):
            self._changed = {row: changed for row, changed in self._changed.items() if changed >= since}
