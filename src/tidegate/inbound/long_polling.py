"""Long polling: fetched updates are stored in the inbox before Telegram is told."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import bot_source
from tidegate.inbound.updates import Json, update_item
from tidegate.leader_lease import LeaderLease

log = logging.getLogger("tidegate.inbound")

STORE_RETRY_PAUSE: Final = 1.0  # seconds until a store that failed is tried again

# getUpdates from an offset on. Raises whatever the bot's library does.
FetchUpdates = Callable[[int | None], Awaitable[list[Json]]]


class LongPoller:
    """Fetches the updates of one bot. Of several processes only the leader fetches."""

    def __init__(self, bot: int, registry: HandlerRegistry, clock: Clock) -> None:
        self._bot = bot
        self._registry = registry
        self._clock = clock
        self.lease = LeaderLease(
            registry.inbox.leases,
            clock,
            bot_source(bot),
            log=log,
            on_store_error=lambda error: log.debug("%s", error),
        )
        # None: whatever is not confirmed to Telegram. The inbox recognises what it has.
        self._offset: int | None = None

    async def poll(self, fetch: FetchUpdates) -> int:
        """Lead, have room, fetch, store, once. Return how many were new. The next poll confirms them."""
        await self._wait_for_room()
        await self.lease.hold()
        updates = await fetch(self._offset)
        if not updates:
            return 0
        new = await self._accept(updates)
        self._offset = updates[-1]["update_id"] + 1
        return new

    async def stop(self) -> None:
        await self.lease.give_up()

    async def _accept(self, updates: list[Json]) -> int:
        """Try until they are stored: nothing more is fetched meanwhile, and Telegram keeps the rest."""
        order = self._registry.order_of(bot_source(self._bot))
        items = [update_item(self._bot, update, order=order) for update in updates]
        while True:
            try:
                return sum(await self._registry.accept(items))
            except StoreError as error:
                log.warning("updates of bot %s cannot be stored, trying again: %s", self._bot, error)
                await self._clock.sleep(STORE_RETRY_PAUSE)

    async def _wait_for_room(self) -> None:
        is_logged = False
        while True:
            try:
                if await self._registry.has_room(bot_source(self._bot)):
                    return
            except StoreError:
                return  # logged when updates are to be stored
            if not is_logged:
                log.warning("too many updates wait to be handled: bot %s fetches no more for now", self._bot)
            is_logged = True
            await self._clock.sleep(STORE_RETRY_PAUSE)
