"""Compiles a `where` into filters, one pass over the rows for each condition: fast for ten thousand rows."""

import math
import operator as op
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from tidegate.sim.nocodb import where_grammar
from tidegate.sim.nocodb.answers import NocoDbApiError, bad_filter, failed_verification, unreadable_filter
from tidegate.sim.nocodb.table import (
    CREATED,
    NUMBERS,
    TIMES,
    UPDATED,
    SimulatedRow,
    SimulatedTable,
    Value,
    instant,
    is_date,
)
from tidegate.sim.nocodb.where_grammar import WhereCondition, WhereGroup, WherePart

Test = Callable[[Value], bool]
RowFilter = Callable[[list[SimulatedRow]], list[SimulatedRow]]
DAY = 86_400.0
ALIASES = {"isblank": "blank", "is_blank": "blank", "ge": "gte", "le": "lte", "not": "neq"} | dict.fromkeys(
    ("isnotblank", "is_not_blank", "is_notblank"), "notblank"
)
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": op.gt,
    "gte": op.ge,
    "lt": op.lt,
    "lte": op.le,
}
WITH_VALUE = {"eq", "neq", "in", "anyof", "nanyof", "like", "nlike", *COMPARISONS}
REFUSED_BY = {kind: frozenset(["btw", "checked", "notchecked"]) for kind in NUMBERS} | {
    "Checkbox": frozenset(["null", "notnull", "in"])
}
IGNORED_OPERATORS = {
    "is",
    "isnot",
    "isWithin",
    "btw",
    "nbtw",
    "allof",
    "nallof",
}  # accepted, and select every row
IGNORED_TIME_OPERATORS = {"is", "isnot", "isWithin"}  # accepted, and select every row
REFUSED_TIME_OPERATORS = {"in", "anyof", "nanyof", "like", "nlike", "btw", "nbtw", "checked", "notchecked"}
NULLS = {"blank", "notblank", "null", "notnull", "empty", "notempty"}


class ValuePredicate(NamedTuple):
    """Accepts `wanted` values, or those that pass `accepts`. Without `knows_null`, null is unknown."""

    wanted: frozenset[Value] = frozenset()
    accepts: Test | None = None
    knows_null: bool = False


WITHOUT_VALUE: dict[str, ValuePredicate] = {
    "checked": ValuePredicate(frozenset([1])),
    "notchecked": ValuePredicate(frozenset([0, None]), knows_null=True),
    "blank": ValuePredicate(frozenset([None, ""]), knows_null=True),
    "notblank": ValuePredicate(accepts=lambda value: value not in {None, ""}, knows_null=True),
    "null": ValuePredicate(frozenset([None]), knows_null=True),
    "notnull": ValuePredicate(accepts=lambda value: value is not None, knows_null=True),
    "empty": ValuePredicate(frozenset([""])),
    "notempty": ValuePredicate(accepts=lambda value: value != "", knows_null=True),
}


class TimeSpan(NamedTuple):
    """Times from `since` until just before `until`, without nulls."""

    since: float
    until: float
    is_refused: bool = False  # selects everything else, nulls included

    def select(self, name: str, *, negated: bool) -> Callable[[list[SimulatedRow]], list[SimulatedRow]]:
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


class TableSchema(msgspec.Struct, frozen=True):
    """The columns of a table; of a free table only its time columns."""

    kinds: tuple[tuple[str, str], ...]
    is_free: bool
    postgres: bool
    zone: ZoneInfo | None  # of times without an offset in the `where`


def compile_where(text: str, table: SimulatedTable) -> RowFilter:
    """Return the filter. Raises the NocoDbApiError of a wrong one."""
    kinds = ((name, kind) for name, kind in table.columns.items() if not table.is_free or kind in TIMES)
    return _compile(text.strip(), TableSchema(tuple(kinds), table.is_free, table.postgres, table.zone))


@lru_cache(maxsize=64)
def _compile(text: str, schema: TableSchema) -> RowFilter:
    if text == "@":
        return list
    is_quoted = text.startswith("@")
    parts = where_grammar.parse_quoted(text[1:]) if is_quoted else where_grammar.parse_plain(text)
    return _joined([(part.joint, _row_filter(part, schema, is_quoted=is_quoted)) for part in parts])


