"""429s that were heard since a broadcast began."""

from contextlib import suppress
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.outbox.base import Outbox

LOOK_EVERY: Final = 1.0  # seconds: some stores answer over the network


class Refusals:
    """Keeps the count at hand, so that a broadcast can say how it stands without asking the store.

    While the store cannot say, or takes too long, the last count stays.
    """

    def __init__(self, outbox: Outbox, clock: Clock) -> None:
        self._outbox = outbox
        self._clock = clock
        self._before: int | None = None  # what the store counted at the first look
        self.count = 0

    async def follow(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_EVERY)
            await self.look()

    async def look(self) -> None:
        with suppress(StoreError, TimeoutError):
            async with self._clock.timeout(LOOK_EVERY):
                refused = (await self._outbox.stats()).refused
            if self._before is None:
                self._before = refused
            self.count = max(self.count, refused - self._before)
