"""Changes that deltas cannot show: searches for new subscribers and doubtful records, full scans.

Deltas do not show reversals, deletions and writes without a new time. One step is one look at the source, so
that the next delta is never far. What one page of a scan shows may be outdated when the last one is read, and
a key may have several records. So a scan itself only reports conditions that are met; whatever speaks against
a subscriber is a doubt, resolved by reading the records of that key alone.

A search that asks for every subscriber in one request shows all that a scan would, however long the table is.
"""

import logging
import math
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

log = logging.getLogger("tidegate.polling")

MOST_SEARCHED: Final = 1_000  # new keys: for more than that at once a scan is cheaper than a search

LateRow = tuple[float, float]
"""A row that no delta could see: its time, and the monotonic time when it was heard of."""

RecordVersions = dict[str, dict[str, float | None]]
"""By key: the ids of its records with the time of their last change, if they have one."""


class PolledSubscribers(msgspec.Struct, frozen=True):
    """A live view of the subscribers that are polled for."""

    waiting: Mapping[str, Subscription]
    watched: Mapping[str, Subscription]

    def __contains__(self, key: str) -> bool:
        return key in self.waiting or key in self.watched

    def __iter__(self) -> Iterator[str]:
        return chain(self.waiting, self.watched)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.watched)


class CatchUpTotals(msgspec.Struct):
    """Requests beside the deltas. `late`: conditions met with a time that was too old for a delta."""

    scans: int = 0  # completed
    scan_requests: int = 0
    searches: int = 0  # requests for the records of single keys
    late: int = 0


class CatchUp:
    """Searches for each subscriber when it is new, and looks at all of them every so many seconds.

    `all_read_at`: monotonic time since which the records of every subscriber were read.
    """

    def __init__(
        self,
        source: ChangeSource,
        clock: Clock,
        mark: Watermark,
        subscribers: PolledSubscribers,
        *,
        every: float,
        appear_within: float,
        totals: CatchUpTotals,
    ) -> None:
        self._source = source
        self._clock = clock
        self._mark = mark
        self._subscribers = subscribers
        self._every = every
        self._appear_within = appear_within
        self._totals = totals
        self._new: dict[str, None] = {}
        self._doubts: dict[str, None] = {}
        self._known: RecordVersions = {}
        self._scan: TableScan | None = None
        self._look_at = clock.monotonic()
        self._has_searched = True
        self._has_scanned = False
        self._search_size = MOST_SEARCHED  # keys
        self._unsearchable: set[str] = set()
        self.all_read_at = -math.inf

    @property
    def has_more(self) -> bool:
        """True if there is something to do before the next look is due."""
        return bool(self._scan or self._new or self._doubts)

    def add(self, keys: Iterable[str]) -> None:
        """Search for new keys: their condition may have been met longer ago than any delta reaches."""
        self._new.update(dict.fromkeys(keys))

    def reset(self) -> None:
        """There are no subscribers: give up what was begun."""
        self._scan = None
        self._known.clear()
        self._new.clear()
        self._doubts.clear()
        self._unsearchable.clear()

    async def step(self, since: float | None, *, is_delta_due: bool) -> tuple[list[News], int]:
        """Search or scan once; return the news and the number of requests, 0 if there is nothing to do.

        `since` is how far back the deltas reach; None: there are none before a row with a time was seen, so
        all subscribers are looked at whenever a delta would be due.
        """
        if self._scan is None and (self._is_look_due() or (since is None and is_delta_due)):
            if (since is not None or self._has_scanned) and self._can_search_all():
                self._doubts.update(dict.fromkeys(self._subscribers))
            else:
                self._scan = TableScan(self._clock.monotonic())
        # In turns, so that neither waits for the end of the other.
        self._has_searched = not (self._scan and (self._has_searched or len(self._new) > MOST_SEARCHED))
        if self._has_searched and (keys := self._next_keys()):
            return await self._try_search(keys, since)
        return await self._scan_page(self._scan, since) if self._scan else ([], 0)

    def _is_look_due(self) -> bool:
        return len(self._new) > MOST_SEARCHED or self._clock.monotonic() >= self._look_at

    def _can_search_all(self) -> bool:
        """True if one request can ask for every subscriber, as far as is known."""
        keys = list(self._subscribers)
        if len(keys) > self._search_size or not self._unsearchable.isdisjoint(keys):
            return False
        try:
            return self._source.most(keys) >= len(keys)
        except BadInputError:
            return False

    def _next_keys(self) -> list[str]:
        for queue in (self._new, self._doubts):
            for key in [key for key in queue if key not in self._subscribers]:
                del queue[key]
        return list(self._new | self._doubts)[: self._search_size]

    async def _try_search(self, keys: Sequence[str], since: float | None) -> tuple[list[News], int]:
        """Search; if one key makes the request fail, halving finds it, and it is left out."""
        try:
            found = await self._search(keys[: max(1, self._source.most(keys))], since)
        except (BadInputError, UpstreamRefusedError) as error:
            if not FetchFailure(error).is_of_the_keys:
                raise
            if len(keys) == 1:
                log.warning("%r cannot be searched for, only scans look for it: %s", keys[0], error)
                self._remove(keys)
                self._unsearchable.update(keys)
            self._search_size = len(keys) // 2 or MOST_SEARCHED
            return [], 1
        self._search_size = min(MOST_SEARCHED, 2 * self._search_size)
        return found

    async def _search(self, keys: Sequence[str], since: float | None) -> tuple[list[News], int]:
        began = self._clock.monotonic()
        # Not beside a scan: the first one finds a later watermark, so that deltas read less.
        is_look = self._scan is None and len(keys) == len(self._subscribers)
        page = await self._source.find(keys)
        self._totals.searches += page.requests
        self._teach(page.rows, since)
        late = self._late_rows(page.rows, since)
        self._remove(keys)
        expected = [key for key in keys if self._must_exist(key)]
        for row in page.rows:
            note_version(self._known, row)
        if is_look:
            self._end_look(began, late)
        return resolve_doubts(keys, page.rows, self._subscribers, expected), page.requests

    def _remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._new.pop(key, None)
            self._doubts.pop(key, None)

    def _must_exist(self, key: str) -> bool:
        """False if the record may still appear: it was never seen, and the subscription is young."""
        waiting = self._subscribers.waiting.get(key)
        if key in self._known or waiting is None or waiting.since <= 0:
            return key in self._known
        return self._clock.now() - waiting.since > self._appear_within

    async def _scan_page(self, scan: "TableScan", since: float | None) -> tuple[list[News], int]:
        page = await self._source.scan(scan.after)
        self._totals.scan_requests += page.requests
        self._teach(page.rows, since)
        scan.late += self._late_rows(page.rows, since)
        if not scan.has_begun and (page.after is None or len(self._new) > MOST_SEARCHED):
            self._new.clear()  # the scan finds them
        scan.note(page.rows, self._subscribers)
        scan.after = page.after
        if page.after is None:
            self._end_scan(scan)
        return news_of_met(page.rows, self._subscribers.waiting), page.requests

    def _teach(self, rows: Iterable[SourceRow], since: float | None) -> None:
        if since is None:  # later, times may be by a clock that was set since
            heard = self._clock.monotonic()
            for row in rows:
                self._mark.saw(row.changed, heard)

    def _late_rows(self, rows: Iterable[SourceRow], since: float | None) -> list[LateRow]:
        """Return the late ones of rows that were read just now."""
        heard = self._clock.monotonic()
        return [(row.changed, heard) for row in rows if row.changed is not None and self._is_late(row, since)]

    def _is_late(self, row: SourceRow, since: float | None) -> bool:
        """True if it was written after it was last read, with a time that the deltas had passed by then."""
        before, changed = self._known.get(row.key, {}).get(row.id), row.changed
        if since is None or before is None or changed is None or not row.met or row.key in self._new:
            return False
        return before != changed < since and row.key in self._subscribers.waiting

    def _end_scan(self, scan: "TableScan") -> None:
        self._scan, self._has_scanned = None, True
        self._totals.scans += 1
        self._known |= scan.known
        self._doubts.update(dict.fromkeys(scan.doubts(self._subscribers)))
        self._end_look(scan.began, scan.late)

    def _end_look(self, began: float, late: Sequence[LateRow]) -> None:
        """The records of every subscriber were read since `began`."""
        self.all_read_at = began
        self._look_at = began + self._every
        self._known = {key: at for key, at in self._known.items() if key in self._subscribers}
        self._unsearchable.intersection_update(self._subscribers)
        if not late:
            self._mark.passed(began)
        else:
            changed, heard = max(late, key=lambda row: row[0] - row[1])
            self._totals.late += len(late)
            self._mark.set_back(changed, heard, began)
            log.warning(
                "the source's clock was set back, or it commits later than the overlap: deltas reach back now"
            )


