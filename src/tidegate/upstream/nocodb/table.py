"""The records of one table, to read and to write."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from tidegate.errors import BadInputError, UpstreamAwayError, UpstreamRefusedError
from tidegate.upstream.nocodb.border import RecordId, encoded, record_id, several
from tidegate.upstream.nocodb.bulk import in_hundreds
from tidegate.upstream.nocodb.reading import Records, is_gone
from tidegate.upstream.nocodb.shapes import Row
from tidegate.upstream.nocodb.where import one_of

Given = Mapping[str, Any]


class Table(Records):
    """Writes go in requests of a hundred rows, each of which is done or not done as a whole.

    A failure after the first hundred is a PartlyDoneError, which says what was done. Fields that the table
    does not have are ignored by NocoDB, without a word.
    """

    async def create(self, rows: Sequence[Given], *, background: bool = False) -> list[Any]:
        """The keys of the new rows, in their order. Never repeated where it may have happened."""
        return await in_hundreds(
            encoded(rows), lambda some: self._create(some, background=background), self._away("POST")
        )

    async def update(self, rows: Sequence[Given], *, background: bool = False) -> None:
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
