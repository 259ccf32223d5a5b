"""Compiles a `where` into filters, one pass over the rows for each condition: fast for ten thousand rows."""

from collections.abc import Callable
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from tidegate.sim.nocodb import where_grammar
from tidegate.sim.nocodb.answers import bad_filter, unreadable_filter
from tidegate.sim.nocodb.table import TIMES, SimulatedRow, SimulatedTable
from tidegate.sim.nocodb.where_conditions import ValuePredicate, time_predicate, value_predicate
from tidegate.sim.nocodb.where_grammar import WhereCondition, WhereGroup, WherePart

RowFilter = Callable[[list[SimulatedRow]], list[SimulatedRow]]


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
def _compile(text: str, scheme: TableSchema) -> RowFilter:
    if text == "@":
        return list
    is_quoted = text.startswith("@")
    parts = where_grammar.parse_quoted(text[1:]) if is_quoted else where_grammar.parse_plain(text)
    return _joined([(part.joint, _keep(part, scheme, is_quoted=is_quoted)) for part in parts])


def _keep(part: WherePart, scheme: TableSchema, *, is_quoted: bool) -> RowFilter:
    if isinstance(part, WhereGroup):
        return _joined([(inner.joint, _keep(inner, scheme, is_quoted=is_quoted)) for inner in part.parts])
    kind = dict(scheme.kinds).get(part.field)
    if kind is None and not scheme.is_free:
        if is_quoted:
            raise bad_filter(f"Invalid filter field '{part.field}' not found")
        raise unreadable_filter(f"Column alias '{part.field}' not found.")
    # A `not` before one condition works; before a group NocoDB ignores it silently.
    negated = part.joint == "not"
    if kind in TIMES:
        return _by_time(part, scheme, negated=negated)
    return _by_value(part.field, value_predicate(part, kind or "", postgres=scheme.postgres), negated=negated)


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


def _by_time(condition: WhereCondition, scheme: TableSchema, *, negated: bool) -> RowFilter:
    span = time_predicate(condition, postgres=scheme.postgres, zone=scheme.zone)
    if span is None:
        return list
    if isinstance(span, ValuePredicate):
        return _by_value(condition.field, span, negated=negated)
    return span.select(condition.field, negated=negated)


def _joined(parts: list[tuple[str, RowFilter]]) -> RowFilter:
    """Join filters as SQL does: `and` binds closer than `or`."""
    terms: list[list[RowFilter]] = [[]]
    for joint, keep in parts:
        if joint == "or":
            terms.append([])
        terms[-1].append(keep)
    chains = [_chained(term) for term in terms if term]
    if not chains:
        return list
    return chains[0] if len(chains) == 1 else _any_of(chains)


def _chained(keeps: list[RowFilter]) -> RowFilter:
    def keep(rows: list[SimulatedRow]) -> list[SimulatedRow]:
        for each in keeps:
            rows = each(rows)
        return rows

    return keep


def _any_of(keeps: list[RowFilter]) -> RowFilter:
    def keep(rows: list[SimulatedRow]) -> list[SimulatedRow]:
        found = {row.key for each in keeps for row in each(rows)}
        return [row for row in rows if row.key in found] if len(found) < len(rows) else rows

    return keep