class TableScan:
    """One pass over the table. Remembers only keys that were subscribed at its first page, or since."""

    def __init__(self, began: float) -> None:
        self.began = began  # monotonic
        self.after: str | None = None  # where the next page begins
        self.known: RecordVersions = {}
        self.late: list[LateRow] = []
        self._expected: frozenset[str] | None = None
        self._unmet: set[str] = set()

    @property
    def has_begun(self) -> bool:
        return self._expected is not None

    def note(self, rows: Iterable[SourceRow], subscribers: PolledSubscribers) -> None:
        if self._expected is None:
            self._expected = frozenset(subscribers)
        for row in rows:
            if row.key in self._expected or row.key in subscribers:
                note_version(self.known, row)
                if not row.met:
                    self._unmet.add(row.key)

    def doubts(self, subscribers: PolledSubscribers) -> list[str]:
        """Return, after the last page, keys without a record and watched keys with an unmet record."""
        absent = sorted(key for key in self._expected or () if key in subscribers and key not in self.known)
        return absent + sorted(key for key in self._unmet if key in subscribers.watched)


def note_version(known: RecordVersions, row: SourceRow) -> None:
    known.setdefault(row.key, {})[row.id] = row.changed


def news_of_met(rows: Iterable[SourceRow], waiting: Collection[str]) -> list[News]:
    """Return one "met" for each waiting key, though a key may have several records."""
    found = {row.key: row for row in rows if row.met and row.key in waiting}
    return [News(key, row.value) for key, row in found.items()]


def resolve_doubts(
    keys: Iterable[str], rows: Iterable[SourceRow], subscribers: PolledSubscribers, expected: Collection[str]
) -> list[News]:
    """Return the news in all records of these keys, read just now. `expected`: keys that must have one."""
    found: dict[str, list[SourceRow]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    news = (_resolve_doubt(key, found.get(key, []), subscribers, expected) for key in keys)
    return [one for one in news if one is not None]


def _resolve_doubt(
    key: str, rows: Sequence[SourceRow], subscribers: PolledSubscribers, expected: Collection[str]
) -> News | None:
    met = next((row for row in rows if row.met), None)
    if met is not None:
        return News(key, met.value) if key in subscribers.waiting else None
    if rows:
        return News(key, rows[0].value, "reversed") if key in subscribers.watched else None
    is_gone = key in subscribers.watched or (key in subscribers.waiting and key in expected)
    return News(key, kind="gone") if is_gone else None
