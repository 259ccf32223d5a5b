"""What deltas cannot see: searches for new subscribers and doubtful records, and periodic full scans."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, UpstreamRefusedError
from tidegate.polling.fetch import FetchFailure
from tidegate.polling.source import ChangeSource, SourceRow
from tidegate.polling.subscriptions import News, Subscription
from tidegate.polling.watermark import Watermark

RecordVersions = dict[str, dict[str, float | None]]
"""The keys whose records were there: for the id of each, the time of its last change, if it has one."""


class PolledSubscribers(msgspec.Struct, frozen=True):
    """Who is there now."""

    waiting: Mapping[str, Subscription]
    watched: Mapping[str, Subscription]

    def __contains__(self, key: str) -> bool:
        return key in self.waiting or key in self.watched

    def __iter__(self) -> Iterator[str]:
        return chain(self.waiting, self.watched)


class TableScan:
    """One pass over the table. Remembers only those who were there at its first page, or came since."""

    def __init__(self, began: float) -> None:
        self.began = began  # monotonic
        self.after: str | None = None  # where the next page begins
        self.known: RecordVersions = {}
        self.late: list[
            tuple[float, float]
        ] = []  # of those no delta could see: the time, when it was heard of
        self._expected: frozenset[str] | None = None
        self._unmet: set[str] = set()

    @property
    def has_begun(self) -> bool:
        return self._expected is not None

    def note(self, rows: Iterable[SourceRow], people: PolledSubscribers) -> None:
        if self._expected is None:
            self._expected = frozenset(people)
        for row in rows:
            if row.key in self._expected or row.key in people:
                note_version(self.known, row)
                if not row.met:
                    self._unmet.add(row.key)

    def doubts(self, people: PolledSubscribers) -> list[str]:
        """After the last page: whose record was not there, and whose did not stay true."""
        absent = sorted(key for key in self._expected or () if key in people and key not in self.known)
        return absent + sorted(key for key in self._unmet if key in people.watched)


def note_version(known: RecordVersions, row: SourceRow) -> None:
    known.setdefault(row.key, {})[row.id] = row.changed


def news_of_met(rows: Iterable[SourceRow], waiting: Collection[str]) -> list[News]:
    """For whom it came true; once for each, though a key may have several records."""
    found = {row.key: row for row in rows if row.met and row.key in waiting}
    return [News(key, row.value) for key, row in found.items()]


def resolve_doubts(
    keys: Iterable[str], rows: Iterable[SourceRow], people: PolledSubscribers, expected: Collection[str]
) -> list[News]:
    """All records of these keys, read just now. `expected`: the keys whose record must be there."""
    found: dict[str, list[SourceRow]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    news = (_resolve_doubt(key, found.get(key, []), people, expected) for key in keys)
    return [each for each in news if each is not None]


def _resolve_doubt(
    key: str, rows: Sequence[SourceRow], people: PolledSubscribers, expected: Collection[str]
) -> News | None:
    met = next((row for row in rows if row.met), None)
    if met is not None:
        return News(key, met.value) if key in people.waiting else None
    if rows:
        return News(key, rows[0].value, "reversed") if key in people.watched else None
    is_gone = key in people.watched or (key in people.waiting and key in expected)
    return News(key, kind="gone") if is_gone else None


log = logging.getLogger("tidegate.polling")

MOST_SEARCHED: Final = 1_000  # newcomers: for more than that at once a scan is cheaper than a search


class CatchUpTotals(msgspec.Struct):
    """What was asked beside the deltas. `late`: came true, with a time that was too old for a delta."""

    scans: int = 0  # to their end
    scan_requests: int = 0
    searches: int = 0  # requests for the records of single keys
    late: int = 0


class CatchUp:
    """Everyone is searched for when he comes, and scanned for every so many seconds."""

    def __init__(
        self,
        source: ChangeSource,
        clock: Clock,
        mark: Watermark,
        people: PolledSubscribers,
        *,
        every: float,
        appear_within: float,
        looks: CatchUpTotals,
    ) -> None:
        self._source = source
        self._clock = clock
        self._mark = mark
        self._people = people
        self._every = every
        self._appear_within = appear_within
        self._looks = looks
        self._new: dict[str, None] = {}
        self._doubts: dict[str, None] = {}
        self._known: RecordVersions = {}
        self._scan: TableScan | None = None
        self._scan_at = clock.monotonic()
        self._has_searched = False
        self._at_once = MOST_SEARCHED  # keys in a search

    @property
    def has_more(self) -> bool:
        """Whether there is something to look at before it is time for the next scan."""
        return bool(self._scan or self._new or self._doubts)

    def came(self, keys: Iterable[str]) -> None:
        """It may have come true before they came, longer ago than any delta reaches."""
        self._new.update(dict.fromkeys(keys))

    def rest(self) -> None:
        """Nobody is there: what was begun for others is given up."""
        self._scan = None
        self._known.clear()
        self._new.clear()
        self._doubts.clear()

    async def step(self, since: float | None) -> tuple[list[News], int]:
        """What one look has shown, and the requests it took: none if there is nothing to look at.

        `since` is how far back the deltas reach; None: there are none yet, and the scan teaches from when on.
        """
        if self._scan is None and self._is_due(since):
            self._scan = TableScan(self._clock.monotonic())
        # By turns, so that neither waits for the end of the other.
        self._has_searched = not (self._scan and (self._has_searched or len(self._new) > MOST_SEARCHED))
        if self._has_searched and (keys := self._next_keys()):
            return await self._try_search(keys)
        return await self._turn_page(self._scan, since) if self._scan else ([], 0)

    def _is_due(self, since: float | None) -> bool:
        return since is None or len(self._new) > MOST_SEARCHED or self._clock.monotonic() >= self._scan_at

    def _next_keys(self) -> list[str]:
        for queue in (self._new, self._doubts):
            for key in [key for key in queue if key not in self._people]:
                del queue[key]
        return [*self._new, *self._doubts][: self._at_once]

    async def _try_search(self, keys: Sequence[str]) -> tuple[list[News], int]:
        """One key that cannot be asked for spoils it for all: halves find out which, and it is left out."""
        try:
            found = await self._search(keys[: max(1, self._source.most(keys))])
        except (BadInputError, UpstreamRefusedError) as error:
            if not FetchFailure(error).is_of_the_keys:
                raise
            if len(keys) == 1:
                log.warning("%r cannot be searched for, only scans look for it: %s", keys[0], error)
                self._forget(keys)
            self._at_once = len(keys) // 2 or MOST_SEARCHED
            return [], 1
        self._at_once = min(MOST_SEARCHED, 2 * self._at_once)
        return found

    async def _search(self, keys: Sequence[str]) -> tuple[list[News], int]:
        page = await self._source.find(keys)
        self._looks.searches += page.requests
        self._forget(keys)
        expected = [key for key in keys if self._must_be_there(key)]
        for row in page.rows:
            note_version(self._known, row)
        return resolve_doubts(keys, page.rows, self._people, expected), page.requests

    def _forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._new.pop(key, None)
            self._doubts.pop(key, None)

    def _must_be_there(self, key: str) -> bool:
        """A record may appear after somebody began to wait for it. One that was there before is gone."""
        waiting = self._people.waiting.get(key)
        if key in self._known or waiting is None or waiting.since <= 0:
            return key in self._known
        return self._clock.now() - waiting.since > self._appear_within

    async def _turn_page(self, scan: TableScan, since: float | None) -> tuple[list[News], int]:
        page = await self._source.scan(scan.after)
        heard = self._clock.monotonic()
        self._looks.scan_requests += page.requests
        if since is None:  # later, times may be of a clock that was set since
            for row in page.rows:
                self._mark.saw(row.changed, heard)
        if not scan.has_begun and len(self._new) > MOST_SEARCHED:  # it finds them
            self._new.clear()
        scan.note(page.rows, self._people)
        scan.late += [
            (row.changed, heard) for row in page.rows if row.changed is not None and self._is_late(row, since)
        ]
        scan.after = page.after
        if page.after is None:
            self._end(scan, since)
        return news_of_met(page.rows, self._people.waiting), page.requests

    def _is_late(self, row: SourceRow, since: float | None) -> bool:
        """Whether it was written after the last scan with a time that was over by then for the deltas."""
        before, changed = self._known.get(row.key, {}).get(row.id), row.changed
        if since is None or before is None or changed is None or not row.met:
            return False
        return before != changed < since and row.key in self._people.waiting

    def _end(self, scan: TableScan, since: float | None) -> None:
        self._scan = None
        self._scan_at = scan.began + self._every
        self._looks.scans += 1
        self._known = {key: at for key, at in self._known.items() if key in self._people} | scan.known
        self._doubts.update(dict.fromkeys(scan.doubts(self._people)))
        if since is None:
            self._mark.passed(scan.began)
        elif scan.late:
            self._set_back(scan)

    def _set_back(self, scan: TableScan) -> None:
        changed, heard = max(scan.late, key=lambda late: late[0] - late[1])
        self._looks.late += len(scan.late)
        self._mark.set_back(changed, heard, scan.began)
        log.warning(
            "the source's clock was set back, or it commits later than the overlap: deltas reach back now"
        )
