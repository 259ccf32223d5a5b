"""A list as it is asked for: filtered, sorted, cut to a page and to fields."""

from collections.abc import Mapping
from typing import Any

from tidegate.sim.nocodb.answers import bad_offset, no_field
from tidegate.sim.nocodb.rows import Row, Table, Value
from tidegate.sim.nocodb.where.selecting import compile_where

USUAL, MOST = 25, 1_000  # rows of a page: unless asked otherwise, and however many are asked for


def matching(table: Table, query: Mapping[str, str]) -> list[Row]:
    rows = list(table.rows.values())
    where = query.get("where", "")
    return compile_where(where, table)(rows) if where else rows


def list_rows(table: Table, query: Mapping[str, str]) -> dict[str, Any]:
    """The page, with what NocoDB says about it. Raises ApiError."""
    names = read_fields(table, query.get("fields", ""))
    rows = _sorted(table, matching(table, query), query.get("sort", ""))
    limit, offset = _limit(query.get("limit", "")), _offset(query.get("offset", ""))
    if offset and offset >= len(rows):
        raise bad_offset(offset)
    page = rows[offset : offset + limit]
    return {
        "list": [table.shown(row, names) for row in page],
        "pageInfo": _page_info(len(rows), limit, offset),
    }


def _page_info(total: int, limit: int, offset: int) -> dict[str, Any]:
    where = {"page": offset // limit + 1} if offset % limit == 0 else {"offset": offset}
    return {
        "totalRows": total,
        **where,
        "pageSize": limit,
        "isFirstPage": offset == 0,
        "isLastPage": offset + limit >= total,
    }


def read_fields(table: Table, text: str) -> list[str]:
    asked = [name for name in text.split(",") if name]
    for name in asked:
        _require(table, name)
    return [name for name in table.columns if name in asked] if asked else list(table.columns)


def _require(table: Table, name: str) -> None:
    if name not in table.columns and not table.is_free:
        raise no_field(name)


def _sorted(table: Table, rows: list[Row], text: str) -> list[Row]:
    names = [name for name in text.split(",") if name]
    for name in names:
        _require(table, name.lstrip("+-"))
    if names and names[-1] == table.key:  # in this order they come
        del names[-1]
    for name in reversed(names):
        rows = _by(name.lstrip("+-"), rows, descending=name.startswith("-"))
    return rows


def _by(name: str, rows: list[Row], *, descending: bool) -> list[Row]:
    return sorted(rows, key=lambda row: _rank(row.fields.get(name)), reverse=descending)


def _rank(value: Value) -> tuple[int, float, str]:
    """As SQLite orders: nothing, then numbers, then texts."""
    if value is None:
        return 0, 0.0, ""
    return (2, 0.0, value) if isinstance(value, str) else (1, float(value), "")


def _limit(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004  (any number)
    return min(number, MOST) if number >= 1 else USUAL


def _offset(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0  # noqa: PLR2004  (any number)
