"""Delta polling: one request per cycle for any number of subscribers, asking only what changed."""

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import ClassVar, Final, Unpack

from tidegate.clock import Clock
from tidegate.errors import BadInputError, UpstreamError
from tidegate.model import Rate
from tidegate.polling.catch_up import CatchUp, CatchUpTotals, PolledSubscribers, news_of_met
from tidegate.polling.per_user import DEFAULT_INTERVAL as PER_USER_INTERVAL
from tidegate.polling.poller import Poller, PollerOptions
from tidegate.polling.source import ChangeSource, SourceRow
from tidegate.polling.subscriptions import AfterNews, News, Subscription
from tidegate.polling.watermark import RowVersions, Watermark

OVERLAP: Final = 30.0  # seconds that a commit may be late
FULL_SCAN: Final = 300.0  # seconds
SHARE: Final = 0.5  # of the API's limit
APPEAR_WITHIN: Final = 3_600.0  # seconds that a record may take to appear
SAVE_WATERMARK_EVERY: Final = 5.0  # seconds, at least
NEW_SUBSCRIBERS_EVERY: Final = 0.5  # seconds between two checks for new subscribers
LONGEST_SEARCH_PAUSE: Final = 5.0  # seconds after a search: those who come meanwhile share the next one
RESTORE_GROUP: Final = 1_000  # a restored subscription costs no request of its own
RESTORE_EVERY: Final = 0.0  # seconds
SHORTEST_CYCLE: Final = 0.2  # seconds, whatever the limit allows
SHORTEST_DEFAULT_INTERVAL: Final = 1.25  # seconds: with scans and searches, below one request a second
SLOWDOWN_FACTOR: Final = 1.5
LARGEST_SLOWDOWN: Final = 8.0
CROWDED_WAIT: Final = 0.05  # seconds of waiting for a turn that mean others use the API
WATCH_CHECK_EVERY: Final = 5.0  # seconds
CATCH_UP: Final = "look at all records"

TakeRows = Callable[[Sequence[SourceRow]], Awaitable[None]]


class DeltaPoller(Poller):
    """Reports news within a cycle or two if the source's times show it, and within `full_scan` otherwise.

    `interval`: seconds between deltas; None: by the number of people who wait (`delta_interval_for`).
    `share`: how much of the API's limit its requests may use. `overlap`: how late, in seconds, a write may be
    committed after its time was taken. `watch`: for how many seconds a subscriber that was notified is
    watched, and notified of "reversed" if the condition does not stay true (it then waits again) or "gone" if
    the record is deleted; starts again after a restart; 0: not at all. `appear_within`: how long after the
    subscription a record may appear; then it is reported as "gone".
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
        self._interval = None if interval is None else _seconds("interval", interval, above=0)
        self._delta_began = -math.inf  # monotonic
        self._counted_at = self._clock.monotonic()
        self._overlap = _seconds("overlap", overlap)
        self._full_scan = _seconds("full_scan", full_scan, above=0)
        self._appear_within = _seconds("appear_within", appear_within)
        self._watch = _seconds("watch", watch)
        self._watch_deadlines = WatchDeadlines(self._watch)
        self._catch_up_at = 0.0  # monotonic
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
        began = self._clock.monotonic()
        self._count_alone(began)
        if not self.waiting:  # changes concern nobody now, and new subscribers are searched for
            self._mark.passed(began)
        if not (self.waiting or self.watched):
            self._catch_up.reset()
            return NEW_SUBSCRIBERS_EVERY
        waited, requests_before = self._source.waited, self._totals.requests
        try:
            # The catch-up goes first: it may take the place of a delta, or set the watermark back.
            self._totals.requests += await self._step_catch_up(self._changes.since)
            self._totals.requests += await self._read_changes(self._changes.since)
        except UpstreamError:
            self._pace.failed()
            self._totals.requests += 1
            self._totals.failed_batches += 1
            raise
        await self._save_watermark()
        if over := self._watch_deadlines.over(self.watched, began):
            await self._stop_watching(over)
        return self._pause(began, self._totals.requests - requests_before, self._source.waited - waited)

    def _count_alone(self, now: float) -> None:
        """Count the requests that per-user polling would have made since the last cycle."""
        passed = min(now - self._counted_at, PER_USER_INTERVAL)
        self._totals.alone += len(self.waiting) * passed / PER_USER_INTERVAL
        self._counted_at = now

    async def _read_changes(self, since: float | None) -> int:
        """Return the number of requests: 0 before the first scan is done, and between two deltas."""
        began, asked = self._clock.monotonic(), len(self.waiting)
        if since is None or began < self._delta_due:
            return 0
        pages = await self._changes.read(since, self._report_met)
        self._delta_began = began
        self._totals.batches += pages
        self._totals.end_cycle(asked=asked, seconds=self._clock.monotonic() - began, alone=0.0)
        return pages

    @property
    def _delta_due(self) -> float:
        """When the next delta is due: earlier if people join meanwhile, later if they leave."""
        if not self.waiting:
            return math.inf
        return max(self._delta_began, self._catch_up.all_read_at) + self._interval_now

    @property
    def _interval_now(self) -> float:
        return self._interval or delta_interval_for(len(self.waiting))

    def _pause(self, began: float, requests: int, waited: float) -> float:
        """Return the seconds until the next cycle, which may only look for new subscribers."""
        now = self._clock.monotonic()
        idle_until = min(self._delta_due, now + NEW_SUBSCRIBERS_EVERY)
        if not requests:
            return idle_until - now if idle_until > now else SHORTEST_CYCLE
        # Later requests wait for the first one: only the wait of a single one is caused by others.
        cycle_at = began + self._pace.after(requests, waited if requests == 1 else 0.0, self._source.rate)
        return max(0.0, (cycle_at if self._catch_up.has_more else max(cycle_at, idle_until)) - now)

    async def _report_met(self, rows: Sequence[SourceRow]) -> None:
        await self._report(news_of_met(rows, self.waiting))

    async def _step_catch_up(self, since: float | None) -> int:
        """Return the number of requests. Failures do not hold up the deltas, once there are any."""
        await self._report_unreported()
        if self._clock.monotonic() < self._catch_up_at:
            return 0
        try:
            is_delta_due = self._clock.monotonic() >= self._delta_due
            news, requests = await self._catch_up.step(since, is_delta_due=is_delta_due)
        except (UpstreamError, BadInputError) as error:  # for instance a record that cannot be read
            if since is None:
                raise
            self._catch_up_at = self._clock.monotonic() + self._failures.note(error, doing=CATCH_UP)
            return 1
        if requests:
            self._failures.over(CATCH_UP)
            if not self._catch_up.has_more:
                pause = min(2 * self._interval_now, LONGEST_SEARCH_PAUSE)
                self._catch_up_at = self._clock.monotonic() + pause
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


def delta_interval_for(people: int, per_user: float = PER_USER_INTERVAL) -> float:
    """Return the seconds between two deltas for so many people, one or more.

    In `per_user` seconds, in which per-user polling makes n requests for n people, deltas are (n + 1) / 2 at
    most: as many for one person, and about half for many, so that searches and scans have the other half.
    """
    return max(SHORTEST_DEFAULT_INTERVAL, 2 * per_user / (people + 1))


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
        return max(SHORTEST_CYCLE, max(requests, 1) / budget * self._slowdown)

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
