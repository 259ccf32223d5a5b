"""NocoDB as a source: what to check in batches, what to follow by deltas, whom to restore.

All requests are made in the background: whoever wants something of the API at once goes first.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from tidegate.model import Rate
from tidegate.polling.conditions import fields_of, judge_of
from tidegate.polling.records import Record, Records
from tidegate.polling.source import Page, Row
from tidegate.polling.subscriptions import Subscription
from tidegate.upstream.nocodb import Table
from tidegate.upstream.nocodb.where import Where, all_of, any_of, checked, gt, gte, lte, one_of
from tidegate.upstream.nocodb.where import since as not_before

PAGE: Final = 1_000  # rows: the most that NocoDB gives
PAID: Final = checked("Paid")


def checks(table: Table, *, key: str = "Id", condition: Where = PAID, fields: Sequence[str] = ()) -> "Checks":
    """For a `BatchPoller`: of these keys, those whose record meets the condition, with these fields."""
    return Checks(table, key, condition, fields)


def changes(
    table: Table,
    *,
    key: str = "Id",
    condition: Where = PAID,
    fields: Sequence[str] = (),
    among: Where | None = None,
    updated: str = "UpdatedAt",
    created: str = "CreatedAt",
) -> "ChangesOfTable":
    """For a `DeltaPoller`. Subscribers wait for the `key` of a record, and are told these `fields` of it.

    `among` narrows what is read to records that can matter, such as those that are not archived.
    """
    return ChangesOfTable(table, key, condition, fields, among=among, updated=updated, created=created)


async def waiting(
    table: Table, where: Where | None = None, *, key: str = "Id", data: Sequence[str] = ()
) -> AsyncIterator[Subscription]:
    """For `Poller.restore`: who waits, as the table itself says it. `data`: fields to keep with each."""
    records = Records(key)
    async for rows in table.pages(where, fields=_once(key, *data), background=True):
        for row in rows:
            if (found := records.key_of(row)) is not None:
                yield Subscription(found, {name: row.get(name) for name in data})


class Checks:
    """What `BatchPoller` calls. `most` is how many keys one request takes."""

    def __init__(self, table: Table, key: str, condition: Where, fields: Sequence[str]) -> None:
        self._table = table
        self._key = key
        self._records = Records(key)
        self._condition = condition
        self._told = tuple(fields) or _once(key, *fields_of(condition))
        self._read = _once(table.key, key, *self._told)

    async def __call__(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        where = all_of(one_of(self._key, keys), self._condition)
        pages = self._table.pages(where, fields=self._read, background=True)
        rows = [row async for page in pages for row in page]
        found = ((self._records.key_of(row), row) for row in rows)
        return {key: _part(row, self._told) for key, row in found if key is not None}

    def most(self, keys: Sequence[str]) -> int:
        return self._table.most(self._key, keys, and_=self._condition, fields=self._read)


class ChangesOfTable:
    """The source of a `DeltaPoller`."""

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
        self._judge = judge_of(condition)
        self._among = (among,) if among is not None else ()
        self._times = (updated, created)
        self._records = Records(key, self._times)
        self._told = tuple(fields) or _once(key, *fields_of(condition))
        needed = fields_of(condition) if self._judge is not None else ()
        self._read = _once(table.key, key, *self._times, *self._told, *needed)

    @property
    def rate(self) -> Rate:
        return self._upstream.rate

    @property
    def waited(self) -> float:
        return self._upstream.totals.waited_seconds

    async def changed(self, since: float, after: str | None = None) -> Page:
        written = any_of(*(not_before(field, since) for field in self._times))
        rows, beyond = await self._list([written, self._condition, *self._among], after)
        return Page([self._row(row, met=True) for row in rows], beyond)

    async def scan(self, after: str | None = None) -> Page:
        rows, beyond = await self._list(self._among, after)
        if not rows:
            return Page([], beyond)
        span = all_of(gte(self._id, rows[0][self._id]), lte(self._id, rows[-1][self._id]))
        read, requests = await self._judged(rows, span)
        return Page(read, beyond, 1 + requests)

    async def find(self, keys: Sequence[str]) -> Page:
        asked = one_of(self._key, keys)
        rows, requests = await self._all(asked)
        read, more = await self._judged(rows, asked)
        return Page(read, None, requests + more)

    def most(self, keys: Sequence[str]) -> int:
        return self._table.most(self._key, keys, and_=self._condition, fields=self._read)

    async def _judged(self, rows: Sequence[Record], scope: Where) -> tuple[list[Row], int]:
        """These rows, all that there are in this scope, and how many requests more it took."""
        if self._judge is not None:
            return [self._row(row, met=self._judge(row)) for row in rows], 0
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
        """A page by the id, and the id after which the next one begins."""
        parts = [*parts, gt(self._id, after)] if after is not None else parts
        where = all_of(*parts) if parts else None
        page = await self._table.list(where, fields=self._read, sort=(self._id,), limit=PAGE, background=True)
        last = str(page.rows[-1].get(self._id)) if page.rows and not page.is_last else None
        return [row for row in page.rows if row.get(self._id) is not None], last

    def _row(self, row: Record, *, met: bool) -> Row:
        key = self._records.key_of(row) or ""  # a record without one concerns nobody
        changed = self._records.changed(row)
        return Row(str(row[self._id]), key, met=met, changed=changed, value=_part(row, self._told))


def _part(row: Record, fields: Sequence[str]) -> dict[str, Any]:
    return {name: row.get(name) for name in fields}


def _once(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
