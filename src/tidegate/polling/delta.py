"""Delta polling: one request per cycle for any number of subscribers, asking only what changed."""

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import ClassVar, Final, Unpack

from tidegate.clock import Clock
from tidegate.errors import BadInputError, UpstreamError
from tidegate.model import Rate
from tidegate.polling.catch_up import CatchUp, CatchUpTotals, PolledSubscribers, news_of_met
from tidegate.polling.poller import Poller, PollerOptions
from tidegate.polling.source import ChangeSource, SourcePage, SourceRow
from tidegate.polling.subscriptions import AfterNews, News, Subscription
from tidegate.polling.watermark import RowVersions, Watermark

TakeRows = Callable[[Sequence[SourceRow]], Awaitable[None]]


class ChangeReader:
    """Reads on from the watermark, less the overlap: rows come again for a while, and none is left out."""

    def __init__(self, source: ChangeSource, clock: Clock, overlap: float, mark: Watermark) -> None:
        self._source = source
        self._clock = clock
        self._overlap = overlap
        self._mark = mark
        self._seen = RowVersions()
        # A mark that was kept is of another run, which may have seen these rows: they prove nothing anew, and
        # one of them may be of a time to come, of a clock that was wrong.
        self._asked_since = -math.inf if self.since is None else math.inf

    @property
    def since(self) -> float | None:
        return self._mark.since(self._overlap)

    async def read(self, since: float, take: TakeRows) -> int:
        """Give each page away; the number of pages. Only when all were taken does the mark move on."""
        began, pages, after = self._clock.monotonic(), 0, None
        # After a clock was set back old rows are read once more, of which the newest are in its future.
        teaches = since >= self._asked_since
        while after is not None or not pages:
            page = await self._source.changed(since, after)
            pages += 1
            heard = self._clock.monotonic()
            for row in self._seen.fresh(page.rows):
                if teaches:
                    self._mark.saw(row.changed, heard)
            await take(page.rows)
            after = page.after
        self._asked_since = since
        self._mark.passed(began)
        self._seen.forget_before(since)
        return pages


SHORTEST_INTERVAL: Final = 0.2  # seconds from turn to turn, whatever is allowed
SLOWDOWN_FACTOR: Final = 1.5
LARGEST_SLOWDOWN: Final = 8.0  # times as long as the budget alone would have it
CROWDED_WAIT: Final = 0.05  # seconds of waiting that are no accident


class AdaptiveInterval:
    """Seconds from the beginning of one turn to that of the next.

    A turn costs its requests, and all turns together have `share` of what the API allows now. Whoever is
    kept waiting slows down by half each time, and comes back to what the budget allows bit by bit.
    """

    def __init__(self, share: float) -> None:
        self._share = _checked_share(share)
        self._slower = 1.0

    def after(self, requests: int, waited: float, rate: Rate) -> float:
        """How long a turn with so many requests lasts, whose first one had to wait so long."""
        crowded = waited > CROWDED_WAIT
        self._slower = (
            min(LARGEST_SLOWDOWN, self._slower * SLOWDOWN_FACTOR)
            if crowded
            else max(1.0, self._slower / SLOWDOWN_FACTOR)
        )
        budget = self._share * rate.count / rate.seconds
        return max(SHORTEST_INTERVAL, max(requests, 1) / budget * self._slower)

    def failed(self) -> None:
        """The next turns come slower."""
        self._slower = min(LARGEST_SLOWDOWN, self._slower * SLOWDOWN_FACTOR)


def _checked_share(share: object) -> float:
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise BadInputError(f"share is {share!r}: give a part of the API's limit, above 0 and at most 1")
    return share


WATCH_CHECK_EVERY: Final = 5.0  # seconds between two looks, so that each costs little


