"""Pages of lists: at most 200 items, and an opaque cursor that leads to the next page."""

import base64
import binascii
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from fastapi import Query
from pydantic import BaseModel, Field

from tidegate.ops.api.problems import BAD_INPUT, ProblemError

Item = TypeVar("Item")
Place = TypeVar("Place", int, str)

LARGEST_PAGE: Final = 200
LONGEST_CURSOR: Final = 500  # characters

Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="How many items at most.", examples=[50])]
Cursor = Annotated[
    str | None,
    Query(
        max_length=LONGEST_CURSOR,
        description="`next_cursor` of the page before, to go on from there.",
        examples=["WyJyZW1pbmRlcnMiLDE3XQ"],
    ),
]


class ItemPage(BaseModel, Generic[Item]):
    """Some items of a list."""

    items: list[Item]
    next_cursor: str | None = Field(
        default=None, description="Give it as `cursor` for the next page; null: the last."
    )


def encode_cursor(kind: str, place: int | str | None) -> str | None:
    """Return the cursor of a place in the list of this kind; None if there is no further page."""
    if place is None:
        return None
    return base64.urlsafe_b64encode(msgspec.json.encode([kind, place])).rstrip(b"=").decode()


def decode_cursor(kind: str, cursor: str | None, place: type[Place]) -> Place | None:
    """Return the place that a cursor means. Raises ProblemError for one that is not of this list."""
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found, at = msgspec.json.decode(raw, type=tuple[str, place])  # type: ignore[valid-type]
    except (binascii.Error, ValueError):
        found, at = "", None
    if found != kind or at is None:
        raise ProblemError(BAD_INPUT, "cursor is not one of this list: give next_cursor of the page before")
    return at
