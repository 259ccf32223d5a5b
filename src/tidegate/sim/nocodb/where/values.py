"""What a condition says about one value, as SQLite and PostgreSQL understand it under NocoDB."""

import operator as op
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tidegate.sim.nocodb.answers import ApiError, failed_verification, unreadable_filter
from tidegate.sim.nocodb.rows import NUMBERS, Value
from tidegate.sim.nocodb.where.parts import Condition

Test = Callable[[Value], bool]


class Judgement(NamedTuple):
    """Values that are `wanted`, or a test that `accepts` them. Without `knows_null`, null is "unknown"."""

    wanted: frozenset[Value] = frozenset()
    accepts: Test | None = None
    knows_null: bool = False


ALIASES = {"isblank": "blank", "is_blank": "blank", "ge": "gte", "le": "lte", "not": "neq"} | dict.fromkeys(
    ("isnotblank", "is_not_blank", "is_notblank"), "notblank"
)
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": op.gt,
    "gte": op.ge,
    "lt": op.lt,
    "lte": op.le,
}
WITHOUT_VALUE: dict[str, Judgement] = {
    "checked": Judgement(frozenset([1])),
    "notchecked": Judgement(frozenset([0, None]), knows_null=True),
    "blank": Judgement(frozenset([None, ""]), knows_null=True),
    "notblank": Judgement(accepts=lambda value: value not in {None, ""}, knows_null=True),
    "null": Judgement(frozenset([None]), knows_null=True),
    "notnull": Judgement(accepts=lambda value: value is not None, knows_null=True),
    "empty": Judgement(frozenset([""])),
    "notempty": Judgement(accepts=lambda value: value != "", knows_null=True),
}
WITH_VALUE = {"eq", "neq", "in", "anyof", "nanyof", "like", "nlike", *COMPARISONS}
REFUSED_BY = {kind: frozenset(["btw", "checked", "notchecked"]) for kind in NUMBERS} | {
    "Checkbox": frozenset(["null", "notnull", "in"])
}
SILENT = {"is", "isnot", "isWithin", "btw", "nbtw", "allof", "nallof"}  # accepted, and select every row


def judge(condition: Condition, kind: str, *, postgres: bool) -> Judgement | None:
    """None where the condition is passed over in silence, so that it selects every row. Raises ApiError."""
    operator = operator_of(condition, kind)
    _verify(condition, operator, kind)
    if operator in WITHOUT_VALUE:
        return WITHOUT_VALUE[operator]
    if operator in SILENT:
        return None
    if operator not in WITH_VALUE:
        raise unreadable_filter(f"{operator} is not supported.")
    if condition.values is None:
        raise ApiError(500, "", "Cannot read properties of undefined")
    if condition.values == (None,):
        return WITHOUT_VALUE["notnull" if operator == "neq" else "null"]
    return _judge_value(operator, [value or "" for value in condition.values], postgres=postgres)


def operator_of(condition: Condition, kind: str) -> str:
    """Without its other spellings. `is` has a meaning with a few words only."""
    operator, first = condition.operator, (condition.values or ("",))[0]
    if operator == "is":
        said = {"blank": "blank", "notblank": "notblank", "true": "checked", "false": "notchecked"}
        if kind != "Checkbox":
            said |= {"null": "null"}
        return said.get(first or "null", operator)
    return ALIASES.get(operator, operator)


def _verify(condition: Condition, operator: str, kind: str) -> None:
    """Some types refuse some operators; the others pass over what they do not know."""
    if operator in REFUSED_BY.get(kind, ()):
        raise failed_verification(f"Operation {operator} is not supported for type {kind}", condition.field)
    if kind not in NUMBERS or operator not in {"eq", "neq", *COMPARISONS}:
        return
    for value in condition.values or ():
        if value and _number(value) is None:
            raise failed_verification(f"Value {value} is not supported for type {kind}", condition.field)


def _judge_value(operator: str, values: list[str], *, postgres: bool) -> Judgement:
    same = frozenset[Value]().union(*(_same_as(value, postgres=postgres) for value in values))
    if operator in {"eq", "in"}:
        return Judgement(same)
    if operator == "neq":
        return Judgement(accepts=lambda value: value not in same, knows_null=True)
    if operator in COMPARISONS:
        return Judgement(accepts=_compared(operator, values[0]))
    tests = [_liking(value) for value in values] if operator in {"like", "nlike"} else _containing(values)
    if operator in {"like", "anyof"}:
        return Judgement(accepts=lambda value: any(test(value) for test in tests))
    return Judgement(accepts=lambda value: not any(test(value) for test in tests), knows_null=True)


def _same_as(text: str, *, postgres: bool) -> frozenset[Value]:
    """A text, and the number it says: columns of numbers are asked with texts too."""
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
    """`%` is anything, `_` one character; without a `%`, the text may stand anywhere."""
    pattern = text if "%" in text else f"%{text}%"
    written = ".*".join(map(re.escape, pattern.split("%"))).replace("_", ".")
    found = re.compile(written, re.IGNORECASE | re.ASCII | re.DOTALL).fullmatch
    return lambda value: value is not None and found(str(value)) is not None


def _containing(texts: list[str]) -> list[Test]:
    def contains(text: str) -> Test:
        lower = text.lower()
        return lambda value: value is not None and lower in str(value).lower()

    return [contains(text) for text in texts]
