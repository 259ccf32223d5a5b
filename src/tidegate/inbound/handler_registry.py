"""The registry of handlers by source, and the dispatcher that runs them."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.inbound.dispatcher import (
    HANDLER_DEADLINE,
    HANDLERS_AT_ONCE,
    InboxDispatcher,
    ItemHandler,
    RegisteredHandler,
    StallWatch,
)
from tidegate.inbound.inbox import Inbox, InboxItem, InboxSource, InboxStats
from tidegate.inbound.updates import Order

# Returns False for an item that is not to be stored, each time that it is asked about the same one.
AcceptFilter = Callable[[InboxItem], Awaitable[bool]]

WAITING_ITEMS_WHILE_FETCHING: Final = 10_000  # then long polling pauses, and Telegram keeps the rest


class HandlerRegistry:
    """One for each open gate. Accepts items at any time; dispatches them between `start` and `stop`.

    A source is known if this process accepts its items. It has a handler if this process handles them, too.
    """

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        *,
        at_once: int = HANDLERS_AT_ONCE,
        deadline: float = HANDLER_DEADLINE,
        repeats: bool = False,
        stall_watch: StallWatch | None = None,
    ) -> None:
        self.inbox = inbox
        self._handlers: dict[InboxSource, RegisteredHandler] = {}
        self._filters: dict[InboxSource, AcceptFilter | None] = {}  # of every known source
        self._orders: dict[InboxSource, Order] = {}
        self._dispatcher = InboxDispatcher(inbox, clock, self._handlers, at_once=at_once, deadline=deadline)
        self._repeats = repeats  # whatever is cut off is handled again
        self._stall_watch = stall_watch
        self._starts = 0
        self._starting = asyncio.Lock()

    def register(
        self, source: InboxSource, handler: ItemHandler, *, attempts: int = 1, is_repeatable: bool = False
    ) -> None:
        """Handle the items of this source in this process from now on. See `RegisteredHandler`."""
        if source in self._handlers:
            raise BadInputError(f"{source} has a handler already: one is enough")
        self._handlers[source] = RegisteredHandler(handler, attempts, is_repeatable or self._repeats)
        self._filters.setdefault(source, None)
        self._dispatcher.wake()

    def unregister(self, source: InboxSource) -> None:
        """Take back `register`: its items wait in the inbox."""
        self._handlers.pop(source, None)

    def has_handler(self, source: InboxSource) -> bool:
        return source in self._handlers

    async def finish(self, source: InboxSource, grace: float) -> None:
        """After `unregister`: wait `grace` seconds for its handlers; unfinished items go back."""
        await self._dispatcher.finish(source, grace)

    def add_source(
        self, source: InboxSource, accept_filter: AcceptFilter | None = None, order: Order = "user"
    ) -> None:
        """Accept the items of this source that pass its filter, whichever process handles them."""
        self._filters[source] = accept_filter
        self._orders[source] = order

    def remove_source(self, source: InboxSource) -> None:
        """Take back `add_source`."""
        self._filters.pop(source, None)
        self._orders.pop(source, None)

    def order_of(self, source: InboxSource) -> Order:
        """Return which of its updates are handled one after another."""
        return self._orders.get(source, "user")

    def knows(self, source: InboxSource) -> bool:
        return source in self._filters

    @property
    def handling(self) -> int:
        return self._dispatcher.handling

    async def accept(self, items: Sequence[InboxItem]) -> list[bool]:
        """Store items as the inbox does. False also for filtered ones: a flood costs no disk."""
        if all(self._filters.get(item.source) is None for item in items):
            return await self.inbox.accept(items)
        passes = [await self._passes(item) for item in items]
        passed = list(itertools.compress(items, passes))
        is_new = iter(await self.inbox.accept(passed) if passed else [])
        return [passing and next(is_new) for passing in passes]

    async def _passes(self, item: InboxItem) -> bool:
        accept_filter = self._filters.get(item.source)
        return accept_filter is None or await accept_filter(item)

    async def has_room(self, source: InboxSource) -> bool:
        """Return whether long polling may fetch more of this source."""
        return await self.inbox.waiting(source) < WAITING_ITEMS_WHILE_FETCHING

    async def stats(self) -> InboxStats:
        return await self.inbox.stats()

    def problems(self) -> list[str]:
        """Why updates are not handled as they should be, a line each."""
        return self._dispatcher.problems()

    async def start(self) -> None:
        """Dispatch items. Each start needs its `stop`."""
        async with self._starting:
            if self._starts == 0:
                await self._dispatcher.start()
                if self._stall_watch is not None:
                    self._stall_watch.start()
            self._starts += 1

    def end_at_once(self) -> None:
        """Give handlers no time to end when it stops, or no more if it does so now."""
        self._dispatcher.end_at_once()

    async def stop(self, grace: float = 5.0) -> None:
        """The last one waits for handlers, `grace` seconds at most; unfinished items go back."""
        async with self._starting:
            self._starts = max(0, self._starts - 1)
            if self._starts == 0:
                if self._stall_watch is not None:
                    self._stall_watch.stop()
                await self._dispatcher.stop(grace)
