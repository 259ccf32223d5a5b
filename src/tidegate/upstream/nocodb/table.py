"""The records of one NocoDB table, to read and to write."""

from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from tidegate.errors import (
    BadInputError,
    PartlyDoneError,
    TidegateError,
    UpstreamAwayError,
    UpstreamError,
    UpstreamGarbledError,
    UpstreamRefusedError,
)
from tidegate.upstream.client import Upstream
from tidegate.upstream.nocodb.values import (
    MOST_PER_PAGE,
    RecordId,
    encoded,
    names,
    page_size,
    record_id,
    several,
    table_id,
)
from tidegate.upstream.nocodb.where import Value, Where, all_of, filter_text, gt, one_of
from tidegate.upstream.transport import UpstreamRequest

ROWS_PER_WRITE: Final = 100  # NocoDB takes no more in one request
# NocoDB takes 16,383 bytes, headers included; nginx and Apache, if one is in front of it, about 8,190.
URL_BYTES: Final = 8_000

Item = TypeVar("Item")
Shape = TypeVar("Shape")
Row = dict[str, Any]
RowToWrite = Mapping[str, Any]
Rows = list[Row]  # in `Table`, `list` is a method
Keys = list[Any]


class Page(msgspec.Struct, frozen=True):
    """`total` counts all rows that match. A page may be short before the end: only `is_last` marks it."""

    rows: Rows
    total: int
    is_last: bool


class PageInfo(msgspec.Struct, rename="camel"):
    total_rows: int
    is_last_page: bool


class Listing(msgspec.Struct):
    list: list[Row]
    page_info: PageInfo = msgspec.field(name="pageInfo")


class Counted(msgspec.Struct):
    count: int


