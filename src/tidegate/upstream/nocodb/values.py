"""Values read from rows, and checks of values before they become part of a request."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from tidegate.errors import BadInputError

Item = TypeVar("Item")
RecordId = int | str

MOST_PER_PAGE: Final = 1_000  # NocoDB silently gives no more (its cloud: 100)
_TABLE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RECORD = re.compile(r"[^/\\?#%\x00-\x20\x7f\ud800-\udfff]{1,255}")
_RESERVED_IDS: Final = frozenset({".", "..", "count"})  # "/records/count" is another request
# The same value is spelled differently by different databases behind NocoDB.
_TRUE = (True, 1, "1", "true")
_FALSE = (False, 0, "0", "false", "", None)


def instant(value: object) -> float:
    """Return a time of a row (`2026-01-05 09:00:00+00:00`, UTC by default) in seconds since the epoch."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise BadInputError(f"{value!r:.60} is not a time of a row: expected 2026-01-05 09:00:00+00:00")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def truth(value: Any) -> bool:  # noqa: ANN401  (JSON)
    """Return True for a ticked checkbox. SQLite has 1 or 0, PostgreSQL true or false; null: never touched."""
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise BadInputError(f"{value!r:.60} is not the value of a checkbox: expected true or false, 1 or 0")


def table_id(given: object) -> str:
    if not isinstance(given, str) or not _TABLE.fullmatch(given):
        raise BadInputError(
            f"{given!r:.60} is not the id of a table: take it from the table's menu, such as mfaob33z2nnrxve"
        )
    return given


def record_id(given: object) -> str:
    text = str(given) if isinstance(given, int | str) and not isinstance(given, bool) else ""
    if not _RECORD.fullmatch(text) or text in _RESERVED_IDS:
        raise BadInputError(
            f"{given!r:.60} is not the id of a record: give a number or a text without slashes and spaces"
        )
    return text


def names(given: Sequence[str]) -> str:
    """Return fields, or fields to sort by, as one parameter."""
    if isinstance(given, str):
        raise BadInputError(f"{given!r:.60}: give the names of fields as a list")
    for name in given:
        if not name.strip("- ") or "," in name:
            raise BadInputError(f"{name!r:.60} cannot be requested: give the name of a field, without commas")
    return ",".join(given)


def page_size(given: int) -> str:
    if not 1 <= given <= MOST_PER_PAGE:
        raise BadInputError(f"{given} rows in one answer: give 1 to {MOST_PER_PAGE}, for more use pages()")
    return str(given)


def several(given: Sequence[Item], what: str) -> list[Item]:
    """Return a list. A text, which is a sequence of characters, is refused."""
    if isinstance(given, str | bytes | bytearray) or not isinstance(given, Sequence):
        raise BadInputError(f"give {what} as a list, not as {type(given).__name__}")
    return list(given)


def encoded(rows: Sequence[Mapping[str, Any]]) -> list[msgspec.Raw]:
    """Encode all rows, before any is sent."""
    return [_encoded(row) for row in several(rows, "rows")]


def _encoded(row: object) -> msgspec.Raw:
    if not isinstance(row, Mapping):
        raise BadInputError(f"{row!r:.60} is not a row: give dicts of field titles and values")
    try:
        return msgspec.Raw(msgspec.json.encode(dict(row)))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"a row cannot be sent as JSON: {error}") from error
