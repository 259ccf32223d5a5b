"""What became of one request, for whoever listens: the log, totals, a person."""

from collections.abc import Callable
from typing import Final

import msgspec

OK: Final = range(200, 300)
TOO_MANY: Final = 429


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request on the wire and its answer. Seconds; `at` since the Unix epoch, when it was sent."""

    api: str
    method: str
    endpoint: str  # the path, without query
    status: int | None  # None: nothing answered
    seconds: float  # from sending to the last byte of the answer
    size: int = 0  # bytes of the answer
    record: str | None = None  # its id, or how many: as the caller said
    records: int | None = None  # how many came, if that can be seen
    waited: float = 0.0  # in the limiter, before it was sent
    attempt: int = 1
    reason: str | None = None  # a word, if it did not work: refused, timeout, connect …
    at: float

    @property
    def ok(self) -> bool:
        return self.status in OK if self.status is not None else False

    @property
    def refused(self) -> bool:
        return self.status == TOO_MANY


Hook = Callable[[Exchange], object]
