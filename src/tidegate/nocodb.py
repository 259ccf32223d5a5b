"""The public names for NocoDB: a typed client, filters, and sources for pollers."""

from tidegate.polling.nocodb import changes, checks, waiting
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
    "changes",
    "checked",
    "checks",
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
    "waiting",
]
