"""The records of one NocoDB table, to read and to write."""

from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
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

Item = TypeVar("Item")
_BulkRecordId = int | str


async def in_hundreds(
    items: Sequence[Item],
    write: Callable[[Sequence[Item]], Awaitable[Sequence[Any]]],
    interrupted: Callable[[str], UpstreamAwayError],
) -> list[Any]:
    """What each `write` gave, one after the other. `interrupted` names what was done in an error."""
    given: list[Any] = []
    for start in range(0, len(items), ROWS_PER_WRITE):
        try:
            given += await write(items[start : start + ROWS_PER_WRITE])
        except TidegateError as error:
            if start == 0:
                raise
            cause = error if isinstance(error, UpstreamError) else interrupted(str(error))
            raise PartlyDoneError(cause, ids=given, of=len(items)) from error
    return given


Row = dict[str, Any]


class Page(msgspec.Struct, frozen=True):
    """`total`: all rows that match. There may be fewer rows than asked for: `is_last` tells the end."""

    rows: list[Row]
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


# NocoDB takes 16,383 bytes, headers included; nginx and Apache, if one is in front of it, about 8,190.
URL_BYTES: Final = 8_000


def how_many_fit(
    values: Sequence[Value], asking: Callable[[Sequence[Value]], UpstreamRequest], url_bytes: int
) -> int:
    """The largest n so that a request for the first n values fits, and so does its answer.

    Raises BadInputError if not even one does: the rest of the filter is too long.
    """

    def size(count: int) -> int:
        return len(asking(values[:count]).target)

    # A value takes a comma and a character at least: no use in looking further.
    most = min(len(values), MOST_PER_PAGE, url_bytes // 2)
    fit = bisect_right(range(1, most + 1), url_bytes, key=size)
    if values and not fit:
        raise BadInputError(
            f"an address of {size(1)} bytes for one value, {url_bytes} are possible: ask with a shorter "
            "condition or for fewer fields"
        )
    return fit


Shape = TypeVar("Shape")
Rows = list[Row]


class ReadableTable:
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

        def asking(some: Sequence[Value]) -> UpstreamRequest:
            found = one_of(field, some)
            where = found if and_ is None else all_of(and_, found)
            # As a later page has it: with a last key, which takes at most so many digits.
            beyond = all_of(where, gt(self.key, 10**18))
            query = _query(beyond, (*fields, self.key), (self.key,), MOST_PER_PAGE, 0)
            return UpstreamRequest(method="GET", path=self._path, query=tuple(query))

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
        "where": filter_text(where) if where is not None else "",
        "fields": names(fields),
        "sort": names(sort),
        "limit": page_size(limit),
        "offset": str(offset) if offset else "",
    }
    return [(name, value) for name, value in given.items() if value]


RowToWrite = Mapping[str, Any]


class Table(ReadableTable):
    """Writes go in requests of a hundred rows, each of which is done or not done as a whole.

    A failure after the first hundred is a PartlyDoneError, which says what was done. Fields that the table
    does not have are ignored by NocoDB, without a word.
    """

    async def create(self, rows: Sequence[RowToWrite], *, background: bool = False) -> list[Any]:
        """The keys of the new rows, in their order. Never repeated where it may have happened."""
        return await in_hundreds(
            encoded(rows), lambda some: self._create(some, background=background), self._away("POST")
        )

    async def update(self, rows: Sequence[RowToWrite], *, background: bool = False) -> None:
        """Set fields of the rows named by their keys. If one is missing, its hundred is refused."""
        bodies = encoded(rows)
        keys = [row.get(self.key) for row in rows]
        self._check_keys(keys)
        await in_hundreds(
            list(zip(keys, bodies, strict=True)),
            lambda some: self._update(some, background=background),
            self._away("PATCH"),
        )

    async def delete(self, records: Sequence[RecordId], *, background: bool = False) -> None:
        """Afterwards none of them is there. One that is gone already is no error."""
        named = several(records, "ids of records")
        self._check_keys(named)
        await in_hundreds(named, lambda some: self._delete(some, background=background), self._away("DELETE"))

    async def _create(self, rows: Sequence[msgspec.Raw], *, background: bool) -> list[Any]:
        answer = await self._upstream.request(
            "POST", self._path, body=rows, background=background, record=_how_many(rows)
        )
        try:
            made = self._shaped(msgspec.json.decode(answer.body), list[Row], "POST")
            return [row[self.key] for row in made]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
            text = f"{_how_many(rows)} were created, but their keys ({self.key}) are not in its answer"
            raise self._garbled(text, "POST") from error

    async def _update(self, rows: Sequence[tuple[Any, msgspec.Raw]], *, background: bool) -> Sequence[Any]:
        await self._upstream.request(
            "PATCH",
            self._path,
            body=[body for _, body in rows],
            background=background,
            idempotent=True,  # the same values again change nothing
            record=_how_many(rows),
        )
        return [key for key, _ in rows]

    async def _delete(self, records: Sequence[RecordId], *, background: bool) -> Sequence[RecordId]:
        """One that is missing, if only because a lost answer had deleted it, makes NocoDB refuse them all."""
        there = records
        while there:
            try:
                await self._delete_all(there, background=background)
            except UpstreamRefusedError as error:
                if not is_gone(error):
                    raise
                before, there = there, await self._still_there(there, background=background)
                if len(there) == len(before):
                    raise
            else:
                break
        return records

    async def _delete_all(self, records: Sequence[RecordId], *, background: bool) -> None:
        body = [{self.key: record} for record in records]
        await self._upstream.request(
            "DELETE", self._path, body=body, background=background, record=_how_many(records)
        )

    async def _still_there(self, records: Sequence[RecordId], *, background: bool) -> list[RecordId]:
        where, limit = one_of(self.key, records), len(records)
        page = await self.list(where, fields=(self.key,), limit=limit, background=background)
        found = {str(row.get(self.key)) for row in page.rows}
        return [record for record in records if str(record) in found]

    def _away(self, method: str) -> Callable[[str], UpstreamAwayError]:
        """What stopped it before the API was asked, such as that the client was closed."""
        return partial(UpstreamAwayError, api=self._upstream.name, method=method, endpoint=self._path)

    def _check_keys(self, keys: Sequence[Any]) -> None:
        """Each names one record, none twice: NocoDB would refuse the hundred, half-way through the rest."""
        twice = [key for key, count in Counter(map(record_id, keys)).items() if count > 1]
        if twice:
            raise BadInputError(f"{self.key} {twice[0]!r:.60} is given twice: name each record once")


def _how_many(rows: Sequence[object]) -> str:
    return f"{len(rows)} row" if len(rows) == 1 else f"{len(rows)} rows"
