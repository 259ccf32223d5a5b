"""Delta polling: one request per cycle for any number of subscribers, asking only what changed."""

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import ClassVar, Final, Unpack

from tidegate.clock import Clock
from tidegate.errors import BadInputError, UpstreamError
from tidegate.model import Rate
from tidegate.polling.catch_up import CatchUp, CatchUpTotals, PolledSubscribers, news_of_met
from tidegate.polling.poller import Poller, PollerOptions
from tidegate.polling.source import ChangeSource, SourceRow
from tidegate.polling.subscriptions import AfterNews, News, Subscription
from tidegate.polling.watermark import RowVersions, Watermark

OVERLAP: Final = 30.0  # seconds that a commit may be late
FULL_SCAN: Final = 300.0  # seconds
SHARE: Final = 0.5  # of the API's limit
APPEAR_WITHIN: Final = 3_600.0  # seconds that a record may take to appear
SAVE_WATERMARK_EVERY: Final = 5.0  # seconds, at least
IDLE_PAUSE: Final = 0.5  # seconds between two checks for subscribers
SINGLE_POLL_INTERVAL: Final = 60.0  # seconds between two requests per subscriber, for comparison in the stats
RESTORE_GROUP: Final = 1_000  # a restored subscription costs no request of its own
RESTORE_EVERY: Final = 0.0  # seconds
SHORTEST_INTERVAL: Final = 0.2  # seconds between two cycles, whatever the limit allows
SLOWDOWN_FACTOR: Final = 1.5
LARGEST_SLOWDOWN: Final = 8.0
CROWDED_WAIT: Final = 0.05  # seconds of waiting for a turn that mean others use the API
WATCH_CHECK_EVERY: Final = 5.0  # seconds
CATCH_UP: Final = "look at all records"

TakeRows = Callable[[Sequence[SourceRow]], Awaitable[None]]


