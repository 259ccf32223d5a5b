"""One process polls: a lease that is renewed while it is wanted."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError
from tidegate.polling.failure_log import FailureLog
from tidegate.polling.subscriptions import Subscriptions

log = logging.getLogger("tidegate.polling")

LEASE: Final = 6.0  # seconds until another process may poll after this one has died
RENEW: Final = 2.0  # seconds
ASK: Final = 1.0  # seconds between two tries to become the one


class Leadership:
    """`hold` as often as you like: it returns at once while this process leads.

    `term` counts how often it became the one: what is known from an earlier term may be outdated.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        clock: Clock,
        name: str,
        *,
        troubles: FailureLog,
        on_wait: Callable[[], None],
    ) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._name = name
        self._troubles = troubles
        self._on_wait = on_wait
        self._until = 0.0  # monotonic
        self._renewing: asyncio.Task[None] | None = None
        self.term = 0
        self.waits = False  # another process leads

    @property
    def is_ours(self) -> bool:
        return self._clock.monotonic() < self._until

    async def hold(self) -> None:
        """Wait until this process leads. It does not if the store cannot be reached: others may."""
        if self.is_ours:
            return
        while not await self._try():
            await self._clock.sleep(ASK)
        self.term += 1
        self.waits = False
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(), name=f"tidegate: polls {self._name}")

    def lose(self) -> None:
        """The store says that another process leads, whatever our clock says."""
        self._until = 0.0

    async def give_up(self) -> None:
        """Another process may poll at once."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self.is_ours:
            self._until = 0.0
            try:
                await self._subscriptions.give_back()
            except (StoreError, ClosedError) as error:
                log.debug("%s", error)  # the lease runs out
        self.waits = False

    async def _try(self) -> bool:
        try:
            taken = await self._take()
        except StoreError as error:
            self._troubles.note(error, doing="reach its store")
            return False
        self._troubles.over("reach its store")
        if not taken and not self.waits:
            log.info("another process polls for %s: this one waits to take over", self._name)
        self.waits = not taken
        if self.waits:
            self._on_wait()
        return taken

    async def _take(self) -> bool:
        asked_at = self._clock.monotonic()
        taken = await self._subscriptions.lease(LEASE)
        # Counted from before the question: we stop before anybody else can start.
        self._until = asked_at + LEASE if taken else 0.0
        return taken

    async def _renew(self) -> None:
        while self.is_ours:
            await self._clock.sleep(RENEW)
            try:
                if self.is_ours:  # else another one may have polled meanwhile: a new term begins
                    await self._take()
            except StoreError as error:
                log.debug("%s", error)  # it is ours until it runs out
