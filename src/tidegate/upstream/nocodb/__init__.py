"""A typed client of NocoDB's records, behind the limiter."""

from tidegate.upstream.nocodb.client import NocoDb
from tidegate.upstream.nocodb.table import Page, Row, Table
from tidegate.upstream.nocodb.values import instant, truth
from tidegate.upstream.nocodb.where import (
    Where,
    all_of,
    any_of,
    before,
    checked,
    eq,
    gt,
    gte,
    is_blank,
    like,
    lt,
    lte,
    negate,
    neq,
    one_of,
    since,
)

__all__ = [
    "NocoDb",
    "Page",
    "Row",
    "Table",
    "Where",
    "all_of",
    "any_of",
    "before",
    "checked",
    "eq",
    "gt",
    "gte",
    "instant",
    "is_blank",
    "like",
    "lt",
    "lte",
    "negate",
    "neq",
    "one_of",
    "since",
    "truth",
]
