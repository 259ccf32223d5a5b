"""Delta polling: one request per cycle for any number of subscribers, asking only what changed."""

import math
from collections.abc import Sequence
from typing import ClassVar, Final, Unpack

from tidegate.errors import BadInputError, UpstreamError
from tidegate.polling.following import Changes
from tidegate.polling.further import Further, Looks
from tidegate.polling.pace import Pace
from tidegate.polling.poller import Options, Poller
from tidegate.polling.scanning import People, met_by
from tidegate.polling.source import Page, Row, Source
from tidegate.polling.store.base import Then
from tidegate.polling.subscriptions import News, Subscription
from tidegate.polling.watching import Watches
from tidegate.polling.watermark import Watermark

__all__ = ["DeltaPoller", "Page", "Row", "Source"]

OVERLAP: Final = 30.0  # seconds that a commit may be late
FULL_SCAN: Final = 300.0  # seconds
SHARE: Final = 0.5  # of what the API allows
APPEAR_WITHIN: Final = 3_600.0  # seconds that a record may take to appear
KEEP_EVERY: Final = 5.0  # seconds, at least: between two writes of the watermark
IDLE: Final = 0.5  # seconds between two looks at whether somebody waits
ALONE: Final = 60.0  # seconds between two requests for one, if each were asked for alone
RESTORE_GROUP: Final = 1_000  # who is restored costs no request of his own
RESTORE_EVERY: Final = 0.0  # seconds


