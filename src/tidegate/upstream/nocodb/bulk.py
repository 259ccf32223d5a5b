"""Many rows in requests of a hundred, and what is known when one of them fails."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from tidegate.errors import UpstreamError

MOST_ROWS: Final = 100  # NocoDB takes no more in one request

Item = TypeVar("Item")
RecordId = int | str


class PartlyDoneError(UpstreamError):
    """Some rows were written before a request failed; that failure is the `__cause__`.

    The first `done` rows are written, with these `ids`; those from `done + 100` on were not tried. What
    became of the hundred between, the cause says: nothing, or it is unknown (UpstreamUnknownError).
    """

    def __init__(self, cause: UpstreamError, *, ids: Sequence[Any], of: int) -> None:
        text = f"{len(ids)} of {of} rows were done before this: {cause}"
        super().__init__(text, api=cause.api, method=cause.method, endpoint=cause.endpoint)
        self.ids = list(ids)
        self.done = len(self.ids)


async def in_hundreds(
    items: Sequence[Item], write: Callable[[Sequence[Item]], Awaitable[Sequence[Any]]]
) -> list[Any]:
    """What each `write` gave, one after the other."""
    given: list[Any] = []
    for start in range(0, len(items), MOST_ROWS):
        try:
            given += await write(items[start : start + MOST_ROWS])
        except UpstreamError as error:
            if start == 0:
                raise
            raise PartlyDoneError(error, ids=given, of=len(items)) from error
    return given
