"""Beyond the deltas: those who have just come, those in doubt, and now and then a scan of everything.

One step is one look at the source, so that the next cycle is never far.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, UpstreamRefusedError
from tidegate.polling.fetching import Failure
from tidegate.polling.scanning import Known, People, Scan, met_by, note, settle
from tidegate.polling.source import Row, Source
from tidegate.polling.subscriptions import News
from tidegate.polling.watermark import Watermark

log = logging.getLogger("tidegate.polling")

MANY: Final = 1_000  # newcomers: for more than that at once a scan is cheaper than a search


class Looks(msgspec.Struct):
    """What was asked beside the deltas. `late`: came true, with a time that was too old for a delta."""

    scans: int = 0  # to their end
    scan_requests: int = 0
    searches: int = 0  # requests for the records of single keys
    late: int = 0


class Further:
    """Everyone is searched for when he comes, and scanned for every so many seconds."""

    def __init__(
        self,
        source: Source,
        clock: Clock,
        mark: Watermark,
        people: People,
        *,
        every: float,
        appear_within: float,
        looks: Looks,
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
        self._known: Known = {}
        self._scan: Scan | None = None
        self._scan_at = clock.monotonic()
        self._has_searched = False
        self._at_once = MANY  # keys in a search

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
            self._scan = Scan(self._clock.monotonic())
        # By turns, so that neither waits for the end of the other.
        self._has_searched = not (self._scan and (self._has_searched or len(self._new) > MANY))
        if self._has_searched and (keys := self._next_keys()):
            return await self._try_search(keys)
        return await self._turn_page(self._scan, since) if self._scan else ([], 0)

    def _is_due(self, since: float | None) -> bool:
        return since is None or len(self._new) > MANY or self._clock.monotonic() >= self._scan_at

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
            if not Failure(error).is_of_the_keys:
                raise
            if len(keys) == 1:
                log.warning("%r cannot be searched for, only scans look for it: %s", keys[0], error)
                self._forget(keys)
            self._at_once = len(keys) // 2 or MANY
            return [], 1
        self._at_once = min(MANY, 2 * self._at_once)
        return found

    async def _search(self, keys: Sequence[str]) -> tuple[list[News], int]:
        page = await self._source.find(keys)
        self._looks.searches += page.requests
        self._forget(keys)
        expected = [key for key in keys if self._must_be_there(key)]
        for row in page.rows:
            note(self._known, row)
        return settle(keys, page.rows, self._people, expected), page.requests

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

    async def _turn_page(self, scan: Scan, since: float | None) -> tuple[list[News], int]:
        page = await self._source.scan(scan.after)
        heard = self._clock.monotonic()
        self._looks.scan_requests += page.requests
        if since is None:  # later, times may be of a clock that was set since
            for row in page.rows:
                self._mark.saw(row.changed, heard)
        if not scan.has_begun and len(self._new) > MANY:  # it finds them
            self._new.clear()
        scan.note(page.rows, self._people)
        scan.late += [
            (row.changed, heard) for row in page.rows if row.changed is not None and self._is_late(row, since)
        ]
        scan.after = page.after
        if page.after is None:
            self._end(scan, since)
        return met_by(page.rows, self._people.waiting), page.requests

    def _is_late(self, row: Row, since: float | None) -> bool:
        """Whether it was written after the last scan with a time that was over by then for the deltas."""
        before, changed = self._known.get(row.key, {}).get(row.id), row.changed
        if since is None or before is None or changed is None or not row.met:
            return False
        return before != changed < since and row.key in self._people.waiting

    def _end(self, scan: Scan, since: float | None) -> None:
        self._scan = None
        self._scan_at = scan.began + self._every
        self._looks.scans += 1
        self._known = {key: at for key, at in self._known.items() if key in self._people} | scan.known
        self._doubts.update(dict.fromkeys(scan.doubts(self._people)))
        if since is None:
            self._mark.passed(scan.began)
        elif scan.late:
            self._set_back(scan)

    def _set_back(self, scan: Scan) -> None:
        changed, heard = max(scan.late, key=lambda late: late[0] - late[1])
        self._looks.late += len(scan.late)
        self._mark.set_back(changed, heard, scan.began)
        log.warning(
            "the source's clock was set back, or it commits later than the overlap: deltas reach back now"
        )