class DeltaPoller(Poller):
    """Tells within a cycle or two of what the source's own times show, and within `full_scan` of all else.

    `interval`: seconds between deltas; None: as short as `share` of the API's limit allows. `overlap`: how
    late, in seconds, a write may be committed after its time was taken. `watch`: for how many seconds one
    who was told is watched, and told "reversed" if it does not stay true (he then waits again) or "gone" if
    its record is deleted; counted anew after a restart; 0: not at all. `appear_within`: how long after the
    subscription a record may appear; who waits longer for one that is not there is told "gone".
    """

    title: ClassVar[str] = "Delta Polling Stats"

    def __init__(
        self,
        source: Source,
        *,
        interval: float | None = None,
        overlap: float = OVERLAP,
        full_scan: float = FULL_SCAN,
        watch: float = 0.0,
        share: float = SHARE,
        appear_within: float = APPEAR_WITHIN,
        **options: Unpack[Options],
    ) -> None:
        options.setdefault("restore_group", RESTORE_GROUP)
        options.setdefault("restore_every", RESTORE_EVERY)
        super().__init__(**options)
        self._source = _checked_source(source)
        self._tempo = Pace(share)
        self._interval = 0.0 if interval is None else _seconds("interval", interval, above=0)
        self._delta_at = 0.0  # monotonic
        self._read_at = self._clock.monotonic()
        self._overlap = _seconds("overlap", overlap)
        self._full_scan = _seconds("full_scan", full_scan, above=0)
        self._appear_within = _seconds("appear_within", appear_within)
        self._watch = _seconds("watch", watch)
        self._watches = Watches(self._watch)
        self._rest_until = 0.0  # for what goes beyond the deltas
        self._keep_at = 0.0
        self.looks = Looks()
        self._start_from(None)

    async def _begin(self) -> None:
        self._start_from(await self._subscriptions.mark())

    def _start_from(self, kept: str | None) -> None:
        self._kept = kept
        self._untaken: list[News] = []  # seen once, and perhaps never again by a delta
        self._mark = Watermark(_read_mark(kept))
        self._changes = Changes(self._source, self._clock, self._overlap, self._mark)
        self._further = Further(
            self._source,
            self._clock,
            self._mark,
            People(self.waiting, self.watched),
            every=self._full_scan,
            appear_within=self._appear_within,
            looks=self.looks,
        )

    def _admitted(self, subscriptions: Sequence[Subscription]) -> None:
        self._further.came(one.key for one in subscriptions)

    def _then(self, news: News) -> Then:
        return "watch" if news.kind == "met" and self._watch > 0 else super()._then(news)

    async def _cycle(self) -> float:
        if not (self.waiting or self.watched):
            return self._rest()
        began, waited, since = self._clock.monotonic(), self._source.waited, self._changes.since
        try:
            pages = await self._read_changes(since, began)
            # Later pages wait for the first: only what one request waits is the fault of others.
            waited = self._source.waited - waited if pages <= 1 else 0.0
            requests = pages + await self._look_further(since)
        except UpstreamError:
            self._tempo.failed()
            self._totals.requests += 1
            self._totals.failed_batches += 1
            raise
        self._totals.requests += requests
        await self._keep_mark()
        if over := self._watches.over(self.watched, began):
            await self._drop(over)
        turn_at = began + self._tempo.after(requests, waited, self._source.rate)
        next_at = turn_at if self._further.has_more else max(turn_at, self._delta_at)
        return max(0.0, next_at - self._clock.monotonic())

    def _rest(self) -> float:
        """Nobody is there to be told of what changes now, and who comes is searched for."""
        self._mark.passed(self._clock.monotonic())
        self._further.rest()
        return IDLE

    async def _read_changes(self, since: float | None, began: float) -> int:
        """The requests it took: none before the first scan is done, nor while only a scan goes on between
        two deltas.
        """
        if since is None or began < self._delta_at:
            return 0
        asked = len(self.waiting) + len(self.watched)
        pages = await self._changes.read(since, self._take)
        self._delta_at = began + self._interval
        self._totals.batches += pages
        alone = asked * min(began - self._read_at, ALONE) / ALONE
        self._read_at = began
        self._totals.end_cycle(asked=asked, seconds=self._clock.monotonic() - began, alone=alone)
        return pages

    async def _take(self, rows: Sequence[Row]) -> None:
        await self._found(met_by(rows, self.waiting))

    async def _look_further(self, since: float | None) -> int:
        """The requests it took. Its failures do not hold up the deltas, once there are any."""
        await self._tell_untaken()
        if self._clock.monotonic() < self._rest_until:
            return 0
        try:
            news, requests = await self._further.step(since)
        except (UpstreamError, BadInputError) as error:  # a record that cannot be read is one of them
            if since is None:
                raise
            self._rest_until = self._clock.monotonic() + self._troubles.note(
                error, doing="look at all records"
            )
            return 1
        if requests:
            self._troubles.over("look at all records")
        self._untaken += news
        await self._tell_untaken()
        return requests

    async def _tell_untaken(self) -> None:
        if self._untaken:  # the store may fail, and is asked again in the next cycle
            await self._found(self._untaken)
            self._untaken = []

    async def _keep_mark(self) -> None:
        mark = self._mark.to_keep
        if mark is None or self._clock.monotonic() < self._keep_at or (text := f"{mark:.3f}") == self._kept:
            return
        await self._subscriptions.keep_mark(text)
        self._kept = text
        self._keep_at = self._clock.monotonic() + KEEP_EVERY


def _read_mark(kept: str | None) -> float | None:
    try:
        mark = math.nan if kept is None else float(kept)
    except ValueError:
        mark = math.nan
    return mark if math.isfinite(mark) else None


def _seconds(name: str, given: object, *, above: float = -1) -> float:
    if not isinstance(given, int | float) or not (math.isfinite(given) and given >= 0 and given > above):
        least = "above 0" if above == 0 else "0 or more"
        raise BadInputError(f"{name} is {given!r}: give seconds, {least}")
    return given


def _checked_source(source: Source) -> Source:
    if not all(callable(getattr(source, name, None)) for name in ("changed", "scan", "find", "most")):
        kind = type(source).__name__
        raise BadInputError(
            f"a {kind} is no source of changes: give changes(table) of tidegate.polling.nocodb"
        )
    return source
