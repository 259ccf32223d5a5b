"""Per-user polling: one request for each subscriber, for APIs that cannot be asked about many at once."""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Unpack

from tidegate.errors import BadInputError, NotTheSenderError
from tidegate.failure import describe_error
from tidegate.polling.fetch import FetchFailure, call_fetch, check_fetch, checked_interval, is_count, is_met
from tidegate.polling.poller import Poller, PollerOptions
from tidegate.polling.subscriptions import News, Subscription
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.polling")

DEFAULT_INTERVAL: Final = 60.0  # seconds
REQUESTS_AT_ONCE: Final = 8
NEW_SUBSCRIBERS_EVERY: Final = 1.0  # seconds between two checks for new subscribers
STORE: Final = "store news"
FAILURES_NAMED: Final = 5  # failing keys that are logged by name

FetchOne = Callable[[str], Awaitable[Any]]
"""Return the value of this key. None or False: not yet."""


class UserPoller(Poller):
    """Asks about each subscriber every `interval` seconds, with one request; at most `at_once` at a time.

    Requests are spread evenly over the interval, whenever their keys were subscribed.
    """

    title = "Per-User Polling Stats"

    def __init__(
        self,
        fetch_one: FetchOne,
        interval: float = DEFAULT_INTERVAL,
        *,
        at_once: int = REQUESTS_AT_ONCE,
        **options: Unpack[PollerOptions],
    ) -> None:
        check_fetch(fetch_one, "one key and returns what has become of it")
        if not is_count(at_once):
            raise BadInputError(f"{at_once!r} requests at a time: give 1 or more")
        super().__init__(**options)
        self._fetch_one = fetch_one
        self._interval = checked_interval(interval)
        self._at_once = at_once
        self._due: list[tuple[float, str]] = []  # a heap, of monotonic times
        self._due_of: dict[str, float] = {}  # the entry of each key that counts
        self._subscribed = 0
        self._first_at = 0.0
        self._request_tasks = BackgroundTasks()
        self._requests: dict[str, asyncio.Task[None]] = {}
        self._round_ends = 0.0
        self._failing: set[str] = set()

    def _on_admitted(self, subscriptions: Sequence[Subscription]) -> None:
        for one in subscriptions:
            if one.key not in self._due_of and one.key not in self._requests:
                self._schedule(one.key, self._first_delay())
                self._subscribed += 1

    def _first_delay(self) -> float:
        """Return the seconds until the next new key is due, less than an interval."""
        now = self._clock.monotonic()
        if not self._subscribed:
            self._first_at = now
        return (self._first_at + self._interval * even_spread(self._subscribed) - now) % self._interval

    async def _cycle(self) -> float:
        self._count_rounds()
        while len(self._requests) < self._at_once and (key := self._take_due()) is not None:
            self._requests[key] = task = self._request_tasks.start(self._fetch(key), f"asks for {key}")
            task.add_done_callback(lambda _, key=key: self._requests.pop(key))  # type: ignore[misc]
        if len(self._requests) >= self._at_once:
            await asyncio.wait(self._requests.values(), return_when=asyncio.FIRST_COMPLETED)
            return 0.0
        return max(0.0, min(NEW_SUBSCRIBERS_EVERY, self._next_due() - self._clock.monotonic()))

    async def _end_cycle(self) -> None:
        await self._request_tasks.stop()
        self._due.clear()
        self._due_of.clear()
        self._failing.clear()

    async def _fetch(self, key: str) -> None:
        begun = self._clock.monotonic()
        self._totals.batches += 1
        self._totals.requests += 1
        self._totals.asked += 1
        answer = await call_fetch(lambda: self._fetch_one(key), self._clock)
        if isinstance(answer, FetchFailure):
            self._totals.failed_batches += 1
            self._log_failure(key, answer.error)
        else:
            self._log_success(key)
            await self._report_met(key, answer)
        self._totals.last_cycle_seconds = seconds = self._clock.monotonic() - begun
        if key in self.waiting:
            self._schedule(key, max(0.0, self._interval - seconds))
        else:
            self._failing.discard(key)

    def _log_failure(self, key: str, error: Exception) -> None:
        """Log the first failure of a spell. If many keys fail it is the API, so only a few are named."""
        if key in self._failing:
            return
        self._failing.add(key)
        if len(self._failing) <= FAILURES_NAMED:
            log.warning(
                "%s cannot ask about %r, and goes on trying: %s", self.name, key, describe_error(error)
            )
        elif len(self._failing) == FAILURES_NAMED + 1:
            log.warning("%s cannot ask about other keys either, and goes on trying", self.name)

    def _log_success(self, key: str) -> None:
        if key in self._failing:
            self._failing.discard(key)
            if not self._failing:
                log.warning("%s can ask about all keys again", self.name)

    async def _report_met(self, key: str, answer: object) -> None:
        if not is_met(answer) or key not in self.waiting:
            return
        try:
            await self._report([News(key, answer)])
        except NotTheSenderError:
            return  # the leader finds it
        except Exception as error:  # noqa: BLE001  (found again in the next round)
            self._failures.note(error, doing=STORE)
        else:
            self._failures.over(STORE)

    def _schedule(self, key: str, after: float) -> None:
        due = self._clock.monotonic() + after
        self._due_of[key] = due
        heapq.heappush(self._due, (due, key))

    def _take_due(self) -> str | None:
        """Return the first key that is due and still waits."""
        while self._due and self._due[0][0] <= self._clock.monotonic():
            due, key = heapq.heappop(self._due)
            if self._due_of.get(key) != due:
                continue
            del self._due_of[key]
            if key in self.waiting:
                return key
            self._failing.discard(key)
        return None

    def _next_due(self) -> float:
        return self._due[0][0] if self._due else self._clock.monotonic() + NEW_SUBSCRIBERS_EVERY

    def _count_rounds(self) -> None:
        now = self._clock.monotonic()
        if self.waiting and now >= self._round_ends:
            self._totals.cycles += 1
            self._round_ends = now + self._interval


def even_spread(number: int) -> float:
    """Return the place of the n-th key in [0, 1), so that all places taken are always spread evenly.

    It mirrors the binary digits of the number at the point: 0, ½, ¼, ¾, ⅛ …
    """
    place, weight = 0.0, 0.5
    while number:
        number, digit = divmod(number, 2)
        place += digit * weight
        weight /= 2
    return place
