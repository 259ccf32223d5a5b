"""What polling reads of a record: its key, and when it was written. A record that lacks them stops nobody."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.errors import BadInputError
from tidegate.upstream.nocodb import instant

log = logging.getLogger("tidegate.polling")

Record = Mapping[str, Any]


class Records:
    """Of one table, as its reader sees them. What is odd is warned of once."""

    def __init__(self, key: str, times: Sequence[str] = ()) -> None:
        self._key = key
        self._times = times
        self._said: set[str] = set()  # few texts, never a value

    def key_of(self, row: Record) -> str | None:
        """None for a record without one: nobody can wait for it."""
        value = row.get(self._key)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            text = f"{self._key} holds {value!r:.60}: give a key= whose values are texts or whole numbers"
            self._warn("key", f"a record is left out: {text}")
            return None
        return str(value)

    def changed(self, row: Record) -> float | None:
        """When it was written last, by the later of its times. None: it does not say, if SQL wrote it."""
        times = [time for name in self._times if (time := self._time(row.get(name))) is not None]
        if not times:
            either = " nor ".join(self._times)
            text = f"a record has neither {either}: only scans see it; if all are so, use a BatchPoller"
            self._warn("times", text)
        return max(times, default=None)

    def _time(self, value: object) -> float | None:
        try:
            return None if value is None else instant(value)
        except BadInputError as error:
            self._warn("time", f"a time of a record is ignored: {error}")
            return None

    def _warn(self, of: str, text: str) -> None:
        if of not in self._said:
            self._said.add(of)
            log.warning("%s", text)
