"""Rings the timers of sessions: one process at a time does, also for timers that were due while none ran."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.failure import FailureLog, describe_error
from tidegate.flows.port import FlowSessionStore, SessionKey
from tidegate.flows.session import Session
from tidegate.leader_lease import LeaderLease
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.flows")

TIMERS_AT_ONCE: Final = 16  # handled side by side: after a long night all of them are due
TIMER_SCAN_INTERVAL: Final = 5.0  # seconds until timers that other processes have set are noticed
TIMER_RETRY_DELAY: Final = 10.0  # seconds after a timer that could not be handled
_DOING: Final = "read which timers are due"

Ring = Callable[[SessionKey, Session], Awaitable[None]]


class SessionTimers:
    """A timer rings at its time or later, at least once. Its handling moves or clears it in the store."""

    def __init__(self, flow: str, clock: Clock, ring: Ring) -> None:
        self._name = f"flow:{flow}:timers"
        self._clock = clock
        self._ring = ring
        self._failures = FailureLog(self._name, log)
        self._count = 0
        self._wakes_at = 0.0
        self._changed = asyncio.Event()
        self._retry_at: dict[SessionKey, float] = {}
        self._ringing: dict[SessionKey, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()
        self._lease: LeaderLease | None = None

    def __len__(self) -> int:
        """The timers that were set when this process last looked."""
        return self._count

    def start(self, store: FlowSessionStore) -> None:
        self._tasks.supervise(lambda: self._run(store), self._name, self._clock)

    async def stop(self) -> None:
        """A timer that is being handled rings again after the next start."""
        await self._tasks.stop()
        if self._lease is not None:
            await self._lease.give_up()
        self._retry_at.clear()
        self._count = 0

    def expect(self, at: float) -> None:
        """A timer was set to that time."""
        if at < self._wakes_at:
            self._changed.set()

    async def _run(self, store: FlowSessionStore) -> None:
        self._lease = lease = LeaderLease(
            store.leases,
            self._clock,
            self._name,
            log=log,
            on_store_error=lambda error: self._failures.note(error, doing="reach its store"),
            on_store_back=lambda: self._failures.over("reach its store"),
        )
        while True:
            self._changed.clear()
            self._wakes_at = math.inf
            try:
                await lease.hold()
                now = await self._ring_due(store, lease)
                self._count, following = await store.timers(now)
            except StoreError as error:
                await self._clock.sleep(self._failures.note(error, doing=_DOING))
                continue
            self._failures.over(_DOING)
            await self._pause(now, following)

    async def _ring_due(self, store: FlowSessionStore, lease: LeaderLease) -> float:
        """Start all that are due, and return the time up to which they were."""
        while True:
            now = self._clock.now()
            # Those that ring or failed are still due: they must not hide the others.
            due = await store.due(now, TIMERS_AT_ONCE + len(self._ringing) + len(self._retry_at))
            fresh = [
                one for one in due if one[0] not in self._ringing and self._retry_at.get(one[0], 0.0) <= now
            ]
            if not fresh:
                return now
            for key, session in fresh:
                if len(self._ringing) >= TIMERS_AT_ONCE:
                    await asyncio.wait(self._ringing.values(), return_when=asyncio.FIRST_COMPLETED)
                if not lease.is_ours:
                    return now
                task = self._tasks.start(self._ring_one(key, session), f"rings {key.text}")
                self._ringing[key] = task
                task.add_done_callback(partial(self._rung, key))

    def _rung(self, key: SessionKey, _: asyncio.Task[None]) -> None:
        del self._ringing[key]
        self._changed.set()

    async def _ring_one(self, key: SessionKey, session: Session) -> None:
        try:
            await self._ring(key, session)
        except Exception as error:  # noqa: BLE001  (whatever failed, it rings again)
            log.error(  # noqa: TRY400
                "the timer of session %s rings again in %g s: %s",
                key.text,
                TIMER_RETRY_DELAY,
                describe_error(error),
            )
            self._retry_at[key] = self._clock.now() + TIMER_RETRY_DELAY
        else:
            self._retry_at.pop(key, None)

    async def _pause(self, now: float, following: float | None) -> None:
        """Until the next timer is due, but not longer than the scan interval."""
        self._retry_at = {key: at for key, at in self._retry_at.items() if at > now}
        times = [
            now + TIMER_SCAN_INTERVAL,
            *self._retry_at.values(),
            *([] if following is None else [following]),
        ]
        self._wakes_at = min(times)
        with suppress(TimeoutError):
            async with self._clock.timeout(max(0.0, self._wakes_at - self._clock.now())):
                await self._changed.wait()
