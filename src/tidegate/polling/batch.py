"""Batch polling: many subscribers in one request."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Unpack

import msgspec

from tidegate.errors import BadInputError
from tidegate.polling.fetch import FetchFailure, call_fetch, check_fetch, checked_interval, is_count, is_met
from tidegate.polling.poller import Poller, PollerOptions
from tidegate.polling.subscriptions import Fetch, News

log = logging.getLogger("tidegate.polling")

REQUESTS_AT_ONCE: Final = 8  # the limiter of the API paces them
SECONDS_PER_BATCH: Final = 0.3  # at least, when 4 of 5 requests a second are for polling
SPARE: Final = 1.0  # seconds, for notifying people
IDLE_PAUSE: Final = 1.0  # seconds between two checks for subscribers
BATCH_SIZE_STEPS: Final = ((300, 20), (1_000, 30))  # up to so many subscribers: so many keys in a request
BATCH_SIZE_BEYOND_STEPS: Final = 50
FETCH: Final = "fetch all batches"

Batch = Sequence[str]
CountFitting = Callable[[Sequence[str]], int]
"""Return how many of the first keys fit one request."""


class _FailedBatch(msgspec.Struct, frozen=True):
    keys: Batch
    failure: FetchFailure

    def retries(self, *, is_first: bool) -> list[Batch]:
        """Return the batches to ask for in this cycle; none: leave it to the next cycle.

        If one key may spoil a batch, halving it finds that key.
        """
        if self.failure.is_of_the_keys:
            half = len(self.keys) // 2
            return [self.keys[:half], self.keys[half:]] if half else []
        return [self.keys] if is_first and not self.failure.is_final else []


class BatchPoller(Poller):
    """Asks about all subscribers within every `interval` seconds, many in a request.

    A cycle begins so early that its last answer comes before the interval of anybody is over.

    Without `batch_size` it depends on the number of subscribers. If `fetch` has a method `most(keys)`, no
    request asks for more keys than that returns. A batch that failed is repeated when the others are done,
    and if that fails too, in the next cycle.
    """

    title = "Batch Polling Manager Stats"

    def __init__(
        self,
        fetch: Fetch,
        interval: float = 60.0,
        batch_size: int | None = None,
        **options: Unpack[PollerOptions],
    ) -> None:
        check_fetch(fetch, "keys and returns a mapping of those that came true")
        if batch_size is not None and not is_count(batch_size):
            raise BadInputError(f"a batch of {batch_size!r} asks for nothing: give 20 to 50, or None")
        super().__init__(**options)
        self._fetch = fetch
        self._interval = checked_interval(interval)
        self._batch_size = batch_size
        self._most: CountFitting | None = getattr(fetch, "most", None)
        self._has_warned = False

    async def _cycle(self) -> float:
        keys = list(self.waiting)
        if not keys:
            return IDLE_PAUSE
        begun = self._clock.monotonic()
        size = self._batch_size or batch_size_for(len(keys), self._interval)
        batches = list(split_batches(keys, size, self._most))
        self._totals.batches += len(batches)
        failed = await self._fetch_with_retries(batches)
        for one in failed:
            self._failures.note(one.failure.error, doing=FETCH)
        if not failed:
            self._failures.over(FETCH)
        seconds = self._clock.monotonic() - begun
        self._totals.end_cycle(asked=len(keys), seconds=seconds)
        # Those that are being restored are asked for in the next cycle.
        restoring = max(len(self._tracked.unrestored), len(self._tracked.reserved)) if self._restores else 0
        coming = math.ceil((len(self.waiting) + restoring) / len(keys) * len(batches))
        expected = coming * max(SECONDS_PER_BATCH, seconds / len(batches))
        return max(0.0, time_between_cycles(self._interval, expected) - seconds)

    async def _fetch_with_retries(self, batches: Iterable[Batch]) -> list[_FailedBatch]:
        """Return the batches that are left to the next cycle."""
        left: list[_FailedBatch] = []
        failed, is_first = await self._fetch_all(batches), True
        while failed:
            again: list[Batch] = []
            for one in failed:
                parts = one.retries(is_first=is_first)
                again += parts
                left += [] if parts else [one]
            failed, is_first = await self._fetch_all(again), False
        return left

    async def _fetch_all(self, batches: Iterable[Batch]) -> list[_FailedBatch]:
        """Fetch several batches at a time; return those that failed."""
        todo = list(batches)
        coming, failed, store_errors = iter(todo), list[_FailedBatch](), list[Exception]()

        async def work() -> None:
            for batch in coming:  # the workers share the iterator
                try:
                    failure = await self._fetch_batch([key for key in batch if key in self.waiting])
                except Exception as error:  # noqa: BLE001  (raised when all batches were fetched)
                    store_errors.append(error)
                    continue
                if failure is not None:
                    failed.append(_FailedBatch(batch, failure))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(REQUESTS_AT_ONCE, len(todo))):
                group.create_task(work(), name=f"tidegate: {self.name}, batch")
        if store_errors:
            raise store_errors[0]
        return failed

    async def _fetch_batch(self, keys: Batch) -> FetchFailure | None:
        if not keys:
            return None
        self._totals.requests += 1
        answer: Any = await call_fetch(lambda: self._fetch(keys), self._clock)
        if not isinstance(answer, Mapping | FetchFailure):
            kind = type(answer).__name__
            answer = FetchFailure(TypeError(f"fetch returned {kind}: return a dict of keys that came true"))
        if isinstance(answer, FetchFailure):
            self._totals.failed_batches += 1
            return answer
        self._warn_of_unknown_keys(keys, answer)
        await self._report([News(key, answer[key]) for key in keys if is_met(answer.get(key))])
        return None

    def _warn_of_unknown_keys(self, keys: Batch, answer: Mapping[str, Any]) -> None:
        unknown = set(answer).difference(keys)
        if unknown and not self._has_warned:
            self._has_warned = True
            shown = ", ".join(map(repr, list(unknown)[:3]))
            log.warning("%s: fetch returned keys that it was not asked for, ignored: %s", self.name, shown)


def time_between_cycles(interval: float, cycle: float) -> float:
    """Return the seconds from start to start, so that the last answer of so long a cycle is in time."""
    return max(interval / 2, interval - cycle - SPARE)


def batch_size_for(subscribers: int, interval: float) -> int:
    """Small enough for a fast answer; larger only if a cycle would need over one request per second."""
    usual = next((size for most, size in BATCH_SIZE_STEPS if subscribers <= most), BATCH_SIZE_BEYOND_STEPS)
    requests = max(1, math.floor(interval))
    return max(usual, math.ceil(subscribers / requests))


def split_batches(keys: Sequence[str], size: int, most: CountFitting | None = None) -> Iterator[list[str]]:
    """Yield batches in the order of the keys, none larger than `size` or than what fits a request."""
    begin = 0
    while begin < len(keys):
        batch = list(keys[begin : begin + size])
        if most is not None:
            batch = _fitting(batch, most)
        yield batch
        begin += len(batch)


def _fitting(batch: list[str], most: CountFitting) -> list[str]:
    """Return the first keys that fit. A key that never fits is asked for alone, to name its error."""
    try:
        return batch[: max(1, most(batch))]
    except BadInputError:
        half = len(batch) // 2
        return _fitting(batch[:half], most) if half else batch
