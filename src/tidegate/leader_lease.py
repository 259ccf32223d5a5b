"""One leader among processes: a lease in the store, renewed while it is wanted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from tidegate.clock import Clock
from tidegate.errors import ClosedError, NotTheSenderError, StoreError
from tidegate.tasks import BackgroundTasks

LEASE_SECONDS: Final = 6.0  # until another process may lead after this one has died
RENEW_INTERVAL: Final = 2.0  # seconds
TAKEOVER_INTERVAL: Final = 1.0  # seconds between two tries to become the leader


class LeaseStore(Protocol):
    """Named leases, each held by one holder at a time. Every LeaseStore object is a holder of its own."""

    async def lease(self, name: str, seconds: float) -> bool:
        """Take the lease or extend it; False while another holder has it. Raises StoreError."""
        ...

    async def give_back(self, name: str) -> None:
        """End the lease at once, if it is this holder's."""


class UncontestedLeases(LeaseStore):
    """The leases of a store that only one process uses: always granted."""

    async def lease(self, name: str, seconds: float) -> bool:  # noqa: ARG002  (the port's)
        return True

    async def give_back(self, name: str) -> None:
        """Nothing is kept."""


class LeaderLease:
    """Holds one lease for this process. `hold` returns at once while this process leads.

    `term` counts how often it became the leader: what is known from an earlier term may be outdated.
    """

    def __init__(
        self,
        leases: LeaseStore,
        clock: Clock,
        name: str,
        *,
        log: logging.Logger,
        on_wait: Callable[[], None] | None = None,
        on_store_error: Callable[[StoreError], object] | None = None,
        on_store_back: Callable[[], object] | None = None,
    ) -> None:
        """`on_wait` is called each time that another process is found to lead.

        `on_store_error` is called for each try that the store did not answer, `on_store_back` for each that
        it did.
        """
        self._leases = leases
        self._clock = clock
        self._name = name
        self._log = log
        self._on_wait = on_wait
        self._on_store_error = on_store_error
        self._on_store_back = on_store_back
        self._until = 0.0  # monotonic
        self._tasks = BackgroundTasks()
        self._renewal: asyncio.Task[None] | None = None
        self.term = 0
        self.waits = False  # another process leads

    @property
    def is_ours(self) -> bool:
        return self._clock.monotonic() < self._until

    async def hold(self) -> None:
        """Wait until this process leads. It does not lead while the store cannot be reached: others may."""
        if self.is_ours:
            return
        while not await self._try():
            await self._clock.sleep(TAKEOVER_INTERVAL)
        self.term += 1
        if self._renewal is None or self._renewal.done():
            self._renewal = self._tasks.start(self._renew(), f"leads {self._name}")

    def lose(self) -> None:
        """The store has refused a step because another process leads, whatever the clock here says."""
        self._until = 0.0

    async def give_up(self) -> None:
        """Let another process lead at once."""
        await self._tasks.stop()
        if self.is_ours:
            self._until = 0.0
            try:
                await self._leases.give_back(self._name)
            except (StoreError, ClosedError) as error:
                self._log.debug("%s", error)  # the lease runs out
        self.waits = False

    async def _try(self) -> bool:
        try:
            taken = await self._take()
        except StoreError as error:
            if self._on_store_error is not None:
                self._on_store_error(error)
            return False
        if self._on_store_back is not None:
            self._on_store_back()
        if not taken and not self.waits:
            self._log.info("another process polls for %s: this one waits to take over", self._name)
        self.waits = not taken
        if self.waits and self._on_wait is not None:
            self._on_wait()
        return taken

    async def _take(self) -> bool:
        asked_at = self._clock.monotonic()
        taken = await self._leases.lease(self._name, LEASE_SECONDS)
        # Counted from before the request: this process stops before any other can start.
        self._until = asked_at + LEASE_SECONDS if taken else 0.0
        return taken

    async def _renew(self) -> None:
        while self.is_ours:
            await self._clock.sleep(RENEW_INTERVAL)
            try:
                if self.is_ours:  # else another process may have led meanwhile, and a new term begins
                    await self._take()
            except StoreError as error:
                self._log.debug("%s", error)  # it is ours until it runs out


async def take_over(
    start: Callable[[], Awaitable[object]],
    clock: Clock,
    log: logging.Logger,
    *,
    is_wanted: Callable[[], bool] = lambda: True,
) -> int | None:
    """Call `start` until it succeeds, once a second while another process is the sender of the store.

    Return how often it was refused; None if it is not wanted any more before it succeeds.
    """
    refusals = 0
    while True:
        try:
            await start()
        except NotTheSenderError as error:
            refusals += 1
            if refusals == 1:
                log.warning("%s. This one waits to take over", error)
        else:
            return refusals
        if not is_wanted():
            return None
        await clock.sleep(TAKEOVER_INTERVAL)