class DeltaPoller(Poller):
    """Reports news within a cycle or two if the source's times show it, and within `full_scan` otherwise.

    `interval`: seconds between deltas; None: as short as `share` of the API's limit allows. `overlap`: how
    late, in seconds, a write may be committed after its time was taken. `watch`: for how many seconds a
    subscriber that was notified is watched, and notified of "reversed" if the condition does not stay true
    (it then waits again) or "gone" if the record is deleted; starts again after a restart; 0: not at all.
    `appear_within`: how long after the subscription a record may appear; then it is reported as "gone".
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
        self._pace = AdaptiveInterval(share)
        self._interval = 0.0 if interval is None else _seconds("interval", interval, above=0)
        self._delta_at = 0.0  # monotonic
        self._read_at = self._clock.monotonic()
        self._overlap = _seconds("overlap", overlap)
        self._full_scan = _seconds("full_scan", full_scan, above=0)
        self._appear_within = _seconds("appear_within", appear_within)
        self._watch = _seconds("watch", watch)
        self._watch_deadlines = WatchDeadlines(self._watch)
        self._catch_up_at = 0.0  # monotonic; later after a failure
        self._save_at = 0.0
        self.catch_up_totals = CatchUpTotals()
        self._start_from(None)

    async def _begin_term(self) -> None:
        self._start_from(await self._subscriptions.watermark())

    def _start_from(self, saved: str | None) -> None:
        self._saved = saved
        self._unreported: list[News] = []  # of a catch-up: a delta may never see it again
        self._mark = Watermark(_read_mark(saved))
        self._changes = ChangeReader(self._source, self._clock, self._overlap, self._mark)
        self._catch_up = CatchUp(
            self._source,
            self._clock,
            self._mark,
            PolledSubscribers(self.waiting, self.watched),
            every=self._full_scan,
            appear_within=self._appear_within,
            totals=self.catch_up_totals,
        )

    def _on_admitted(self, subscriptions: Sequence[Subscription]) -> None:
        self._catch_up.add(one.key for one in subscriptions)

    def _after_news(self, news: News) -> AfterNews:
        return "watch" if news.kind == "met" and self._watch > 0 else super()._after_news(news)

    async def _cycle(self) -> float:
        if not (self.waiting or self.watched):
            # Changes concern nobody now, and new subscribers are searched for.
            self._mark.passed(self._clock.monotonic())
            self._catch_up.reset()
            return IDLE_PAUSE
        began, waited, since = self._clock.monotonic(), self._source.waited, self._changes.since
        try:
            pages = await self._read_changes(since, began)
            # Later pages wait for the first one: only the wait of a single request is caused by others.
            waited = self._source.waited - waited if pages <= 1 else 0.0
            requests = pages + await self._step_catch_up(since)
        except UpstreamError:
            self._pace.failed()
            self._totals.requests += 1
            self._totals.failed_batches += 1
            raise
        self._totals.requests += requests
        await self._save_watermark()
        if over := self._watch_deadlines.over(self.watched, began):
            await self._stop_watching(over)
        cycle_at = began + self._pace.after(requests, waited, self._source.rate)
        next_at = cycle_at if self._catch_up.has_more else max(cycle_at, self._delta_at)
        return max(0.0, next_at - self._clock.monotonic())

    async def _read_changes(self, since: float | None, began: float) -> int:
        """Return the number of requests: 0 before the first scan is done, and between two deltas."""
        if since is None or began < self._delta_at:
            return 0
        asked = len(self.waiting) + len(self.watched)
        pages = await self._changes.read(since, self._report_met)
        self._delta_at = began + self._interval
        self._totals.batches += pages
        alone = asked * min(began - self._read_at, SINGLE_POLL_INTERVAL) / SINGLE_POLL_INTERVAL
        self._read_at = began
        self._totals.end_cycle(asked=asked, seconds=self._clock.monotonic() - began, alone=alone)
        return pages

    async def _report_met(self, rows: Sequence[SourceRow]) -> None:
        await self._report(news_of_met(rows, self.waiting))

    async def _step_catch_up(self, since: float | None) -> int:
        """Return the number of requests. Failures do not hold up the deltas, once there are any."""
        await self._report_unreported()
        if self._clock.monotonic() < self._catch_up_at:
            return 0
        try:
            news, requests = await self._catch_up.step(since)
        except (UpstreamError, BadInputError) as error:  # for instance a record that cannot be read
            if since is None:
                raise
            self._catch_up_at = self._clock.monotonic() + self._failures.note(error, doing=CATCH_UP)
            return 1
        if requests:
            self._failures.over(CATCH_UP)
        self._unreported += news
        await self._report_unreported()
        return requests

    async def _report_unreported(self) -> None:
        if self._unreported:  # if the store fails, it is tried again in the next cycle
            await self._report(self._unreported)
            self._unreported = []

    async def _save_watermark(self) -> None:
        mark = self._mark.to_save
        if mark is None or self._clock.monotonic() < self._save_at or (text := f"{mark:.3f}") == self._saved:
            return
        await self._subscriptions.save_watermark(text)
        self._saved = text
        self._save_at = self._clock.monotonic() + SAVE_WATERMARK_EVERY


class ChangeReader:
    """Reads from the watermark less the overlap, so rows are read several times and none is left out."""

    def __init__(self, source: ChangeSource, clock: Clock, overlap: float, mark: Watermark) -> None:
        self._source = source
        self._clock = clock
        self._overlap = overlap
        self._mark = mark
        self._versions = RowVersions()
        # A saved watermark is of another run, which may have seen these rows: they prove nothing new, and one
        # of them may be in the future, written while the source's clock was wrong.
        self._asked_since = -math.inf if self.since is None else math.inf

    @property
    def since(self) -> float | None:
        return self._mark.since(self._overlap)

    async def read(self, since: float, take: TakeRows) -> int:
        """Pass each page to `take` and return their number. The mark moves on only when all were taken."""
        began, pages, after = self._clock.monotonic(), 0, None
        # After a clock was set back, old rows are read once more, and the newest are in its future.
        teaches = since >= self._asked_since
        while after is not None or not pages:
            page = await self._source.changed(since, after)
            pages += 1
            heard = self._clock.monotonic()
            for row in self._versions.fresh(page.rows):
                if teaches:
                    self._mark.saw(row.changed, heard)
            await take(page.rows)
            after = page.after
        self._asked_since = since
        self._mark.passed(began)
        self._versions.forget_before(since)
        return pages


class AdaptiveInterval:
    """The seconds from the beginning of one cycle to that of the next.

    All cycles together use `share` of the rate that the API allows now. If a request has to wait for its
    turn, cycles get slower by half each time, and then gradually faster again.
    """

    def __init__(self, share: float) -> None:
        self._share = _checked_share(share)
        self._slowdown = 1.0

    def after(self, requests: int, waited: float, rate: Rate) -> float:
        """Return the length of a cycle with so many requests, whose first one waited so long."""
        if waited > CROWDED_WAIT:
            self.failed()
        else:
            self._slowdown = max(1.0, self._slowdown / SLOWDOWN_FACTOR)
        budget = self._share * rate.count / rate.seconds
        return max(SHORTEST_INTERVAL, max(requests, 1) / budget * self._slowdown)

    def failed(self) -> None:
        """Make the next cycles slower."""
        self._slowdown = min(LARGEST_SLOWDOWN, self._slowdown * SLOWDOWN_FACTOR)


class WatchDeadlines:
    """Watches end `seconds` after a key is first seen among the watched, or a few more. Monotonic times."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[str, float] = {}
        self._check_at = 0.0

    def over(self, watched: Collection[str], now: float) -> list[str]:
        """Return the keys whose watch has ended."""
        if now < self._check_at:
            return []
        self._check_at = now + WATCH_CHECK_EVERY
        self._until = {key: self._until.get(key, now + self._seconds) for key in watched}
        return [key for key, until in self._until.items() if until <= now]


def _read_mark(saved: str | None) -> float | None:
    try:
        mark = math.nan if saved is None else float(saved)
    except ValueError:
        mark = math.nan
    return mark if math.isfinite(mark) else None


def _checked_share(share: object) -> float:
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise BadInputError(f"share is {share!r}: give a part of the API's limit, above 0 and at most 1")
    return share


def _seconds(name: str, given: object, *, above: float = -1) -> float:
    if not isinstance(given, int | float) or not (math.isfinite(given) and given >= 0 and given > above):
        least = "above 0" if above == 0 else "0 or more"
        raise BadInputError(f"{name} is {given!r}: give seconds, {least}")
    return given


def _checked_source(source: ChangeSource) -> ChangeSource:
    if not all(callable(getattr(source, name, None)) for name in ("changed", "scan", "find", "most")):
        kind = type(source).__name__
        raise BadInputError(f"a {kind} is not a source of changes: give tidegate.polling.changes(table)")
    return source
