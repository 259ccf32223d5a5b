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

STORE_RETRY_PAUSE: Final = 1.0  # seconds until a store that takes nothing is tried again

# getUpdates from an offset on. Raises whatever the bot's library does.
FetchUpdates = Callable[[int | None], Awaitable[list[Json]]]


class LongPoller:
    """Of one bot, in one process. Of several processes only the one that leads fetches."""

    def __init__(self, bot: int, reception: HandlerRegistry, clock: Clock) -> None:
        self._bot = bot
        self._reception = reception
        self._clock = clock
        self._leadership = LeaderLease(reception.inbox.leases, clock, bot_source(bot), log=log)
        self._offset: int | None = None  # None: whatever Telegram has not been told of; known ones are known

    async def poll(self, fetch: FetchUpdates) -> int:
        """Once: lead, have room, fetch, hold; returns how many were new. The next poll confirms them."""
        await self._room()
        await self._leadership.hold()
        updates = await fetch(self._offset)
        if not updates:
            return 0
        fresh = await self._accept(updates)
        self._offset = updates[-1]["update_id"] + 1
        return fresh

    async def stop(self) -> None:
        await self._leadership.give_up()

    async def _accept(self, updates: list[Json]) -> int:
        """As long as it takes: nothing more is fetched meanwhile, and Telegram keeps the rest."""
        arrivals = [update_item(self._bot, update) for update in updates]
        while True:
            try:
                return sum(await self._reception.accept(arrivals))
            except StoreError as error:
                log.warning("updates of bot %s cannot be held, trying again: %s", self._bot, error)
                await self._clock.sleep(STORE_RETRY_PAUSE)

    async def _room(self) -> None:
        said = False
        while True:
            try:
                if await self._reception.has_room():
                    return
            except StoreError:
                return  # it is told when something is to be held
            if not said:
                log.warning("too many updates wait to be handled: bot %s fetches no more for now", self._bot)
            said = True
            await self._clock.sleep(STORE_RETRY_PAUSE)
