"""Which versions of which rows were seen: the same ones come again in each cycle, while they overlap."""

from collections.abc import Iterable
from typing import Final

from tidegate.polling.source import Row

AT_MOST: Final = 100_000


class Seen:
    """Ids with the time of the newest version seen. Bounded: the oldest are forgotten first."""

    def __init__(self, at_most: int = AT_MOST) -> None:
        self._at_most = at_most
        self._changed: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._changed)

    def fresh(self, rows: Iterable[Row]) -> list[Row]:
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
