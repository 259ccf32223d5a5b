"""Batch polling: many subscribers in one request."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Unpack

import msgspec

from tidegate.errors import BadInputError
from tidegate.polling.fetch import (
    CountFitting,
    FetchFailure,
    batch_size_for,
    call_fetch,
    check_fetch,
    checked_interval,
    is_count,
    is_met,
    split_batches,
)
from tidegate.polling.poller import Poller, PollerOptions
from tidegate.polling.subscriptions import Fetch, News

log = logging.getLogger("tidegate.polling")

REQUESTS_AT_ONCE: Final = 8  # requests; the limiter of the API paces them
IDLE_PAUSE: Final = 1.0  # seconds between two looks at whether somebody waits

Batch = Sequence[str]


class _FailedBatch(msgspec.Struct, frozen=True):
    keys: Batch
    failure: FetchFailure

    def again(self, *, for_the_first_time: bool) -> list[Batch]:
        """How to ask for them once more in this cycle; empty: not before the next one.

        Where one key may spoil it for all, halves find out which.
        """
        if self.failure.is_of_the_keys:
            half = len(self.keys) // 2
            return [self.keys[:half], self.keys[half:]] if half else []
        return [self.keys] if for_the_first_time and not self.failure.is_final else []


class BatchPoller(Poller):
    """Asks about everybody every `interval` seconds, from start to start, so many in a request.

    Without `batch_size` it is chosen from the number of subscribers. If `fetch` has a method `most(keys)`, no
    request asks for more keys than it says. A batch that failed is asked for again when the others are done,
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
        self._say(await self._ask_until_left(batches))
        seconds = self._clock.monotonic() - begun
        self._totals.end_cycle(asked=len(keys), seconds=seconds)
        return max(0.0, self._interval - seconds)

    async def _ask_until_left(self, batches: Iterable[Batch]) -> list[_FailedBatch]:
        """Returns those that are left for the next cycle."""
        left: list[_FailedBatch] = []
        failed, is_first = await self._ask_all(batches), True
        while failed:
            again: list[Batch] = []
            for one in failed:
                parts = one.again(for_the_first_time=is_first)
                again += parts
                left += [] if parts else [one]
            failed, is_first = await self._ask_all(again), False
        return left

    async def _ask_all(self, batches: Iterable[Batch]) -> list[_FailedBatch]:
        """Side by side; returns those that failed."""
        todo = list(batches)
        coming, failed, troubles = iter(todo), list[_FailedBatch](), list[Exception]()

        async def ask_on() -> None:
            for batch in coming:  # the next one that nobody has taken
                try:
                    failure = await self._ask([key for key in batch if key in self.waiting])
                except Exception as error:  # noqa: BLE001  (of the store, raised when all have been asked)
                    troubles.append(error)
                    continue
                if failure is not None:
                    failed.append(_FailedBatch(batch, failure))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(REQUESTS_AT_ONCE, len(todo))):
                group.create_task(ask_on(), name=f"tidegate: {self.name}, batch")
        if troubles:
            raise troubles[0]
        return failed

    async def _ask(self, keys: Batch) -> FetchFailure | None:
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
        self._warn_of_others(keys, answer)
        await self._found([News(key, answer[key]) for key in keys if is_met(answer.get(key))])
        return None

    def _warn_of_others(self, keys: Batch, answer: Mapping[str, Any]) -> None:
        others = set(answer).difference(keys)
        if others and not self._has_warned:
            self._has_warned = True
            shown = ", ".join(map(repr, list(others)[:3]))
            log.warning("%s: fetch returned keys that it was not asked for, ignored: %s", self.name, shown)

    def _say(self, left: Sequence[_FailedBatch]) -> None:
        for one in left:
            self._troubles.note(one.failure.error, doing=ASK)
        if not left:
            self._troubles.over(ASK)


ASK: Final = "ask about everybody"
