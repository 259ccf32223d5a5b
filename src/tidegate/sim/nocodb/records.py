"""The v2 records API: routes, lists with where/sort/fields, and writes."""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tidegate.sim.nocodb.answers import (
    NocoDbApiError,
    bad_json,
    bad_key,
    bad_offset,
    no_field,
    no_record,
    no_route,
    no_table,
    too_many_rows,
)
from tidegate.sim.nocodb.table import SimulatedRow, SimulatedTable, Value
from tidegate.sim.nocodb.where import compile_where

USUAL, MOST = 25, 1_000  # rows of a page: unless asked otherwise, and however many are asked for


def matching(table: SimulatedTable, query: Mapping[str, str]) -> list[SimulatedRow]:
    rows = list(table.rows.values())
    where = query.get("where", "")
    return compile_where(where, table)(rows) if where else rows


def list_rows(table: SimulatedTable, query: Mapping[str, str]) -> dict[str, Any]:
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


def read_fields(table: SimulatedTable, text: str) -> list[str]:
    asked = [name for name in text.split(",") if name]
    for name in asked:
        _require(table, name)
    return [name for name in table.columns if name in asked] if asked else list(table.columns)


def _require(table: SimulatedTable, name: str) -> None:
    if name not in table.columns and not table.is_free:
        raise no_field(name)


def _sorted(table: SimulatedTable, rows: list[SimulatedRow], text: str) -> list[SimulatedRow]:
    names = [name for name in text.split(",") if name]
    for name in names:
        _require(table, name.lstrip("+-"))
    if names and names[-1] == table.key:  # in this order they come
        del names[-1]
    for name in reversed(names):
        rows = _sorted_by(name.lstrip("+-"), rows, descending=name.startswith("-"))
    return rows


def _sorted_by(name: str, rows: list[SimulatedRow], *, descending: bool) -> list[SimulatedRow]:
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


MOST_ROWS = 100  # of one create, update or delete
LONGEST_KEY = 16  # digits
LARGEST_HEAD = 16_383  # bytes of path, query and headers together; Node refuses more before NocoDB sees it
LISTS = ("fields", "sort")  # may be given several times
_ROUTE = re.compile(r"/api/v2/(?:tables/([^/]+)/records(?:/([^/]+))?|meta/tables/([^/]+))/?")


class RecordsRequest(msgspec.Struct, frozen=True):
    """A request that was understood as far as its address goes."""

    method: str
    path: str
    table: str
    record: str | None  # an id, or "count"
    is_meta: bool
    query: Mapping[str, str]


def read_target(method: str, target: str) -> RecordsRequest:
    """Raises the 404 of an address that is none."""
    parts = urlsplit(target)
    path = unquote(parts.path)
    found = _ROUTE.fullmatch(path)
    if found is None:
        raise no_route(method, path)
    query: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        query[name] = f"{query[name]},{value}" if name in LISTS and name in query else value
    return RecordsRequest(method, path, found[1] or found[3], found[2], found[3] is not None, query)


class RecordsApi:
    """Carries out what is asked. `at` is the server's time of day."""

    def __init__(self, tables: Mapping[str, SimulatedTable]) -> None:
        self._tables = tables

    def answer(self, asked: RecordsRequest, body: bytes | None, at: float) -> Any:  # noqa: ANN401  (JSON)
        """Raises ApiError."""
        table = self._tables.get(asked.table)
        if table is None:
            raise no_table(asked.table)
        if asked.method == "GET":
            return _look(table, asked)
        write = WRITES.get(asked.method) if asked.record is None and not asked.is_meta else None
        if write is None:
            raise no_route(asked.method, asked.path)
        rows, single = _read_body(body)
        keys = [{table.key: key} for key in write(table, rows, at)]
        return keys[0] if single else keys


def _look(table: SimulatedTable, asked: RecordsRequest) -> Any:  # noqa: ANN401  (JSON)
    if asked.is_meta:
        columns = [{"title": name, "uidt": kind} for name, kind in table.columns.items()]
        return {"id": table.id, "title": table.title, "columns": columns}
    if asked.record is None:
        return list_rows(table, asked.query)
    if asked.record == "count":
        return {"count": len(matching(table, asked.query))}
    row = table.rows.get(_key(table, asked.record))
    if row is None:
        raise no_record(asked.record)
    return table.shown(row, read_fields(table, asked.query.get("fields", "")))


def _read_body(body: bytes | None) -> tuple[list[dict[str, Any]], bool]:
    try:
        sent = msgspec.json.decode(body or b"{}")
    except msgspec.DecodeError:
        raise bad_json() from None
    rows = sent if isinstance(sent, list) else [sent]
    if not all(isinstance(row, dict) for row in rows):
        raise bad_json()
    if len(rows) > MOST_ROWS:
        raise too_many_rows(MOST_ROWS)
    return rows, not isinstance(sent, list)


def _insert(table: SimulatedTable, rows: list[dict[str, Any]], at: float) -> list[int]:
    # The key is the server's to give: one that is sent is passed over.
    return table.insert([{name: row[name] for name in row if name != table.key} for row in rows], at)


def _update(table: SimulatedTable, rows: list[dict[str, Any]], at: float) -> list[int]:
    keys = _keys(table, rows)
    for key, row in zip(keys, rows, strict=True):
        table.update(key, row, at)
    return keys


def _delete(table: SimulatedTable, rows: list[dict[str, Any]], _: float) -> list[int]:
    if any(row.get(table.key) is None for row in rows):
        raise NocoDbApiError(422, "ERR_REQUIRED_FIELD_MISSING", f"Field '{table.key}' is required")
    keys = _keys(table, rows)
    table.delete(keys)
    return keys


def _keys(table: SimulatedTable, rows: list[dict[str, Any]]) -> list[int]:
    """All of them exist, each once, or nothing is done."""
    keys: list[int] = []
    for row in rows:
        given = row.get(table.key)
        key = _key(table, given) if given is not None else None
        if key is None or key not in table.rows:
            raise no_record(given)
        if key in keys:
            raise NocoDbApiError(422, "", f"Duplicate record with id {key}")
        keys.append(key)
    return keys


def _key(table: SimulatedTable, value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) < LONGEST_KEY):
        raise bad_key(value, table.key)
    return int(text)


WRITES: dict[str, Callable[[SimulatedTable, list[dict[str, Any]], float], list[int]]] = {
    "POST": _insert,
    "PATCH": _update,
    "DELETE": _delete,
}
