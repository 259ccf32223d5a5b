"""What a condition says about a time. Only `exactDate` is played.

SQLite compares `2026-01-05 09:00:00+00:00`, which it keeps, with `2026-01-05 09:00:00`, which it is asked
for, as texts: `gt` then takes in the equal one and `lte` leaves it out. PostgreSQL compares times.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple
from zoneinfo import ZoneInfo

from tidegate.sim.nocodb.answers import failed_verification, unreadable_filter
from tidegate.sim.nocodb.rows import CREATED, UPDATED, Row
from tidegate.sim.nocodb.times import instant, is_date
from tidegate.sim.nocodb.where.parts import Condition
from tidegate.sim.nocodb.where.values import ALIASES, WITHOUT_VALUE, Judgement

DAY = 86_400.0
SILENT = {"is", "isnot", "isWithin"}  # accepted, and select every row
REFUSED = {"in", "anyof", "nanyof", "like", "nlike", "btw", "nbtw", "checked", "notchecked"}
NULLS = {"blank", "notblank", "null", "notnull", "empty", "notempty"}


class Span(NamedTuple):
    """From `since` until just before `until`; no null is in it."""

    since: float
    until: float
    is_refused: bool = False  # what is asked for is everything else, nulls included

    def select(self, name: str, *, negated: bool) -> Callable[[list[Row]], list[Row]]:
        since, until, is_refused = self
        if not negated and not is_refused and name == UPDATED:
            return lambda rows: [
                row for row in rows if (at := row.updated) is not None and since <= at < until
            ]
        if not negated and not is_refused and name == CREATED:
            return lambda rows: [row for row in rows if since <= row.created < until]
        if negated and not is_refused:
            return lambda rows: [
                row for row, at in _times(rows, name) if at is not None and not since <= at < until
            ]
        wanted = negated or not is_refused
        return lambda rows: [
            row for row, at in _times(rows, name) if (at is not None and since <= at < until) is wanted
        ]


def judge_time(condition: Condition, *, postgres: bool, zone: ZoneInfo | None) -> Span | Judgement | None:
    """None where the condition is passed over in silence, so that it selects every row. Raises ApiError."""
    operator = ALIASES.get(condition.operator, condition.operator)
    kind, _, text = ",".join(value or "null" for value in condition.values or ()).partition(",")
    if operator in NULLS or (operator == "is" and kind in {"blank", "notblank"}):
        return WITHOUT_VALUE[kind if operator == "is" else operator]
    if operator in SILENT or kind in {"", "null"}:
        return None
    if operator in REFUSED:
        text = f"Operation {operator} is not supported for type DateTime"
        raise failed_verification(text, condition.field)
    if kind != "exactDate":
        raise unreadable_filter(f"'{kind}' is not supported.")
    text = text.partition(",")[0]
    if not text:
        return None
    at = instant(text, zone)
    if at is None:
        raise failed_verification(f"Value {text} is not supported for type DateTime", condition.field)
    return _span(operator, at, whole_day=is_date(text), postgres=postgres)


def _span(operator: str, at: float, *, whole_day: bool, postgres: bool) -> Span:
    after = at + DAY if whole_day else at + 1 if postgres else at
    spans = {
        "gt": Span(after, math.inf),
        "gte": Span(at, math.inf),
        "lt": Span(-math.inf, at),
        "lte": Span(-math.inf, after),
        "eq": Span(at - at % DAY, at - at % DAY + DAY),
        "neq": Span(at - at % DAY, at - at % DAY + DAY, is_refused=True),
    }
    if operator not in spans:
        raise unreadable_filter(f"{operator} is not supported.")
    return spans[operator]


def _times(rows: list[Row], name: str) -> Iterator[tuple[Row, float | None]]:
    for row in rows:
        text = row.fields.get(name)
        yield row, instant(text) if isinstance(text, str) else None
