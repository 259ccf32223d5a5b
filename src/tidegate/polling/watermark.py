"""What is new in a delta: how far the source's clock has been read, and which row versions were seen."""

from collections.abc import Iterable
from typing import Final

from tidegate.polling.source import SourceRow

SLOWEST_CLOCK: Final = (
    0.999  # of our time: no clock runs slower than that against ours, even while it is corrected
)
TIME_RESOLUTION: Final = 1.0  # seconds: times in rows are cut to whole ones


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
        ahead = changed - SLOWEST_CLOCK * heard
        self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)
        self._newest = changed if self._newest is None else max(self._newest, changed)

    def passed(self, began: float) -> None:
        """All that was there at `began` has been read, to the last page, or concerns nobody."""
        if self._ahead is not None:
            reached = self._ahead + SLOWEST_CLOCK * began
            self._mark = reached if self._mark is None else max(self._mark, reached)

    def set_back(self, changed: float, heard: float, began: float) -> None:
        """A row was written since the last look, with a time long over: so the clock was set back.

        All that was there at `began` has been read.
        """
        self._ahead = changed - SLOWEST_CLOCK * heard
        reached = self._ahead + SLOWEST_CLOCK * began
        self._mark = reached if self._mark is None else min(self._mark, reached)
        self._newest = changed

    def since(self, overlap: float) -> float | None:
        """What is to be asked for: all that may have been committed up to `overlap` seconds late.

        None: no row was ever seen, and everything has to be read.
        """
        return None if self._mark is None else self._mark - overlap - TIME_RESOLUTION

    @property
    def to_keep(self) -> float | None:
        """From where another run may go on: the time of a row, never one that was computed from our clock."""
        if self._mark is None or self._newest is None:
            return None
        return min(self._mark, self._newest)


MOST_ROW_VERSIONS: Final = 100_000


class RowVersions:
    """Ids with the time of the newest version seen. Bounded: the oldest are forgotten first."""

    def __init__(self, at_most: int = MOST_ROW_VERSIONS) -> None:
        self._at_most = at_most
        self._changed: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._changed)

    def fresh(self, rows: Iterable[SourceRow]) -> list[SourceRow]:
        """Those that are new, or have changed since; they are seen now. One without a time is never new."""
        new = [row for row in rows if row.changed is not None and self._changed.get(row.id) != row.changed]
        self._changed.update((row.id, row.changed) for row in new if row.changed is not None)
        if len(self._changed) > self._at_most:
            self._keep_newest()
        return new

    def forget_before(self, since: float) -> None:
        """What is older than the window is not asked for any more."""
        if any(changed < since for changed in self._changed.values()):
            self._changed = {row: changed for row, changed in self._changed.items() if changed >= since}

    def _keep_newest(self) -> None:
        newest = sorted(self._changed.items(), key=lambda entry: entry[1])[-(self._at_most * 3 // 4) :]
        self._changed = dict(newest)
