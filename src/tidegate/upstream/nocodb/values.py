"""Values read from rows, and checks of values before they become part of a request."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from tidegate.errors import BadInputError

_TRUE = (True, 1, "1", "true")
_FALSE = (False, 0, "0", "false", "", None)


def instant(value: object) -> float:
    """Seconds since the epoch of a time in a row: `2026-01-05 09:00:00+00:00`. Without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise BadInputError(f"{value!r:.60} is no time of a row: expected 2026-01-05 09:00:00+00:00")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def truth(value: Any) -> bool:  # noqa: ANN401  (JSON)
    """Whether a checkbox is ticked. SQLite says 1 or 0, PostgreSQL true or false; null: not touched."""
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise BadInputError(f"{value!r:.60} is not what a checkbox holds: expected true or false, 1 or 0")


Item = TypeVar("Item")
RecordId = int | str

MOST_PER_PAGE: Final = 1_000  # NocoDB gives no more, without a word (its cloud: 100)
_TABLE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RECORD = re.compile(r"[^/\\?#%\x00-\x20\x7f\ud800-\udfff]{1,255}")
_RESERVED_IDS: Final = frozenset({".", "..", "count"})  # "/records/count" is another request


def table_id(given: object) -> str:
    if not isinstance(given, str) or not _TABLE.fullmatch(given):
        raise BadInputError(
            f"{given!r:.60} is no id of a table: take it from the table's menu, such as mfaob33z2nnrxve"
        )
    return given


def record_id(given: object) -> str:
    text = str(given) if isinstance(given, int | str) and not isinstance(given, bool) else ""
    if not _RECORD.fullmatch(text) or text in _RESERVED_IDS:
        raise BadInputError(
            f"{given!r:.60} is no id of a record: give a number or a text without slashes and spaces"
        )
    return text


def names(given: Sequence[str]) -> str:
    """Fields, or fields to sort by, as one parameter."""
    if isinstance(given, str):
        raise BadInputError(f"{given!r:.60}: give the names of fields as a list")
    for name in given:
        if not name.strip("- ") or "," in name:
            raise BadInputError(
                f"{name!r:.60} cannot be asked for: a name of a field without commas is needed"
            )
    return ",".join(given)


def page_size(given: int) -> str:
    if not 1 <= given <= MOST_PER_PAGE:
        raise BadInputError(
            f"{given} rows in one answer: 1 to {MOST_PER_PAGE} are possible, for more use pages()"
        )
    return str(given)


def several(given: Sequence[Item], what: str) -> list[Item]:
    """A text is a sequence too, of its characters: hardly what was meant."""
    if isinstance(given, str | bytes | bytearray) or not isinstance(given, Sequence):
        raise BadInputError(f"{what} are given as a list, not as {type(given).__name__}")
    return list(given)


def encoded(rows: Sequence[Mapping[str, Any]]) -> list[msgspec.Raw]:
    """All of them as JSON, before any is sent."""
    return [_encoded(row) for row in several(rows, "rows")]


def _encoded(row: object) -> msgspec.Raw:
    if not isinstance(row, Mapping):
        raise BadInputError(f"{row!r:.60} is no row: give dicts of titles of fields and values")
    try:
        return msgspec.Raw(msgspec.json.encode(dict(row)))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"a row is sent as JSON, which this one cannot be: {error}") from error
