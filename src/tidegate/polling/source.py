"""What delta polling needs of a source: what changed since a time, everything, and single records."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from tidegate.model import Rate


class SourceRow(msgspec.Struct, frozen=True):
    """A record as it was read. Times are those of the source's own clock, in seconds since the epoch."""

    id: str  # the record's own
    key: str  # what a subscriber waits for
    met: bool  # whether what they wait for is true of it
    changed: float | None  # when it was written last, as the source says; None: it does not say
    value: Any = None  # what they are told


class SourcePage(msgspec.Struct, frozen=True):
    """Rows that rise by id. `after` is where the next page begins; None: this was the last one."""

    rows: Sequence[SourceRow]
    after: str | None = None
    requests: int = 1  # that it took


class ChangeSource(Protocol):
    """A table behind a limited API. Requests let others go first, and raise what `upstream` raises."""

    @property
    def rate(self) -> Rate:
        """What the API allows now, for everybody together."""
        ...

    @property
    def waited(self) -> float:
        """Seconds that requests to this API waited for their turn, in total: rises while it is crowded."""
        ...

    async def changed(self, since: float, after: str | None = None) -> SourcePage:
        """What is true now and was written at `since` or later, or created then."""
        ...

    async def scan(self, after: str | None = None) -> SourcePage:
        """Every record, whether it is true of it or not."""
        ...

    async def find(self, keys: Sequence[str]) -> SourcePage:
        """The records of these keys, all of them, whether it is true of them or not."""
        ...

    def most(self, keys: Sequence[str]) -> int:
        """How many of these keys, from the first on, one `find` can take; at least one."""
        ...
