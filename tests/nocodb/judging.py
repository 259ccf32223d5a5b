"""The meaning of a filter, written once more in Python."""

from typing import Any

from tidegate.upstream.nocodb.values import instant
from tidegate.upstream.nocodb.where import AllOf, AnyOf, Condition, Where

Row = dict[str, Any]


def matches(where: Where, row: Row) -> bool:
    if isinstance(where, AllOf):
        return all(matches(part, row) for part in where.parts)
    if isinstance(where, AnyOf):
        return any(matches(part, row) for part in where.parts)
    return _holds(where, row[where.field])


def _holds(condition: Condition, value: Any) -> bool:  # noqa: ANN401, PLR0911  (JSON; one for each operator)
    match condition.operator:
        case "checked":
            return bool(value)
        case "notchecked":
            return not value
        case "blank":
            return value is None or value == ""
        case "notblank":
            return value is not None and value != ""
        case "eq" | "in":
            return value is not None and str(value) in condition.values
        case "neq":
            return value is None or str(value) not in condition.values
        case "like":
            return value is not None and condition.values[0].lower() in str(value).lower()
        case "nlike":
            return value is None or condition.values[0].lower() not in str(value).lower()
        case operator:
            return value is not None and _compares(operator, *_numbers(condition, value))


def _numbers(condition: Condition, value: Any) -> tuple[float, float]:  # noqa: ANN401
    if condition.values[0] == "exactDate":
        return instant(value), instant(condition.values[1])
    return float(value), float(condition.values[0])


def _compares(operator: str, left: float, right: float) -> bool:
    return {"gt": left > right, "gte": left >= right, "lt": left < right, "lte": left <= right}[operator]
