"""The v2 records API: routes, lists with where/sort/fields, and writes."""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tidegate.sim.nocodb.answers import (
    NocoDbApiError,
    bad_json,
    no_record,
    no_route,
)
from tidegate.sim.nocodb.table import SimulatedRow, SimulatedTable, Value
from tidegate.sim.nocodb.where import compile_where

MOST_ROWS = 100  # of one create, update or delete
LONGEST_KEY = 16  # digits
LARGEST_HEAD = 16_383  # bytes of path, query and headers together; Node refuses more before NocoDB sees it
USUAL_PAGE, LARGEST_PAGE = 25, 1_000  # rows
LISTS = ("fields", "sort")  # may occur several times
_ROUTE = re.compile(r"/api/v2/(?:tables/([^/]+)/records(?:/([^/]+))?|meta/tables/([^/]+))/?")


class RecordsRequest(msgspec.Struct, frozen=True):
    """A request whose address was understood."""

    method: str
    path: str
    table: str
    record: str | None  # an id, or "count"
    is_meta: bool
    query: Mapping[str, str]


def read_target(method: str, target: str) -> RecordsRequest:
    """Parse method, path and query. Raises the 404 of an unknown address."""
    parts = urlsplit(target)
    path = unquote(parts.path)
    found = _ROUTE.fullmatch(path)
    if found is None:
        raise no_route(method, path)
    query: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        query[name] = f"{query[name]},{value}" if name in LISTS and name in query else value
    return RecordsRequest(method, path, found[1] or found[3], found[2], found[3] is not None, query)


def answer_request(
    tables: Mapping[str, SimulatedTable], request: RecordsRequest, body: bytes | None, at: float
) -> object:
    """Carry out a request at the server's time `at`, and return the JSON answer. Raises NocoDbApiError."""
    table = tables.get(request.table)
    if table is None:
        raise NocoDbApiError(404, "ERR_TABLE_NOT_FOUND", f"Table '{request.table}' not found")
    if request.method == "GET":
        return _read(table, request)
    write = WRITES.get(request.method) if request.record is None and not request.is_meta else None
    if write is None:
        raise no_route(request.method, request.path)
    rows, single = _read_body(body)
    keys = [{table.key: key} for key in write(table, rows, at)]
    return keys[0] if single else keys


def _read(table: SimulatedTable, request: RecordsRequest) -> Any:  # noqa: ANN401  (JSON)
    if request.is_meta:
        columns = [{"title": name, "uidt": kind} for name, kind in table.columns.items()]
        return {"id": table.id, "title": table.title, "columns": columns}
    if request.record is None:
        return _list_rows(table, request.query)
    if request.record == "count":
        return {"count": len(_matching(table, request.query))}
    row = table.rows.get(_key(table, request.record))
    if row is None:
        raise no_record(request.record)
    return table.shown(row, _read_fields(table, request.query.get("fields", "")))


def _list_rows(table: SimulatedTable, query: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of rows with NocoDB's pageInfo. Raises NocoDbApiError."""
    names = _read_fields(table, query.get("fields", ""))
    rows = _sorted(table, _matching(table, query), query.get("sort", ""))
    limit = min(_whole_number(query.get("limit", ""), 9), LARGEST_PAGE) or USUAL_PAGE
    offset = _whole_number(query.get("offset", ""), 15)
    if offset and offset >= len(rows):
        raise NocoDbApiError(422, "ERR_INVALID_OFFSET_VALUE", f"Offset value '{offset}' is invalid")
    page = rows[offset : offset + limit]
    return {
        "list": [table.shown(row, names) for row in page],
        "pageInfo": _page_info(len(rows), limit, offset),
    }


def _matching(table: SimulatedTable, query: Mapping[str, str]) -> list[SimulatedRow]:
    rows = list(table.rows.values())
    where = query.get("where", "")
    return compile_where(where, table)(rows) if where else rows


def _read_fields(table: SimulatedTable, text: str) -> list[str]:
    asked = [name for name in text.split(",") if name]
    for name in asked:
        _require(table, name)
    return [name for name in table.columns if name in asked] if asked else list(table.columns)


def _require(table: SimulatedTable, name: str) -> None:
    if name not in table.columns and not table.is_free:
        raise NocoDbApiError(404, "ERR_FIELD_NOT_FOUND", f"Field '{name}' not found")


def _sorted(table: SimulatedTable, rows: list[SimulatedRow], text: str) -> list[SimulatedRow]:
    names = [name for name in text.split(",") if name]
    for name in names:
        _require(table, name.lstrip("+-"))
    if names and names[-1] == table.key:  # rows are in this order already
        del names[-1]
    for name in reversed(names):
        column = name.lstrip("+-")
        rows = sorted(rows, key=lambda row: _rank(row.fields.get(column)), reverse=name.startswith("-"))
    return rows


def _rank(value: Value) -> tuple[int, float, str]:
    """Order as SQLite does: null, then numbers, then texts."""
    if value is None:
        return 0, 0.0, ""
    return (2, 0.0, value) if isinstance(value, str) else (1, float(value), "")


def _whole_number(text: str, most_digits: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most_digits else 0


def _page_info(total: int, limit: int, offset: int) -> dict[str, Any]:
    where = {"page": offset // limit + 1} if offset % limit == 0 else {"offset": offset}
    return {
        "totalRows": total,
        **where,
        "pageSize": limit,
        "isFirstPage": offset == 0,
        "isLastPage": offset + limit >= total,
    }


def _read_body(body: bytes | None) -> tuple[list[dict[str, Any]], bool]:
    try:
        sent = msgspec.json.decode(body or b"{}")
    except msgspec.DecodeError:
        raise bad_json() from None
    rows = sent if isinstance(sent, list) else [sent]
    if not all(isinstance(row, dict) for row in rows):
        raise bad_json()
    if len(rows) > MOST_ROWS:
        text = f"Maximum {MOST_ROWS} entities are allowed per request"
        raise NocoDbApiError(422, "ERR_MAX_PAYLOAD_LIMIT_EXCEEDED", text)
    return rows, not isinstance(sent, list)


def _insert(table: SimulatedTable, rows: list[dict[str, Any]], at: float) -> list[int]:
    # The server assigns the key: one that is sent is ignored.
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
    """Return the keys of the rows. Raises unless every row exists and occurs once."""
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
        text = f"Primary key value '{value}' is invalid for column '{table.key}'"
        raise NocoDbApiError(422, "ERR_INVALID_PK_VALUE", text)
    return int(text)


WRITES: dict[str, Callable[[SimulatedTable, list[dict[str, Any]], float], list[int]]] = {
    "POST": _insert,
    "PATCH": _update,
    "DELETE": _delete,
}