def _row_filter(part: WherePart, schema: TableSchema, *, is_quoted: bool) -> RowFilter:
    if isinstance(part, WhereGroup):
        return _joined(
            [(inner.joint, _row_filter(inner, schema, is_quoted=is_quoted)) for inner in part.parts]
        )
    kind = dict(schema.kinds).get(part.field)
    if kind is None and not schema.is_free:
        if is_quoted:
            raise bad_filter(f"Invalid filter field '{part.field}' not found")
        raise unreadable_filter(f"Column alias '{part.field}' not found.")
    # A `not` before one condition works; before a group NocoDB ignores it silently.
    negated = part.joint == "not"
    if kind in TIMES:
        return _by_time(part, schema, negated=negated)
    return _by_value(part.field, value_predicate(part, kind or "", postgres=schema.postgres), negated=negated)


def _joined(parts: list[tuple[str, RowFilter]]) -> RowFilter:
    """Join filters as SQL does: `and` binds closer than `or`."""
    terms: list[list[RowFilter]] = [[]]
    for joint, row_filter in parts:
        if joint == "or":
            terms.append([])
        terms[-1].append(row_filter)
    chains = [_chained(term) for term in terms if term]
    if not chains:
        return list
    return chains[0] if len(chains) == 1 else _any_of(chains)


def _chained(filters: list[RowFilter]) -> RowFilter:
    def selected(rows: list[SimulatedRow]) -> list[SimulatedRow]:
        for each in filters:
            rows = each(rows)
        return rows

    return selected


def _any_of(filters: list[RowFilter]) -> RowFilter:
    def selected(rows: list[SimulatedRow]) -> list[SimulatedRow]:
        found = {row.key for each in filters for row in each(rows)}
        return [row for row in rows if row.key in found] if len(found) < len(rows) else rows

    return selected


def _by_value(name: str, predicate: ValuePredicate | None, *, negated: bool) -> RowFilter:
    if predicate is None:
        return list
    wanted, accepts, knows_null = predicate.wanted, predicate.accepts, predicate.knows_null
    if accepts is not None:
        test = accepts
        if not negated:
            return lambda rows: [row for row in rows if test(row.fields.get(name))]
        return lambda rows: [
            row
            for row in rows
            if not test(value := row.fields.get(name)) and (knows_null or value is not None)
        ]
    if not negated:
        return lambda rows: [row for row in rows if row.fields.get(name) in wanted]
    refused = wanted if knows_null else wanted | {None}  # to SQL, "not unknown" is unknown
    return lambda rows: [row for row in rows if row.fields.get(name) not in refused]


def _by_time(condition: WhereCondition, schema: TableSchema, *, negated: bool) -> RowFilter:
    span = time_predicate(condition, postgres=schema.postgres, zone=schema.zone)
    if span is None:
        return list
    if isinstance(span, ValuePredicate):
        return _by_value(condition.field, span, negated=negated)
    return span.select(condition.field, negated=negated)


def value_predicate(condition: WhereCondition, kind: str, *, postgres: bool) -> ValuePredicate | None:
    """Return None if NocoDB ignores the condition silently and selects every row. Raises NocoDbApiError."""
    operator = operator_of(condition, kind)
    _verify(condition, operator, kind)
    if operator in WITHOUT_VALUE:
        return WITHOUT_VALUE[operator]
    if operator in IGNORED_OPERATORS:
        return None
    if operator not in WITH_VALUE:
        raise unreadable_filter(f"{operator} is not supported.")
    if condition.values is None:
        raise NocoDbApiError(500, "", "Cannot read properties of undefined")
    if condition.values == (None,):
        return WITHOUT_VALUE["notnull" if operator == "neq" else "null"]
    return _predicate_for(operator, [value or "" for value in condition.values], postgres=postgres)


def operator_of(condition: WhereCondition, kind: str) -> str:
    """Return the canonical operator. `is` is defined for a few words only."""
    operator, first = condition.operator, (condition.values or ("",))[0]
    if operator == "is":
        said = {"blank": "blank", "notblank": "notblank", "true": "checked", "false": "notchecked"}
        if kind != "Checkbox":
            said |= {"null": "null"}
        return said.get(first or "null", operator)
    return ALIASES.get(operator, operator)


