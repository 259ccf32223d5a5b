"""Filters for NocoDB, built from values: `all_of(checked("Paid"), one_of("OrderId", ids))`.

A filter that NocoDB would silently read as another one is never sent: it ignores `~not` before a group, so a
negation is carried to the conditions; of the comparisons of times only `gte` and `lt` are right on every
database. A value that no filter can express is a BadInputError.
"""

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from tidegate.errors import BadInputError

Value = str | int | float

_LATEST: Final = 253_402_300_799.0  # the last second of the year 9999
_OPPOSITES: Final = {
    "eq": "neq",  # neq, notchecked and nlike hold for fields without a value: true opposites
    "checked": "notchecked",
    "like": "nlike",
    "blank": "notblank",
}
_COMPLEMENTS: Final = _OPPOSITES | {there: here for here, there in _OPPOSITES.items()}
_BEYOND: Final = {"gt": "lte", "lte": "gt", "gte": "lt", "lt": "gte"}


class Condition(msgspec.Struct, frozen=True):
    """A field compared with values; `operator` is NocoDB's name of the comparison."""

    field: str
    operator: str
    values: tuple[str, ...] = ()


class AllOf(msgspec.Struct, frozen=True):
    parts: "tuple[Where, ...]"


class AnyOf(msgspec.Struct, frozen=True):
    parts: "tuple[Where, ...]"


Where = Condition | AllOf | AnyOf


def eq(field: str, value: Value) -> Where:
    return Condition(field, "eq", (_value_text(value),))


def neq(field: str, value: Value) -> Where:
    """True for a field without a value too."""
    return Condition(field, "neq", (_value_text(value),))


def gt(field: str, value: Value) -> Where:
    return Condition(field, "gt", (_value_text(value),))


def gte(field: str, value: Value) -> Where:
    return Condition(field, "gte", (_value_text(value),))


def lt(field: str, value: Value) -> Where:
    return Condition(field, "lt", (_value_text(value),))


def lte(field: str, value: Value) -> Where:
    return Condition(field, "lte", (_value_text(value),))


def one_of(field: str, values: Iterable[Value]) -> Where:
    """The field has one of these values. `Table.most` returns how many fit one request."""
    if isinstance(values, str | bytes):
        raise BadInputError(f"{values!r:.60} is one value ({field}): give a list, or use eq()")
    texts = tuple(map(_value_text, values))
    if not texts:
        raise BadInputError(f"one of no values ({field}): no row can match, so there is nothing to ask")
    return Condition(field, "in", texts)


def like(field: str, pattern: str) -> Where:
    """`%` stands for any text, `_` for one character; without a `%` it means "contains". Ignores case."""
    if not pattern:
        raise BadInputError(f"an empty pattern ({field}) matches every row: leave the condition out")
    return Condition(field, "like", (pattern,))


def checked(field: str) -> Where:
    """A checkbox that is ticked; `negate` it for one that is not, or was never touched."""
    return Condition(field, "checked")


def is_blank(field: str) -> Where:
    """No value, or an empty text. Not for checkboxes: on PostgreSQL NocoDB refuses it."""
    return Condition(field, "blank")


def since(field: str, when: datetime | float) -> Where:
    """A time at or after `when`, which is rounded down to the second."""
    return Condition(field, "gte", ("exactDate", _moment(when, math.floor)))


def before(field: str, when: datetime | float) -> Where:
    """A time before `when`, which is rounded up to the second."""
    return Condition(field, "lt", ("exactDate", _moment(when, math.ceil)))


def all_of(*parts: Where) -> Where:
    if not parts:
        raise BadInputError("all of no conditions: give at least one")
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AllOf) else (part,))]
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(*parts: Where) -> Where:
    if not parts:
        raise BadInputError("any of no conditions: give at least one")
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AnyOf) else (part,))]
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def negate(part: Where) -> Where:
    """Match every row that `part` does not match, rows without a value included."""
    if isinstance(part, AllOf):
        return any_of(*map(negate, part.parts))
    if isinstance(part, AnyOf):
        return all_of(*map(negate, part.parts))
    if part.operator == "in":
        return all_of(*(neq(part.field, value) for value in part.values))
    if part.operator in _BEYOND:
        return any_of(Condition(part.field, _BEYOND[part.operator], part.values), is_blank(part.field))
    return Condition(part.field, _COMPLEMENTS[part.operator], part.values)


