"""One leader among processes: a lease in the store that is renewed while it is wanted."""

import asyncio
import logging
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.inbound.inbox import Inbox

log = logging.getLogger("tidegate.inbound")

LEASE_SECONDS: Final = 6.0  # seconds until another process may lead after this one has died
RENEW_INTERVAL: Final = 2.0  # seconds
TAKEOVER_INTERVAL: Final = 1.0  # seconds between two tries to become the leader


class LeaderLease:
    """Of one name. `hold` as often as you like: it returns at once while this process leads."""

    def __init__(self, inbox: Inbox, clock: Clock, name: str) -> None:
        self._inbox = inbox
        self._clock = clock
        self._name = name
        self._until = 0.0  # monotonic
        self._renewing: asyncio.Task[None] | None = None
        self._waits = False

    @property
    def is_ours(self) -> bool:
        return self._clock.monotonic() < self._until

    async def hold(self) -> None:
        """Wait until this process leads. It does not if the store cannot be reached: others may."""
        while not self.is_ours:
            try:
                taken = await self._take()
            except StoreError as error:
                taken = False
                log.debug("%s", error)  # told where it matters; here it is tried again
            if not taken:
                self._say_that_it_waits()
                await self._clock.sleep(TAKEOVER_INTERVAL)
        self._waits = False
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(), name=f"tidegate: leads {self._name}")

    async def give_up(self) -> None:
        """Another process may lead at once."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self.is_ours:
            self._until = 0.0
            try:
                await self._inbox.give_back(self._name)
            except StoreError as error:
                log.debug("%s", error)  # the lease runs out

    async def _take(self) -> bool:
        asked_at = self._clock.monotonic()
        taken = await self._inbox.lease(self._name, LEASE_SECONDS)
        # Counted from before the question: we stop before anybody else can start.
        self._until = asked_at + LEASE_SECONDS if taken else 0.0
        return taken

    async def _renew(self) -> None:
        while self.is_ours:
            await self._clock.sleep(RENEW_INTERVAL)
            try:
                await self._take()
            except StoreError as error:
                log.debug("%s", error)  # it is ours until it runs out

    def _say_that_it_waits(self) -> None:
        if not self._waits:
            log.info("another process polls for %s: this one waits to take over", self._name)
        self._waits = True
