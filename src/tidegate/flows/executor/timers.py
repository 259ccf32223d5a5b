"""Timers of sessions: kept in the store, rung by one process, also those that were due while none ran."""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.failure import describe_error
from tidegate.leader_lease import LeaderLease
from tidegate.polling.failure_log import FailureLog
from tidegate.polling.restorer import SUBSCRIPTIONS_PER_PAGE
from tidegate.polling.subscriptions import StoredSubscription, Subscription, Subscriptions

log = logging.getLogger("tidegate.flows")

TIMERS_AT_ONCE: Final = 16  # that ring: after a long night all of them are due
TIMER_SCAN_INTERVAL: Final = 5.0  # seconds between two looks at what other processes have set
RECOUNT: Final = 60.0  # seconds between two looks at whether others have cleared many
TIMER_RETRY_DELAY: Final = 10.0  # seconds after one that could not be handled
FEWEST_OUTDATED: Final = 1_000  # fewer are not worth a look


class _Timer(NamedTuple):
    number: int
    at: float  # seconds since the epoch
    visit: int


Ring = Callable[[str, int, float], Awaitable[None]]
"""Of the session with this key, set on this visit, for that time."""


class SessionTimers:
    """One for each session. What was set rings once or more, at its time or later, whatever happens."""

    def __init__(self, subscriptions: Subscriptions, clock: Clock, ring: Ring) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._ring = ring
        self._troubles = FailureLog(subscriptions.name)
        self._leadership = LeaderLease(
            subscriptions.leases,
            clock,
            subscriptions.name,
            log=logging.getLogger("tidegate.polling"),
            on_wait=self._forget_all,
            on_store_error=lambda error: self._troubles.note(error, doing="reach its store"),
            on_store_back=lambda: self._troubles.over("reach its store"),
        )
        self._term = 0  # in which the store was read
        self._number = 0  # up to which it was read
        self._recount_at = 0.0  # monotonic
        self._set: dict[str, _Timer] = {}
        self._due: list[tuple[float, int, str]] = []  # a heap; outdated ones are left in it for a while
        self._ringing: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._set)

    async def set(self, key: str, at: float, visit: int) -> None:
        """Durable when it returns. Takes the place of the one before."""
        timer = Subscription(key, {"at": at, "visit": visit}, self._clock.now())
        await self._subscriptions.add([timer])
        self._news.set()

    async def clear(self, key: str) -> None:
        await self._subscriptions.remove([key])
        self._set.pop(key, None)

    def start(self) -> None:
        self._running = asyncio.create_task(self._run(), name=f"tidegate: {self._subscriptions.name}")

    async def stop(self) -> None:
        """What rings just now rings again after the next start."""
        running, self._running = self._running, None
        tasks = [task for task in (running, *self._ringing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._leadership.give_up()
        self._forget_all()
        self._term = 0

    async def _run(self) -> None:
        while True:
            self._news.clear()
            try:
                await self._lead()
                await self._recount()
                await self._read()
            except StoreError as error:
                await self._clock.sleep(self._troubles.note(error, doing="read what is due"))
                continue
            self._troubles.over("read what is due")
            await self._ring_due()
            await self._pause()

    async def _lead(self) -> None:
        await self._leadership.hold()
        if self._term != self._leadership.term:  # what is known may be outdated
            self._forget_all()
            self._term = self._leadership.term

    async def _recount(self) -> None:
        """What another process cleared leaves no trace here but the number of those that are left."""
        if self._clock.monotonic() >= self._recount_at:
            self._recount_at = self._clock.monotonic() + RECOUNT
            if len(self._set) > 2 * await self._subscriptions.count() + FEWEST_OUTDATED:
                self._forget_all()

    def _forget_all(self) -> None:
        self._number = 0
        self._set.clear()
        self._due.clear()

    async def _read(self) -> None:
        """Those set since, here or elsewhere."""
        while True:
            page = await self._subscriptions.after(self._number, SUBSCRIPTIONS_PER_PAGE)
            for kept in page:
                self._admit(kept)
            if len(page) < SUBSCRIPTIONS_PER_PAGE:
                return

    def _admit(self, kept: StoredSubscription) -> None:
        key, data = kept.subscription.key, kept.subscription.data
        self._number = kept.number
        self._set[key] = timer = _Timer(kept.number, data["at"], data["visit"])
        heapq.heappush(self._due, (timer.at, timer.number, key))
        if len(self._due) > 2 * len(self._set) + FEWEST_OUTDATED:
            self._due = [entry for entry in self._due if self._counts(entry)]
            heapq.heapify(self._due)

    def _counts(self, entry: tuple[float, int, str]) -> bool:
        timer = self._set.get(entry[2])
        return timer is not None and timer.number == entry[1]

    async def _ring_due(self) -> None:
        while self._due and self._due[0][0] <= self._clock.now() and self._leadership.is_ours:
            entry = heapq.heappop(self._due)
            if not self._counts(entry):
                continue
            if len(self._ringing) >= TIMERS_AT_ONCE:
                await asyncio.wait(self._ringing, return_when=asyncio.FIRST_COMPLETED)
            key = entry[2]
            task = asyncio.create_task(self._ring_one(key, self._set[key]), name=f"tidegate: rings {key}")
            self._ringing.add(task)
            task.add_done_callback(self._ringing.discard)

    async def _ring_one(self, key: str, timer: _Timer) -> None:
        try:
            await self._ring(key, timer.visit, timer.at)
        except Exception as error:  # noqa: BLE001  (whatever failed, it rings again)
            log.error(  # noqa: TRY400
                "the timer of session %s rings again in %g s: %s",
                key,
                TIMER_RETRY_DELAY,
                describe_error(error),
            )
            heapq.heappush(self._due, (self._clock.now() + TIMER_RETRY_DELAY, timer.number, key))
        else:
            if self._set.get(key) is timer:  # it was not set anew
                del self._set[key]

    async def _pause(self) -> None:
        next_at = self._due[0][0] - self._clock.now() if self._due else TIMER_SCAN_INTERVAL
        with suppress(TimeoutError):
            async with self._clock.timeout(max(0.0, min(TIMER_SCAN_INTERVAL, next_at))):
                await self._news.wait()