def _value_text(value: Value) -> str:
    if isinstance(value, bool):
        raise BadInputError("true and false are for checkboxes: use checked(field), or negate it")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInputError(f"{value} cannot be the value of a field")
    if not isinstance(value, str | int | float):
        raise BadInputError(
            f"a {type(value).__name__} cannot be compared: give a text or a number, for times since()"
        )
    return str(value)


def _moment(when: datetime | float, rounded: Callable[[float], int]) -> str:
    """Return the time with its offset: without one it would be read in the column's own zone."""
    if isinstance(when, datetime) and when.tzinfo is None:
        raise BadInputError(f"{when} has no zone: give datetime(…, tzinfo=UTC) or seconds since the epoch")
    seconds = when.timestamp() if isinstance(when, datetime) else when
    if not 0 <= seconds <= _LATEST:
        raise BadInputError(f"{when} is not a time: give seconds since the epoch, or a datetime with a zone")
    return f"{datetime.fromtimestamp(rounded(seconds), UTC):%Y-%m-%d %H:%M:%S}+00:00"


# NocoDB has two grammars. Every version reads the old one, but a value stands in it unquoted, so parentheses
# and line breaks end it, and groups cannot stand side by side. The new one, marked by an `@` in front, has
# quotes without a way to escape them. Filters that both can express are sent in the old one.
NEW_GRAMMAR_MARK: Final = "@"
_NEVER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")
_BREAKS_OLD = re.compile(r"[()~\n\r\u2028\u2029]")
_BREAKS_BARE = re.compile(r"[()'\",~\s]")


def filter_text(where: Where) -> str:
    """Return the filter as NocoDB reads it. Raises BadInputError if neither grammar can express it."""
    return _written(where, old=True) if _fits_old(where) else NEW_GRAMMAR_MARK + _written(where, old=False)


def _written(where: Where, *, old: bool) -> str:
    if isinstance(where, Condition):
        words = (_name(where.field, old=old), where.operator, *_values(where, old=old))
        return f"({','.join(words)})"
    # The new grammar drops the operator of a group of one: `all_of` and `any_of` make no such groups.
    operator = "~and" if isinstance(where, AllOf) else "~or"
    return operator.join(_part(part, old=old) for part in where.parts)


def _part(where: Where, *, old: bool) -> str:
    text = _written(where, old=old)
    return text if isinstance(where, Condition) else f"({text})"


def _fits_old(where: Where) -> bool:
    if isinstance(where, Condition):
        fits = not any(map(_BREAKS_OLD.search, where.values)) and "," not in where.field
        whole = where.operator != "in" or not any("," in value for value in where.values)
        return fits and whole and not _BREAKS_OLD.search(where.field)
    groups = sum(isinstance(part, AllOf | AnyOf) for part in where.parts)
    return groups <= 1 and all(map(_fits_old, where.parts))


def _name(field: str, *, old: bool) -> str:
    if not field.strip() or _NEVER.search(field):
        raise BadInputError(f"{field!r:.60} is not the name of a field: give its title as NocoDB shows it")
    return field if old or not _BREAKS_BARE.search(field) else _quoted(field)


def _values(condition: Condition, *, old: bool) -> tuple[str, ...]:
    for value in condition.values:
        if _NEVER.search(value):
            raise BadInputError(f"a value for {condition.field} holds control characters: {value!r:.60}")
    return condition.values if old else tuple(map(_quoted, condition.values))


def _quoted(value: str) -> str:
    if value.endswith("\\"):  # it would escape the closing quote
        if not _BREAKS_BARE.search(value):
            return value
    elif "'" not in value:
        return f"'{value}'"  # one byte in a URL, a double quote takes three
    elif '"' not in value:
        return f'"{value}"'
    raise BadInputError(
        f"{value!r:.60} cannot be part of a NocoDB filter that needs quotes: it holds both kinds of quotes, "
        "or a quote or space and a backslash at its end; ask for this value alone, by eq()"
    )
