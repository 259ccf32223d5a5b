"""The records of one table, to read."""

from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from tidegate.errors import BadInputError, UpstreamGarbledError, UpstreamRefusedError
from tidegate.upstream.client import Upstream
from tidegate.upstream.nocodb.border import (
    MOST_PER_PAGE,
    RecordId,
    names,
    page_size,
    record_id,
    several,
    table_id,
)
from tidegate.upstream.nocodb.fitting import how_many_fit
from tidegate.upstream.nocodb.grammar import text_of
from tidegate.upstream.nocodb.shapes import Counted, Listing, Page, Row
from tidegate.upstream.nocodb.where import Value, Where, all_of, gt, one_of
from tidegate.upstream.wire import Request

Shape = TypeVar("Shape")
Rows = list[Row]


class Records:
    """Each method is one request, unless it says otherwise.

    Raises Upstream…Error, and BadInputError before anything is sent. `background` lets everybody else go
    first; with `fresh_for` an answer of so many seconds ago will do.
    """

    def __init__(self, upstream: Upstream, table: str, *, key: str, url_bytes: int) -> None:
        self.id = table_id(table)
        self.key = key
        self._upstream = upstream
        self._url_bytes = url_bytes
        self._path = f"api/v2/tables/{self.id}/records"

    @property
    def upstream(self) -> Upstream:
        """Through which it asks: its rate, its totals."""
        return self._upstream

    async def list(
        self,
        where: Where | None = None,
        *,
        fields: Sequence[str] = (),
        sort: Sequence[str] = (),
        limit: int = 100,
        offset: int = 0,
        background: bool = False,
        fresh_for: float = 0.0,
    ) -> Page:
        """Up to 1,000 rows, `sort`ed by ("-CreatedAt", "Id"); all fields unless some are named.

        By offset rows are skipped and repeated while others write: for more than one page use `pages`.
        """
        query = _query(where, fields, sort, limit, offset)
        try:
            answer = await self._upstream.read(
                self._path, query=query, fresh_for=fresh_for, background=background
            )
        except UpstreamRefusedError as error:
            if not offset or "OFFSET" not in str(error):
                raise
            # Past the end. NocoDB calls it an error.
            return Page([], await self.count(where, background=background), is_last=True)
        found = self._shaped(answer, Listing)
        return Page(found.list, found.page_info.total_rows, found.page_info.is_last_page)

    async def pages(
        self,
        where: Where | None = None,
        *,
        fields: Sequence[str] = (),
        size: int = MOST_PER_PAGE,
        background: bool = False,
    ) -> AsyncGenerator[Rows]:
        """All rows in the order of the key, a request for each page. One page at least is asked for.

        Pages begin behind the last key, so nothing is skipped or repeated while others write; a row that
        is added meanwhile is seen if its key lies ahead. The key comes with the fields.
        """
        wanted = (*fields, self.key) if fields and self.key not in fields else fields
        beyond, last = where, None
        while True:
            page = await self.list(beyond, fields=wanted, sort=(self.key,), limit=size, background=background)
            if page.rows:
                yield page.rows
            if page.is_last or not page.rows:
                return
            last = self._advanced(last, page.rows)
            beyond = gt(self.key, last) if where is None else all_of(where, gt(self.key, last))

    async def count(
        self, where: Where | None = None, *, background: bool = False, fresh_for: float = 0.0
    ) -> int:
        query = [("where", text_of(where))] if where is not None else []
        answer = await self._upstream.read(
            f"{self._path}/count", query=query, fresh_for=fresh_for, background=background
        )
        return self._shaped(answer, Counted).count

    async def read(
        self,
        record: RecordId,
        *,
        fields: Sequence[str] = (),
        background: bool = False,
        fresh_for: float = 0.0,
    ) -> Row | None:
        """None if there is no such record, or no longer."""
        path = f"{self._path}/{record_id(record)}"
        query = [("fields", names(fields))] if fields else []
        try:
            answer = await self._upstream.read(
                path, query=query, fresh_for=fresh_for, background=background, record=str(record)
            )
        except UpstreamRefusedError as error:
            if is_gone(error):
                return None
            raise
        return self._shaped(answer, Row)

    def most(
        self,
        field: str,
        values: Sequence[Value],
        *,
        and_: Where | None = None,
        fields: Sequence[str] = (),
    ) -> int:
        """How many of these values, from the first on, fit one request for `one_of(field, …)` and `and_`.

        For `list` and `pages` alike. 1,000 at most: an answer holds no more rows. Sends nothing.
        """

        def asking(some: Sequence[Value]) -> Request:
            found = one_of(field, some)
            where = found if and_ is None else all_of(and_, found)
            # As a later page has it: with a last key, which takes at most so many digits.
            beyond = all_of(where, gt(self.key, 10**18))
            query = _query(beyond, (*fields, self.key), (self.key,), MOST_PER_PAGE, 0)
            return Request(method="GET", path=self._path, query=tuple(query))

        return how_many_fit(several(values, "values"), asking, self._url_bytes)

    def _advanced(self, last: Value | None, rows: Rows) -> Value:
        """The key of the last row; the next page begins behind it."""
        key = rows[-1].get(self.key)
        if not isinstance(key, int | str) or key == last:
            raise self._garbled(f"a page after {self.key} {last!r:.60} ends with {key!r:.60}")
        return key

    def _shaped(self, answer: Any, shape: type[Shape], method: str = "GET") -> Shape:  # noqa: ANN401  (JSON)
        try:
            # Not strict: some databases count in texts.
            return msgspec.convert(answer, shape, strict=False)
        except msgspec.ValidationError as error:
            raise self._garbled(f"its answer has another shape: {error}", method) from error

    def _garbled(self, text: str, method: str = "GET") -> UpstreamGarbledError:
        return UpstreamGarbledError(text, api=self._upstream.name, method=method, endpoint=self._path)


def is_gone(error: UpstreamRefusedError) -> bool:
    """A record that is missing. A missing table is a 404 too."""
    return error.status == HTTPStatus.NOT_FOUND and "RECORD_NOT_FOUND" in str(error)


def _query(
    where: Where | None, fields: Sequence[str], sort: Sequence[str], limit: int, offset: int
) -> list[tuple[str, str]]:
    if offset < 0:
        raise BadInputError(f"an offset of {offset}: 0 or more is needed")
    given = {
        "where": text_of(where) if where is not None else "",
        "fields": names(fields),
        "sort": names(sort),
        "limit": page_size(limit),
        "offset": str(offset) if offset else "",
    }
    return [(name, value) for name, value in given.items() if value]
