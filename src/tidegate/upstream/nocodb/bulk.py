"""Many rows in requests of a hundred, and what is known when one of them fails."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from tidegate.errors import PartlyDoneError, TidegateError, UpstreamAwayError, UpstreamError

MOST_ROWS: Final = 100  # NocoDB takes no more in one request

Item = TypeVar("Item")
RecordId = int | str


async def in_hundreds(
    items: Sequence[Item],
    write: Callable[[Sequence[Item]], Awaitable[Sequence[Any]]],
    interrupted: Callable[[str], UpstreamAwayError],
) -> list[Any]:
    """What each `write` gave, one after the other. `interrupted` names what was done in an error."""
    given: list[Any] = []
    for start in range(0, len(items), MOST_ROWS):
        try:
            given += await write(items[start : start + MOST_ROWS])
        except TidegateError as error:
            if start == 0:
                raise
            cause = error if isinstance(error, UpstreamError) else interrupted(str(error))
            raise PartlyDoneError(cause, ids=given, of=len(items)) from error
    return given
