"""The v2 API: which request does what to which table."""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tidegate.sim.nocodb.answers import (
    ApiError,
    bad_json,
    bad_key,
    no_record,
    no_route,
    no_table,
    too_many_rows,
)
from tidegate.sim.nocodb.listing import list_rows, matching, read_fields
from tidegate.sim.nocodb.rows import Table

MOST_ROWS = 100  # of one create, update or delete
LONGEST_KEY = 16  # digits
LARGEST_HEAD = 16_383  # bytes of path, query and headers together; Node refuses more before NocoDB sees it
LISTS = ("fields", "sort")  # may be given several times
_ROUTE = re.compile(r"/api/v2/(?:tables/([^/]+)/records(?:/([^/]+))?|meta/tables/([^/]+))/?")


class Asked(msgspec.Struct, frozen=True):
    """A request that was understood as far as its address goes."""

    method: str
    path: str
    table: str
    record: str | None  # an id, or "count"
    is_meta: bool
    query: Mapping[str, str]


def read_target(method: str, target: str) -> Asked:
    """Raises the 404 of an address that is none."""
    parts = urlsplit(target)
    path = unquote(parts.path)
    found = _ROUTE.fullmatch(path)
    if found is None:
        raise no_route(method, path)
    query: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        query[name] = f"{query[name]},{value}" if name in LISTS and name in query else value
    return Asked(method, path, found[1] or found[3], found[2], found[3] is not None, query)


class Records:
    """Carries out what is asked. `at` is the server's time of day."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables

    def answer(self, asked: Asked, body: bytes | None, at: float) -> Any:  # noqa: ANN401  (JSON)
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


def _look(table: Table, asked: Asked) -> Any:  # noqa: ANN401  (JSON)
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


def _insert(table: Table, rows: list[dict[str, Any]], at: float) -> list[int]:
    # The key is the server's to give: one that is sent is passed over.
    return table.insert([{name: row[name] for name in row if name != table.key} for row in rows], at)


def _update(table: Table, rows: list[dict[str, Any]], at: float) -> list[int]:
    keys = _keys(table, rows)
    for key, row in zip(keys, rows, strict=True):
        table.update(key, row, at)
    return keys


def _delete(table: Table, rows: list[dict[str, Any]], _: float) -> list[int]:
    if any(row.get(table.key) is None for row in rows):
        raise ApiError(422, "ERR_REQUIRED_FIELD_MISSING", f"Field '{table.key}' is required")
    keys = _keys(table, rows)
    table.delete(keys)
    return keys


def _keys(table: Table, rows: list[dict[str, Any]]) -> list[int]:
    """All of them exist, each once, or nothing is done."""
    keys: list[int] = []
    for row in rows:
        given = row.get(table.key)
        key = _key(table, given) if given is not None else None
        if key is None or key not in table.rows:
            raise no_record(given)
        if key in keys:
            raise ApiError(422, "", f"Duplicate record with id {key}")
        keys.append(key)
    return keys


def _key(table: Table, value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) < LONGEST_KEY):
        raise bad_key(value, table.key)
    return int(text)


WRITES: dict[str, Callable[[Table, list[dict[str, Any]], float], list[int]]] = {
    "POST": _insert,
    "PATCH": _update,
    "DELETE": _delete,
}
