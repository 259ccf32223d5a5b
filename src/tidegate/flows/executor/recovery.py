"""Goes on with sessions that a crash, a failure or a changed flow left behind."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.failure import describe_error
from tidegate.flows.flow import Flow
from tidegate.flows.model import FlowError
from tidegate.flows.port import SessionKey, parse_session_key, session_key_in
from tidegate.polling.failure_log import FailureLog
from tidegate.polling.restorer import SUBSCRIPTIONS_PER_PAGE
from tidegate.polling.subscriptions import Subscription, Subscriptions

log = logging.getLogger("tidegate.flows")

SESSIONS_AT_ONCE: Final = 16  # sessions
UNFINISHED_SCAN_INTERVAL: Final = 30.0  # seconds between two looks

Resume = Callable[[str], Awaitable[None]]


class UnfinishedSessions:
    """`resume` is called for each, when it starts and from time to time; it crosses off whoever is done."""

    def __init__(self, subscriptions: Subscriptions, clock: Clock, resume: Resume) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._resume = resume
        self._troubles = FailureLog(subscriptions.name)
        self._left: set[str] = set()
        self._running: asyncio.Task[None] | None = None

    def remember(self, key: str) -> None:
        """Doing what was decided has failed: perhaps the store is away, and nothing can be noted in it."""
        self._left.add(key)

    async def note(self, key: str) -> None:
        await self._subscriptions.add([Subscription(key, {}, self._clock.now())])

    async def cross_off(self, key: str) -> None:
        await self._subscriptions.remove([key])

    def start(self) -> None:
        self._running = asyncio.create_task(self._run(), name=f"tidegate: {self._subscriptions.name}")

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except StoreError as error:
                await self._clock.sleep(self._troubles.note(error, doing="read what is unfinished"))
            else:
                self._troubles.over("read what is unfinished")
                await self._clock.sleep(UNFINISHED_SCAN_INTERVAL)

    async def _look(self) -> None:
        left, self._left = self._left, set()
        await self._resume_all(list(left))
        number = 0
        while page := await self._subscriptions.after(number, SUBSCRIPTIONS_PER_PAGE):
            number = page[-1].number
            await self._resume_all([kept.subscription.key for kept in page])

    async def _resume_all(self, keys: Sequence[str]) -> None:
        coming = iter(keys)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(SESSIONS_AT_ONCE, len(keys))):
                group.create_task(self._resume_each(coming))

    async def _resume_each(self, keys: Iterator[str]) -> None:
        for key in keys:
            try:
                await self._resume(key)
            except Exception as error:  # noqa: BLE001  (the others go on; it is looked at again)
                log.error("session %s cannot go on, and is tried again: %s", key, describe_error(error))  # noqa: TRY400


Inspect = Callable[[SessionKey], Awaitable[object]]


class FlowCatchUp:
    """Once for each declaration. Known are those with a timer, and those who are subscribed; others are
    looked at when they write. `marks`: where it is kept which declaration was looked at last.
    """

    def __init__(
        self,
        flow: Flow,
        clock: Clock,
        *,
        marks: Subscriptions,
        timers: Subscriptions,
        polls: Sequence[Subscriptions],
    ) -> None:
        self._mark = _fingerprint(flow)
        self._marks = marks
        self._timers = timers
        self._polls = polls
        self._clock = clock
        self._troubles = FailureLog(marks.name)

    async def run(self, look: Inspect) -> None:
        while True:
            try:
                if await self._marks.watermark() != self._mark:
                    await self._look_at_all(look)
                    await self._marks.save_watermark(self._mark)
            except Exception as error:  # noqa: BLE001  (whatever fails is tried again)
                await self._clock.sleep(self._troubles.note(error, doing="look at who waits"))
            else:
                return

    async def _look_at_all(self, look: Inspect) -> None:
        await self._look_at(self._timers, lambda one: parse_session_key(one.key), look)
        for poll in self._polls:
            await self._look_at(poll, session_key_in, look)

    async def _look_at(
        self, kept: Subscriptions, place: Callable[[Subscription], SessionKey], look: Inspect
    ) -> None:
        number = 0
        while page := await kept.after(number, SUBSCRIPTIONS_PER_PAGE):
            number = page[-1].number
            for one in page:
                try:
                    await look(place(one.subscription))
                except (FlowError, BadInputError) as error:  # the others are looked at all the same
                    log.error("%s", describe_error(error))  # noqa: TRY400
                await self._clock.sleep(0)  # others come first


def _fingerprint(flow: Flow) -> str:
    """Of what a session has going on while it is in a state."""
    declared = [(state.name, state.poll, state.timeout, state.final) for state in flow.states]
    told = msgspec.json.encode((flow.lifetime, declared))
    return hashlib.blake2b(told, digest_size=8).hexdigest()