class Table:
    """Each method is one request, unless it says otherwise.

    Raises Upstream…Error, and BadInputError before anything is sent. `background` lets all other calls go
    first; with `fresh_for` a cached answer of at most so many seconds is used.

    Rows are written in requests of a hundred, each of which is done as a whole or not at all. A failure after
    the first hundred is a PartlyDoneError, which says what was done. NocoDB silently ignores fields that the
    table does not have.
    """

    def __init__(self, upstream: Upstream, table: str, *, key: str, url_bytes: int) -> None:
        self.id = table_id(table)
        self.key = key
        self._upstream = upstream
        self._url_bytes = url_bytes
        self._path = f"api/v2/tables/{self.id}/records"

    @property
    def upstream(self) -> Upstream:
        """The client that it uses, for its rate and totals."""
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
        """Return up to 1,000 rows, `sort`ed by ("-CreatedAt", "Id"); all fields unless some are named.

        With an offset, rows are skipped and repeated while others write: for several pages use `pages`.
        """
        query = _query(where, fields, sort, limit, offset)
        try:
            answer = await self._upstream.read(
                self._path, query=query, fresh_for=fresh_for, background=background
            )
        except UpstreamRefusedError as error:
            if not offset or "OFFSET" not in str(error):
                raise
            # Past the end, which NocoDB reports as an error.
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
        """Yield all rows in the order of the key, one request for each page, at least one.

        A page begins after the last key, so no row is skipped or repeated while others write; a row added
        meanwhile is seen if its key is still ahead. The key is always among the fields.
        """
        wanted = (*fields, self.key) if fields and self.key not in fields else fields
        beyond, last = where, None
        while True:
            page = await self.list(beyond, fields=wanted, sort=(self.key,), limit=size, background=background)
            if page.rows:
                yield page.rows
            if page.is_last or not page.rows:
                return
            key = page.rows[-1].get(self.key)
            if not isinstance(key, int | str) or key == last:
                raise self._garbled(f"a page after {self.key} {last!r:.60} ends with {key!r:.60}")
            last = key
            beyond = gt(self.key, last) if where is None else all_of(where, gt(self.key, last))

    async def count(
        self, where: Where | None = None, *, background: bool = False, fresh_for: float = 0.0
    ) -> int:
        query = [("where", filter_text(where))] if where is not None else []
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
        """Return the record; None if there is none."""
        path = f"{self._path}/{record_id(record)}"
        query = [("fields", names(fields))] if fields else []
        try:
            answer = await self._upstream.read(
                path, query=query, fresh_for=fresh_for, background=background, record=str(record)
            )
        except UpstreamRefusedError as error:
            if _is_missing_record(error):
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
        """Return how many of the first values fit one request for `one_of(field, …)` and `and_`.

        At most 1,000, as an answer holds no more rows. Sends nothing. Raises BadInputError if not even one
        value fits.
        """
        values = several(values, "values")

        def url_bytes(count: int) -> int:
            found = one_of(field, values[:count])
            where = found if and_ is None else all_of(and_, found)
            # As for a later page: with the key of the last row, which has at most so many digits.
            beyond = all_of(where, gt(self.key, 10**18))
            query = _query(beyond, (*fields, self.key), (self.key,), MOST_PER_PAGE, 0)
            return len(UpstreamRequest(method="GET", path=self._path, query=tuple(query)).target)

        # A value takes at least two bytes, with its comma.
        most = min(len(values), MOST_PER_PAGE, self._url_bytes // 2)
        fit = bisect_right(range(1, most + 1), self._url_bytes, key=url_bytes)
        if values and not fit:
            raise BadInputError(
                f"the URL for one value has {url_bytes(1)} bytes, of {self._url_bytes} allowed: use a"
                " shorter condition or fewer fields"
            )
        return fit

    async def create(self, rows: Sequence[RowToWrite], *, background: bool = False) -> Keys:
        """Return the keys of the new rows, in order. Never repeated if it may have happened."""

        async def create(bodies: Sequence[msgspec.Raw]) -> Keys:
            answer = await self._upstream.request(
                "POST", self._path, body=bodies, background=background, record=_row_count(bodies)
            )
            try:
                made = self._shaped(msgspec.json.decode(answer.body), Rows, "POST")
                return [row[self.key] for row in made]
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
                text = f"{_row_count(bodies)} were created, but their keys ({self.key}) are not in its answer"
                raise self._garbled(text, "POST") from error

        return await self._in_hundreds(encoded(rows), create, "POST")

    async def update(self, rows: Sequence[RowToWrite], *, background: bool = False) -> None:
        """Set fields of the rows named by their keys. If one is missing, its hundred is refused."""
        bodies = encoded(rows)
        keys = [row.get(self.key) for row in rows]
        self._check_keys(keys)

        async def update(some: Sequence[tuple[Any, msgspec.Raw]]) -> Keys:
            await self._upstream.request(
                "PATCH",
                self._path,
                body=[body for _, body in some],
                background=background,
                idempotent=True,  # the same values again change nothing
                record=_row_count(some),
            )
            return [key for key, _ in some]

        await self._in_hundreds([*zip(keys, bodies, strict=True)], update, "PATCH")

    async def delete(self, records: Sequence[RecordId], *, background: bool = False) -> None:
        """Delete the records. A record that is missing already is no error."""
        keys = several(records, "ids of records")
        self._check_keys(keys)

        async def delete(some: Sequence[RecordId]) -> Sequence[RecordId]:
            await self._delete_present(some, background=background)
            return some

        await self._in_hundreds(keys, delete, "DELETE")

    async def _delete_present(self, records: Sequence[RecordId], *, background: bool) -> None:
        """NocoDB refuses a whole request if one record is missing, if only because of a lost answer."""
        present = records
        while present:
            body = [{self.key: record} for record in present]
            try:
                await self._upstream.request(
                    "DELETE", self._path, body=body, background=background, record=_row_count(present)
                )
            except UpstreamRefusedError as error:
                if not _is_missing_record(error):
                    raise
                before, present = present, await self._present(present, background=background)
                if len(present) == len(before):
                    raise
            else:
                return

    async def _present(self, records: Sequence[RecordId], *, background: bool) -> Sequence[RecordId]:
        where, limit = one_of(self.key, records), len(records)
        page = await self.list(where, fields=(self.key,), limit=limit, background=background)
        found = {str(row.get(self.key)) for row in page.rows}
        return [record for record in records if str(record) in found]

    async def _in_hundreds(
        self,
        items: Sequence[Item],
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Any]]],
        method: str,
    ) -> Keys:
        """Return what all writes returned. A failure after the first one is a PartlyDoneError."""
        done: Keys = []
        for start in range(0, len(items), ROWS_PER_WRITE):
            try:
                done += await write(items[start : start + ROWS_PER_WRITE])
            except TidegateError as error:
                if start == 0:
                    raise
                # Other errors come before the API was asked, for instance because the client was closed.
                cause = (
                    error
                    if isinstance(error, UpstreamError)
                    else UpstreamAwayError(
                        str(error), api=self._upstream.name, method=method, endpoint=self._path
                    )
                )
                raise PartlyDoneError(cause, ids=done, of=len(items)) from error
        return done

    def _check_keys(self, keys: Sequence[Any]) -> None:
        """Raise for an invalid or repeated key: NocoDB would refuse its hundred after others were done."""
        twice = [key for key, count in Counter(map(record_id, keys)).items() if count > 1]
        if twice:
            raise BadInputError(f"{self.key} {twice[0]!r:.60} is given twice: name each record once")

    def _shaped(self, answer: Any, shape: type[Shape], method: str = "GET") -> Shape:  # noqa: ANN401  (JSON)
        try:
            # Not strict: some databases return counts as texts.
            return msgspec.convert(answer, shape, strict=False)
        except msgspec.ValidationError as error:
            raise self._garbled(f"its answer has another shape: {error}", method) from error

    def _garbled(self, text: str, method: str = "GET") -> UpstreamGarbledError:
        return UpstreamGarbledError(text, api=self._upstream.name, method=method, endpoint=self._path)


def _is_missing_record(error: UpstreamRefusedError) -> bool:
    """True for a missing record, not for a missing table, which is a 404 too."""
    return error.status == HTTPStatus.NOT_FOUND and "RECORD_NOT_FOUND" in str(error)


def _query(
    where: Where | None, fields: Sequence[str], sort: Sequence[str], limit: int, offset: int
) -> list[tuple[str, str]]:
    if offset < 0:
        raise BadInputError(f"an offset of {offset}: give 0 or more")
    given = {
        "where": filter_text(where) if where is not None else "",
        "fields": names(fields),
        "sort": names(sort),
        "limit": page_size(limit),
        "offset": str(offset) if offset else "",
    }
    return [(name, value) for name, value in given.items() if value]


def _row_count(rows: Sequence[object]) -> str:
    return f"{len(rows)} row" if len(rows) == 1 else f"{len(rows)} rows"
