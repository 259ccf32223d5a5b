"""Sessions that nobody would come back to after a crash: what moved them comes only once.

An update is handled again by the inbox, news are told again by their poller. Work, and what the application
said, are not repeated by anybody, and a timer that was cleared does not ring again: so the session is noted
here before it is written, and looked after here until nothing of it is left to do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.polling.restoring import PAGE
from tidegate.polling.store.base import Subscriptions
from tidegate.polling.subscriptions import Subscription
from tidegate.polling.troubles import Troubles
from tidegate.reports import reason_of

log = logging.getLogger("tidegate.flows")

AT_ONCE: Final = 16  # sessions
EVERY: Final = 30.0  # seconds between two looks

Resume = Callable[[str], Awaitable[None]]


class Unfinished:
    """`resume` is called for each, when it starts and from time to time; it crosses off whoever is done."""

    def __init__(self, subscriptions: Subscriptions, clock: Clock, resume: Resume) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._resume = resume
        self._troubles = Troubles(subscriptions.name)
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
                await self._clock.sleep(EVERY)

    async def _look(self) -> None:
        left, self._left = self._left, set()
        await self._resume_all(list(left))
        number = 0
        while page := await self._subscriptions.after(number, PAGE):
            number = page[-1].number
            await self._resume_all([kept.subscription.key for kept in page])

    async def _resume_all(self, keys: Sequence[str]) -> None:
        coming = iter(keys)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(keys))):
                group.create_task(self._resume_each(coming))

    async def _resume_each(self, keys: Iterator[str]) -> None:
        for key in keys:
            try:
                await self._resume(key)
            except Exception as error:  # noqa: BLE001  (the others go on; it is looked at again)
                log.error("session %s cannot go on, and is tried again: %s", key, reason_of(error))  # noqa: TRY400
