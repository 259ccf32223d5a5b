"""An audience is any iterable of chats or rows, sync or async, read one by one."""

import operator
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from typing import Any

from tidegate.errors import BadInputError
from tidegate.row_template import Row

Audience = Iterable[Any] | AsyncIterable[Any]


def check_audience(audience: object) -> Audience:
    if isinstance(audience, str | bytes | Mapping) or not isinstance(audience, Iterable | AsyncIterable):
        kind = type(audience).__name__
        raise BadInputError(
            f"an audience is an iterable of chats or rows, such as a list, a query or sql(…): got {kind}"
        )
    return audience


def size_of(audience: Audience) -> int | None:
    """Return the number of rows, if the audience knows it."""
    found = operator.length_hint(audience, -1)
    return found if found >= 0 else None


async def each(audience: Audience) -> AsyncGenerator[object]:
    """Yield the rows. Closing this early closes the audience too."""
    if not isinstance(audience, AsyncIterable):
        for one in audience:
            yield one
        return
    rows = aiter(audience)
    try:
        async for one in rows:
            yield one
    finally:
        if hasattr(rows, "aclose"):
            await rows.aclose()


def row_of(one: object) -> Row:
    """Return a chat, a mapping, or a row of a database as a mapping of field names to values."""
    if isinstance(one, Mapping):
        return one
    if isinstance(one, int | str):
        return {"chat_id": one}
    if isinstance(one, tuple) and len(one) == 1 and not hasattr(one, "_fields"):
        return {"chat_id": one[0]}  # a row of a cursor with one column
    named = getattr(one, "_mapping", None)  # of SQLAlchemy
    if isinstance(named, Mapping):
        return named
    if callable(fields := getattr(one, "_asdict", None)):  # of a named tuple
        return dict(fields())
    if callable(getattr(one, "keys", None)):  # of sqlite3 and asyncpg
        return dict(one)  # type: ignore[call-overload,no-any-return]
    raise BadInputError(
        f"a row is a chat, or a mapping with chat_id and other fields: got {type(one).__name__}"
    )
