"""The port of a source for delta polling: what changed since a time, all records, and single records."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from tidegate.model import Rate


class SourceRow(msgspec.Struct, frozen=True):
    """A record as it was read. Times are by the source's own clock, in seconds since the epoch."""

    id: str  # of the record
    key: str  # what a subscriber waits for
    met: bool  # the condition is true of it
    changed: float | None  # when it was last written, as the source says; None: it does not say
    value: Any = None  # for the subscribers' callbacks


class SourcePage(msgspec.Struct, frozen=True):
    """Rows that rise by id. The next page begins after `after`; None: this is the last one."""

    rows: Sequence[SourceRow]
    after: str | None = None
    requests: int = 1  # that it took


class ChangeSource(Protocol):
    """A table behind a rate-limited API. Its requests are in the background, and raise Upstream…Error."""

    @property
    def rate(self) -> Rate:
        """The rate that the API allows now, for all its users together."""
        ...

    @property
    def waited(self) -> float:
        """Seconds that all requests to this API have waited for their turn: rises while it is crowded."""
        ...

    async def changed(self, since: float, after: str | None = None) -> SourcePage:
        """Return the records that meet the condition and were written or created at `since` or later."""
        ...

    async def scan(self, after: str | None = None) -> SourcePage:
        """Return all records, whether they meet the condition or not."""
        ...

    async def find(self, keys: Sequence[str]) -> SourcePage:
        """Return all records of these keys, whether they meet the condition or not."""
        ...

    def most(self, keys: Sequence[str]) -> int:
        """Return how many of the first keys one `find` can take; at least one."""
        ...
