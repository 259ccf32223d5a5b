"""Long polling: fetched updates are stored before Telegram is told."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import bot_source
from tidegate.inbound.updates import Json, update_item
from tidegate.leader_lease import LeaderLease, LeaseStore

log = logging.getLogger("tidegate.inbound")

STORE_RETRY_PAUSE: Final = 1.0  # seconds until a store that failed is tried again

# getUpdates from an offset on. Raises whatever the bot's library does.
FetchUpdates = Callable[[int | None], Awaitable[list[Json]]]


class UpdateSink(Protocol):
    """Where the updates of a bot are stored."""

    leases: LeaseStore  # of the process that fetches

    async def has_room(self) -> bool:
        """Return whether more may be fetched."""
        ...

    async def accept(self, updates: list[Json]) -> int:
        """Durable when this returns; return how many were new. Raises StoreError."""
        ...


class InboxSink(UpdateSink):
    """Stores the updates of a bot in the inbox."""

    def __init__(self, bot: int, registry: HandlerRegistry) -> None:
        self._bot = bot
        self._registry = registry
        self.leases = registry.inbox.leases

    async def has_room(self) -> bool:
        return await self._registry.has_room(bot_source(self._bot))

    async def accept(self, updates: list[Json]) -> int:
        order = self._registry.order_of(bot_source(self._bot))
        return sum(
            await self._registry.accept([update_item(self._bot, update, order=order) for update in updates])
        )


class LongPoller:
    """Fetches the updates of one bot. Of several processes only the leader fetches."""

    def __init__(
        self, bot: int, sink: UpdateSink, clock: Clock, *, on_wait: Callable[[], None] | None = None
    ) -> None:
        """`on_wait` is called each time that another process is found to lead."""
        self._bot = bot
        self._sink = sink
        self._clock = clock
        self.lease = LeaderLease(
            sink.leases,
            clock,
            bot_source(bot),
            log=log,
            on_wait=on_wait,
            on_store_error=lambda error: log.debug("%s", error),
        )
        # None: whatever is not confirmed to Telegram. The sink recognises what it has.
        self._offset: int | None = None

    def confirm_before(self, offset: int) -> None:
        """Have the next poll confirm the updates before this one, unless it confirms more."""
        self._offset = max(self._offset or 0, offset)

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
        while True:
            try:
                return await self._sink.accept(updates)
            except StoreError as error:
                log.warning("updates of bot %s cannot be stored, trying again: %s", self._bot, error)
                await self._clock.sleep(STORE_RETRY_PAUSE)

    async def _wait_for_room(self) -> None:
        is_logged = False
        while True:
            try:
                if await self._sink.has_room():
                    return
            except StoreError:
                return  # logged when updates are to be stored
            if not is_logged:
                log.warning("too many updates wait to be handled: bot %s fetches no more for now", self._bot)
            is_logged = True
            await self._clock.sleep(STORE_RETRY_PAUSE)
