"""What stands in a row, as Python has it. One value has several spellings, by the database behind NocoDB."""

from datetime import UTC, datetime
from typing import Any

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
