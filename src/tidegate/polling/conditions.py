"""Whether a condition holds for a row that was read, told here and not by NocoDB."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidegate.upstream.nocodb.values import truth
from tidegate.upstream.nocodb.where import AllOf, Condition, Where

Holds = Callable[[Mapping[str, Any]], bool]


def fields_of(where: Where) -> Iterator[str]:
    """The fields that it is about; some may come twice."""
    if isinstance(where, Condition):
        yield where.field
    else:
        for part in where.parts:
            yield from fields_of(part)


def judge_of(where: Where) -> Holds | None:
    """For checkboxes, alone or together. None for all else: only the database knows which texts are equal."""
    if isinstance(where, Condition):
        return _box(where)
    parts = [judge_of(part) for part in where.parts]
    holds = [part for part in parts if part is not None]
    if len(holds) < len(parts):
        return None
    decide = all if isinstance(where, AllOf) else any
    return lambda row: decide(part(row) for part in holds)


def _box(condition: Condition) -> Holds | None:
    field = condition.field
    if condition.operator == "checked":
        return lambda row: truth(row.get(field))
    if condition.operator == "notchecked":
        return lambda row: not truth(row.get(field))
    return None
