"""What this process holds, and says so again and again: who falls silent is taken for dead."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.inbound.arrivals import Held
from tidegate.inbound.inbox.redis.rows import place_of

log = logging.getLogger("tidegate.inbound")

EVERY: Final = 2.5  # seconds; a lease lasts 8
AGAIN: Final = 0.5  # seconds after a try that failed
AT_ONCE: Final = 500

# Says that these, each with its place and token, are held; which of them are not any more, counted from 0.
Renew = Callable[[list[tuple[str, str]]], Awaitable[list[int]]]


class Holding:
    """Renews between `start` and `stop`. What it holds is forgotten when it was settled, or lost."""

    def __init__(self, clock: Clock, renew: Renew) -> None:
        self._clock = clock
        self._renew = renew
        self._held: dict[str, Held] = {}
        self._ending: set[str] = set()  # Redis may know that they have ended, and we not yet
        self._renewing: asyncio.Task[None] | None = None
        self._said_at = 0.0  # monotonic

    def start(self) -> None:
        self._renewing = asyncio.create_task(self._live(), name="tidegate: inbox, leases")

    async def stop(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
            self._renewing = None
        self._held.clear()

    def add(self, held: Iterable[Held]) -> None:
        self._held.update((one.id, one) for one in held)

    @contextmanager
    def ending(self, held: Iterable[Held]) -> Iterator[None]:
        """While Redis is told that these have ended. If it was not, they are held as before."""
        ids = {one.id for one in held}
        self._ending |= ids
        try:
            yield
        finally:
            self._ending -= ids

    def forget(self, held: Iterable[Held]) -> None:
        for one in held:
            self._held.pop(one.id, None)

    async def _live(self) -> None:
        while True:
            try:
                await self._say_so()
            except StoreError:  # told by whoever claims
                await self._clock.sleep(AGAIN)
            else:
                await self._clock.sleep(EVERY)

    async def catch_up(self) -> None:
        """Before a claim: who was held up longer than a lease must not take its own for a dead one's."""
        if self._held and self._clock.monotonic() - self._said_at > 2 * EVERY:
            await self._say_so()

    async def _say_so(self) -> None:
        held, now = list(self._held.values()), self._clock.monotonic()
        for first in range(0, len(held), AT_ONCE):
            some = held[first : first + AT_ONCE]
            lost = [some[place] for place in await self._renew([place_of(one) for one in some])]
            self._lose([one for one in lost if one.id in self._held and one.id not in self._ending])
        self._said_at = now

    def _lose(self, lost: list[Held]) -> None:
        self.forget(lost)
        if lost:
            log.warning(
                "%d updates were given to another process, as this one was not heard of for too long: their"
                " handlers run twice",
                len(lost),
            )