def _verify(condition: WhereCondition, operator: str, kind: str) -> None:
    """Raise for an operator that the type refuses; other types ignore unknown operators."""
    if operator in REFUSED_BY.get(kind, ()):
        raise failed_verification(f"Operation {operator} is not supported for type {kind}", condition.field)
    if kind not in NUMBERS or operator not in {"eq", "neq", *COMPARISONS}:
        return
    for value in condition.values or ():
        if value and _number(value) is None:
            raise failed_verification(f"Value {value} is not supported for type {kind}", condition.field)


def _predicate_for(operator: str, values: list[str], *, postgres: bool) -> ValuePredicate:
    same = frozenset[Value]().union(*(_same_as(value, postgres=postgres) for value in values))
    if operator in {"eq", "in"}:
        return ValuePredicate(same)
    if operator == "neq":
        return ValuePredicate(accepts=lambda value: value not in same, knows_null=True)
    if operator in COMPARISONS:
        return ValuePredicate(accepts=_compared(operator, values[0]))
    tests = [_liking(value) for value in values] if operator in {"like", "nlike"} else _containing(values)
    if operator in {"like", "anyof"}:
        return ValuePredicate(accepts=lambda value: any(test(value) for test in tests))
    return ValuePredicate(accepts=lambda value: not any(test(value) for test in tests), knows_null=True)


def _same_as(text: str, *, postgres: bool) -> frozenset[Value]:
    """Return the text and its number: number columns are compared with texts too."""
    number = _number(text)
    if number is not None:
        return frozenset([text, number])
    return frozenset([text, text == "true"]) if postgres and text in {"true", "false"} else frozenset([text])


def _number(text: str) -> float | None:
    try:
        return float(text) if text[-1:].isdigit() else None
    except ValueError:
        return None


def _compared(name: str, text: str) -> Test:
    accepts, number = COMPARISONS[name], _number(text)

    def test(value: Value) -> bool:
        if value is None:
            return False
        if isinstance(value, str):
            return accepts(value, text)
        return number is not None and accepts(value, number)

    return test


def _liking(text: str) -> Test:
    """Match `%` as anything and `_` as one character; without `%`, the text may be anywhere."""
    pattern = text if "%" in text else f"%{text}%"
    written = ".*".join(map(re.escape, pattern.split("%"))).replace("_", ".")
    found = re.compile(written, re.IGNORECASE | re.ASCII | re.DOTALL).fullmatch
    return lambda value: value is not None and found(str(value)) is not None


def _containing(texts: list[str]) -> list[Test]:
    def contains(text: str) -> Test:
        lower = text.lower()
        return lambda value: value is not None and lower in str(value).lower()

    return [contains(text) for text in texts]


def time_predicate(
    condition: WhereCondition, *, postgres: bool, zone: ZoneInfo | None
) -> TimeSpan | ValuePredicate | None:
    """Return None if NocoDB ignores the condition silently and selects every row. Raises NocoDbApiError."""
    operator = ALIASES.get(condition.operator, condition.operator)
    kind, _, text = ",".join(value or "null" for value in condition.values or ()).partition(",")
    if operator in NULLS or (operator == "is" and kind in {"blank", "notblank"}):
        return WITHOUT_VALUE[kind if operator == "is" else operator]
    if operator in IGNORED_TIME_OPERATORS or kind in {"", "null"}:
        return None
    if operator in REFUSED_TIME_OPERATORS:
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


def _span(operator: str, at: float, *, whole_day: bool, postgres: bool) -> TimeSpan:
    # SQLite compares the stored `…+00:00` with the asked text without offset: `gt` includes
    # the equal time and `lte` excludes it. PostgreSQL compares times.
    after = at + DAY if whole_day else at + 1 if postgres else at
    spans = {
        "gt": TimeSpan(after, math.inf),
        "gte": TimeSpan(at, math.inf),
        "lt": TimeSpan(-math.inf, at),
        "lte": TimeSpan(-math.inf, after),
        "eq": TimeSpan(at - at % DAY, at - at % DAY + DAY),
        "neq": TimeSpan(at - at % DAY, at - at % DAY + DAY, is_refused=True),
    }
    if operator not in spans:
        raise unreadable_filter(f"{operator} is not supported.")
    return spans[operator]


def _times(rows: list[SimulatedRow], name: str) -> Iterator[tuple[SimulatedRow, float | None]]:
    for row in rows:
        text = row.fields.get(name)
        yield row, instant(text) if isinstance(text, str) else None