class WatchDeadlines:
    """`seconds` from when one is first seen among the watched, and a few more. Monotonic times."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[str, float] = {}
        self._look_at = 0.0

    def over(self, watched: Collection[str], now: float) -> list[str]:
        """Whose time is over."""
        if now < self._look_at:
            return []
        self._look_at = now + WATCH_CHECK_EVERY
        self._until = {key: self._until.get(key, now + self._seconds) for key in watched}
        return [key for key, until in self._until.items() if until <= now]


__all__ = ["ChangeSource", "DeltaPoller", "SourcePage", "SourceRow"]

OVERLAP: Final = 30.0  # seconds that a commit may be late
FULL_SCAN: Final = 300.0  # seconds
SHARE: Final = 0.5  # of what the API allows
APPEAR_WITHIN: Final = 3_600.0  # seconds that a record may take to appear
SAVE_WATERMARK_EVERY: Final = 5.0  # seconds, at least: between two writes of the watermark
IDLE_PAUSE: Final = 0.5  # seconds between two looks at whether somebody waits
SINGLE_POLL_INTERVAL: Final = 60.0  # seconds between two requests for one, if each were asked for alone
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
        source: ChangeSource,
        *,
        interval: float | None = None,
        overlap: float = OVERLAP,
        full_scan: float = FULL_SCAN,
        watch: float = 0.0,
        share: float = SHARE,
        appear_within: float = APPEAR_WITHIN,
        **options: Unpack[PollerOptions],
    ) -> None:
        options.setdefault("restore_group", RESTORE_GROUP)
        options.setdefault("restore_every", RESTORE_EVERY)
        super().__init__(**options)
        self._source = _checked_source(source)
        self._tempo = AdaptiveInterval(share)
        self._interval = 0.0 if interval is None else _seconds("interval", interval, above=0)
        self._delta_at = 0.0  # monotonic
        self._read_at = self._clock.monotonic()
        self._overlap = _seconds("overlap", overlap)
        self._full_scan = _seconds("full_scan", full_scan, above=0)
        self._appear_within = _seconds("appear_within", appear_within)
        self._watch = _seconds("watch", watch)
        self._watches = WatchDeadlines(self._watch)
        self._rest_until = 0.0  # for what goes beyond the deltas
        self._keep_at = 0.0
        self.looks = CatchUpTotals()
        self._start_from(None)

    async def _begin(self) -> None:
        self._start_from(await self._subscriptions.mark())

    def _start_from(self, kept: str | None) -> None:
        self._kept = kept
        self._untaken: list[News] = []  # seen once, and perhaps never again by a delta
        self._mark = Watermark(_read_mark(kept))
        self._changes = ChangeReader(self._source, self._clock, self._overlap, self._mark)
        self._further = CatchUp(
            self._source,
            self._clock,
            self._mark,
            PolledSubscribers(self.waiting, self.watched),
            every=self._full_scan,
            appear_within=self._appear_within,
            looks=self.looks,
        )

    def _admitted(self, subscriptions: Sequence[Subscription]) -> None:
        self._further.came(one.key for one in subscriptions)

    def _then(self, news: News) -> AfterNews:
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
        return IDLE_PAUSE

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
        alone = asked * min(began - self._read_at, SINGLE_POLL_INTERVAL) / SINGLE_POLL_INTERVAL
        self._read_at = began
        self._totals.end_cycle(asked=asked, seconds=self._clock.monotonic() - began, alone=alone)
        return pages

    async def _take(self, rows: Sequence[SourceRow]) -> None:
        await self._found(news_of_met(rows, self.waiting))

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
        self._keep_at = self._clock.monotonic() + SAVE_WATERMARK_EVERY


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


def _checked_source(source: ChangeSource) -> ChangeSource:
    if not all(callable(getattr(source, name, None)) for name in ("changed", "scan", "find", "most")):
        kind = type(source).__name__
        raise BadInputError(
            f"a {kind} is no source of changes: give changes(table) of tidegate.polling.nocodb"
        )
    return source
