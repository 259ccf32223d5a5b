"""One simulated table: its rows, when they change, and when others see the change.

Delta polling asks by `UpdatedAt`, so its weaknesses are simulated: null on creation, whole seconds, by
the server's clock, set before a commit that may come late, untouched by direct SQL.
"""

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from tidegate.errors import BadInputError

CREATED, UPDATED = "CreatedAt", "UpdatedAt"
NUMBERS = ("Number", "Decimal", "Currency", "Percent")
TEXTS = ("SingleLineText", "LongText", "Email", "PhoneNumber", "URL", "SingleSelect")
TIMES = ("DateTime", "Date", "CreatedTime", "LastModifiedTime")
Value = str | int | float | bool | None
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?)? ?(?:(Z)|([+-])(\d\d):?(\d\d))?", re.ASCII
)


class SimulatedRow:
    """A row: its fields as JSON values, its times also as numbers for comparison."""

    __slots__ = ("created", "fields", "key", "updated")

    def __init__(self, key: int, fields: dict[str, Value], created: float) -> None:
        self.key = key
        self.fields = fields
        self.created = created
        self.updated: float | None = None


class _Commit(NamedTuple):
    due: float  # monotonic
    order: int
    key: int
    created: SimulatedRow | None
    fields: Mapping[str, Value]
    updated: float | None


class SimulatedTable:
    """`columns`: title → type, as NocoDB names types; None: any field may be written. The key is a number."""

    def __init__(
        self, id_: str, title: str, *, key: str, columns: Mapping[str, str] | None, postgres: bool
    ) -> None:
        self.id, self.title, self.key = id_, title, key
        self.is_free = columns is None
        self.zone: ZoneInfo | None = None
        self.columns = {key: "ID", CREATED: "CreatedTime", UPDATED: "LastModifiedTime", **(columns or {})}
        self.rows: dict[int, SimulatedRow] = {}
        self.postgres = postgres
        self._last_key = 0
        self._late: list[_Commit] = []
        self._order = 0

    def insert(self, sent: Sequence[Mapping[str, Any]], at: float, *, due: float | None = None) -> list[int]:
        """Create rows at the server's time `at`, visible at `due`; returns their keys."""
        return [self._insert(fields, at, due) for fields in sent]

    def update(
        self, key: int, sent: Mapping[str, Any], at: float | None, *, due: float | None = None
    ) -> None:
        """Change a row. `at` None leaves UpdatedAt as it is: direct SQL."""
        self._commit(_Commit(due or 0.0, 0, key, None, self._accept(sent), at), late=due is not None)

    def delete(self, keys: Iterable[int]) -> None:
        for key in keys:
            self.rows.pop(key, None)

    def settle(self, now: float) -> None:
        """Apply the commits that are due by now. Call it before every read."""
        while self._late and self._late[0].due <= now:
            self._apply(heapq.heappop(self._late))

    def has(self, key: int) -> bool:
        """Return True if the row exists, or will once it is committed."""
        return key in self.rows or any(commit.key == key for commit in self._late if commit.created)

    def shown(self, row: SimulatedRow, names: Iterable[str]) -> dict[str, Value]:
        fields = row.fields
        return {name: fields.get(name) for name in names}

    def _insert(self, sent: Mapping[str, Any], at: float, due: float | None) -> int:
        given = sent.get(self.key)
        key = given if isinstance(given, int) and given > 0 and not self.has(given) else self._free_key()
        self._last_key = max(self._last_key, key)
        fields: dict[str, Value] = {self.key: key, CREATED: as_text(at), UPDATED: None}
        unset = {name: 0 for name, kind in self.columns.items() if kind == "Checkbox" and not self.postgres}
        row = SimulatedRow(key, fields | unset | self._accept(sent), float(int(at)))
        self._commit(_Commit(due or 0.0, 0, key, row, {}, None), late=due is not None)
        return key

    def _free_key(self) -> int:
        """Return the next key. SQLite reuses the key of a deleted last row."""
        if not self.postgres:
            late = (commit.key for commit in self._late if commit.created is not None)
            self._last_key = max(next(reversed(self.rows), 0), max(late, default=0))
        return self._last_key + 1

    def _commit(self, commit: _Commit, *, late: bool) -> None:
        if not late:
            self._apply(commit)
            return
        self._order += 1
        heapq.heappush(self._late, commit._replace(order=self._order))

    def _apply(self, commit: _Commit) -> None:
        if commit.created is not None:
            in_order = not self.rows or commit.key > next(reversed(self.rows))
            self.rows[commit.key] = commit.created
            if not in_order:
                self.rows = dict(sorted(self.rows.items()))
            return
        row = self.rows.get(commit.key)
        if row is None:  # deleted meanwhile
            return
        row.fields.update(commit.fields)
        if commit.updated is not None:
            row.updated, row.fields[UPDATED] = float(int(commit.updated)), as_text(commit.updated)

    def _accept(self, sent: Mapping[str, Any]) -> dict[str, Value]:
        """Return the fields that can be written; others are ignored silently, as NocoDB does."""
        own = (self.key, CREATED, UPDATED)
        if self.is_free:
            for name in sent:
                self.columns.setdefault(name, "")
        return {
            name: self._stored(name, value)
            for name, value in sent.items()
            if name in self.columns and name not in own
        }

    def _stored(self, name: str, value: object) -> Value:
        kind = self.columns[name]
        if isinstance(value, bool) or (kind == "Checkbox" and value is not None):
            return self._truth(value=value)
        if kind in TIMES and isinstance(value, str):
            at = instant(value)
            return as_text(at) if at is not None else value
        if kind in TEXTS and isinstance(value, int | float):
            return str(value)
        if value is None or isinstance(value, str | int | float):
            return value
        return msgspec.json.encode(value).decode()

    def _truth(self, *, value: object) -> Value:
        true = value is True or str(value).lower() in {"1", "true"}
        return true if self.postgres else int(true)


def require_key(key: object) -> int:
    if not isinstance(key, int) or isinstance(key, bool):
        raise BadInputError(f"{key!r} is not the id of a record: ids are whole numbers")
    return key


def as_text(at: float) -> str:
    """Return `2026-01-05 09:00:00+00:00`, without fractions of a second."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%d %H:%M:%S+00:00")


def is_date(text: str) -> bool:
    found = _TIME.fullmatch(text.strip())
    return found is not None and found[2] is None


def instant(text: str, zone: ZoneInfo | None = None) -> float | None:
    """Return whole seconds since the epoch; None for no time. Without an offset it is in `zone`, or UTC."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}")
        zoned = moment.replace(tzinfo=_offset(found) or zone or UTC)
        return zoned.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def _offset(found: re.Match[str]) -> tzinfo | None:
    if found[3]:
        return UTC
    if not found[4]:
        return None
    offset = timedelta(hours=int(found[5]), minutes=int(found[6]))
    return timezone(offset if found[4] == "+" else -offset)
