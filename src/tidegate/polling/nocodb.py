"""NocoDB as a source for pollers: batch checks, changes for delta polling, and subscriptions to restore.

All requests are made in the background: other calls to the API go first.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.polling.source import SourcePage, SourceRow
from tidegate.polling.subscriptions import Subscription
from tidegate.upstream.nocodb.table import Table
from tidegate.upstream.nocodb.values import instant, truth
from tidegate.upstream.nocodb.where import (
    AllOf,
    Condition,
    Where,
    all_of,
    any_of,
    checked,
    gt,
    gte,
    lte,
    one_of,
)
from tidegate.upstream.nocodb.where import since as not_before

log = logging.getLogger("tidegate.polling")

ROWS_PER_PAGE: Final = 1_000  # the most that NocoDB gives
PAID: Final = checked("Paid")

Record = Mapping[str, Any]
RowPredicate = Callable[[Mapping[str, Any]], bool]


def checks(
    table: Table, *, key: str = "Id", condition: Where = PAID, fields: Sequence[str] = ()
) -> "NocoDbChecks":
    """Return the `fetch` of a `BatchPoller`: it finds the keys whose record meets the condition."""
    return NocoDbChecks(table, key, condition, fields)


def changes(
    table: Table,
    *,
    key: str = "Id",
    condition: Where = PAID,
    fields: Sequence[str] = (),
    among: Where | None = None,
    updated: str = "UpdatedAt",
    created: str = "CreatedAt",
) -> "NocoDbChanges":
    """Return the source of a `DeltaPoller`. Callbacks get these `fields` of a record, found by its `key`.

    `among` limits what is read to records that can matter, such as those that are not archived.
    """
    return NocoDbChanges(table, key, condition, fields, among=among, updated=updated, created=created)


async def waiting(
    table: Table, where: Where | None = None, *, key: str = "Id", data: Sequence[str] = ()
) -> AsyncIterator[Subscription]:
    """Yield subscriptions from a table, for `Poller.restore`. `data`: fields to store with each."""
    records = RecordReader(key)
    async for rows in table.pages(where, fields=_unique(key, *data), background=True):
        for row in rows:
            if (found := records.key_of(row)) is not None:
                yield Subscription(found, {name: row.get(name) for name in data})


class NocoDbChecks:
    """The `fetch` of a `BatchPoller`. `most` returns how many keys one request takes."""

    def __init__(self, table: Table, key: str, condition: Where, fields: Sequence[str]) -> None:
        self._table = table
        self._key = key
        self._records = RecordReader(key)
        self._condition = condition
        self._value_fields = tuple(fields) or _unique(key, *fields_of(condition))
        self._fields = _unique(table.key, key, *self._value_fields)

    async def __call__(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        where = all_of(one_of(self._key, keys), self._condition)
        pages = self._table.pages(where, fields=self._fields, background=True)
        rows = [row async for page in pages for row in page]
        found = ((self._records.key_of(row), row) for row in rows)
        return {key: _picked(row, self._value_fields) for key, row in found if key is not None}

    def most(self, keys: Sequence[str]) -> int:
        return self._table.most(self._key, keys, and_=self._condition, fields=self._fields)


class NocoDbChanges:
    """The `ChangeSource` of a `DeltaPoller`."""

    def __init__(
        self,
        table: Table,
        key: str,
        condition: Where,
        fields: Sequence[str],
        *,
        among: Where | None,
        updated: str,
        created: str,
    ) -> None:
        self._table = table
        self._upstream = table.upstream
        self._id = table.key
        self._key = key
        self._condition = condition
        self._is_met = row_predicate(condition)
        self._among = (among,) if among is not None else ()
        self._times = (updated, created)
        self._records = RecordReader(key, self._times)
        self._value_fields = tuple(fields) or _unique(key, *fields_of(condition))
        needed = fields_of(condition) if self._is_met is not None else ()
        self._fields = _unique(table.key, key, *self._times, *self._value_fields, *needed)

    @property
    def rate(self) -> Rate:
        return self._upstream.rate

    @property
    def waited(self) -> float:
        return self._upstream.totals.waited_seconds

    async def changed(self, since: float, after: str | None = None) -> SourcePage:
        written = any_of(*(not_before(field, since) for field in self._times))
        rows, beyond = await self._list([written, self._condition, *self._among], after)
        return SourcePage([self._row(row, met=True) for row in rows], beyond)

    async def scan(self, after: str | None = None) -> SourcePage:
        rows, beyond = await self._list(self._among, after)
        if not rows:
            return SourcePage([], beyond)
        span = all_of(gte(self._id, rows[0][self._id]), lte(self._id, rows[-1][self._id]))
        read, requests = await self._with_met(rows, span)
        return SourcePage(read, beyond, 1 + requests)

    async def find(self, keys: Sequence[str]) -> SourcePage:
        asked = one_of(self._key, keys)
        rows, requests = await self._all(asked)
        read, more = await self._with_met(rows, asked)
        return SourcePage(read, None, requests + more)

    def most(self, keys: Sequence[str]) -> int:
        return self._table.most(self._key, keys, and_=self._condition, fields=self._fields)

    async def _with_met(self, rows: Sequence[Record], scope: Where) -> tuple[list[SourceRow], int]:
        """Return these rows, all that are in the scope, with `met`, and the number of further requests."""
        if self._is_met is not None:
            return [self._row(row, met=self._is_met(row)) for row in rows], 0
        met, requests = await self._all(all_of(scope, self._condition))
        newer = {row[self._id]: row for row in met}
        unmet = [self._row(row, met=False) for row in rows if row[self._id] not in newer]
        return unmet + [self._row(row, met=True) for row in met], requests

    async def _all(self, where: Where) -> tuple[list[Record], int]:
        rows, after = await self._list([where], None)
        requests = 1
        while after is not None:
            more, after = await self._list([where], after)
            rows += more
            requests += 1
        return rows, requests

    async def _list(self, parts: Sequence[Where], after: str | None) -> tuple[list[Record], str | None]:
        """Return a page in the order of ids, and the id after which the next page begins."""
        parts = [*parts, gt(self._id, after)] if after is not None else parts
        where = all_of(*parts) if parts else None
        page = await self._table.list(
            where, fields=self._fields, sort=(self._id,), limit=ROWS_PER_PAGE, background=True
        )
        last = str(page.rows[-1].get(self._id)) if page.rows and not page.is_last else None
        return [row for row in page.rows if row.get(self._id) is not None], last

    def _row(self, row: Record, *, met: bool) -> SourceRow:
        key = self._records.key_of(row) or ""  # no subscriber waits for a record without a key
        changed = self._records.changed(row)
        return SourceRow(
            str(row[self._id]), key, met=met, changed=changed, value=_picked(row, self._value_fields)
        )


class RecordReader:
    """Reads key and times of a table's records. A record that lacks them is logged once and stops nothing."""

    def __init__(self, key: str, times: Sequence[str] = ()) -> None:
        self._key = key
        self._times = times
        self._warned: set[str] = set()  # kinds of warnings, never a value

    def key_of(self, row: Record) -> str | None:
        """Return None for a record without a key: no subscriber can wait for it."""
        value = row.get(self._key)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            text = f"{self._key} holds {value!r:.60}: give a key= whose values are texts or whole numbers"
            self._warn("key", f"a record is left out: {text}")
            return None
        return str(value)

    def changed(self, row: Record) -> float | None:
        """Return the later of its times. None if it has none, as when SQL wrote it."""
        times = [time for name in self._times if (time := self._time(row.get(name))) is not None]
        if not times:
            either = " nor ".join(self._times)
            text = (
                f"a record has neither {either}: only scans see it; if all are like that, use a BatchPoller"
            )
            self._warn("times", text)
        return max(times, default=None)

    def _time(self, value: object) -> float | None:
        try:
            return None if value is None else instant(value)
        except BadInputError as error:
            self._warn("time", f"a time of a record is ignored: {error}")
            return None

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("%s", text)


def fields_of(where: Where) -> Iterator[str]:
    """Yield the fields of the filter; some may come twice."""
    if isinstance(where, Condition):
        yield where.field
    else:
        for part in where.parts:
            yield from fields_of(part)


def row_predicate(where: Where) -> RowPredicate | None:
    """Return a local check for a filter of checkboxes, else None: only the database compares texts."""
    if isinstance(where, Condition):
        return _checkbox_predicate(where)
    parts = [row_predicate(part) for part in where.parts]
    holds = [part for part in parts if part is not None]
    if len(holds) < len(parts):
        return None
    decide = all if isinstance(where, AllOf) else any
    return lambda row: decide(part(row) for part in holds)


def _checkbox_predicate(condition: Condition) -> RowPredicate | None:
    field = condition.field
    if condition.operator == "checked":
        return lambda row: truth(row.get(field))
    if condition.operator == "notchecked":
        return lambda row: not truth(row.get(field))
    return None


def _picked(row: Record, fields: Sequence[str]) -> dict[str, Any]:
    return {name: row.get(name) for name in fields}


def _unique(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
