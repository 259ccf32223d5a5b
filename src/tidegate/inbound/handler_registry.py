"""The registry of handlers by source, and the dispatcher that runs them."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.events import EventStream, UpdateReceived
from tidegate.inbound.dispatcher import (
    HANDLER_DEADLINE,
    HANDLERS_AT_ONCE,
    InboxDispatcher,
    ItemHandler,
    RegisteredHandler,
)
from tidegate.inbound.inbox import Inbox, InboxItem, InboxSource, InboxStats, UnreadableBodyError, bot_of
from tidegate.inbound.updates import Json, Order, decode_update
from tidegate.incidents import SlowCalls
from tidegate.model import BotId


class AcceptFilter(Protocol):
    """Decides which items are stored, and when they are handled."""

    @property
    def is_queue(self) -> bool:
        """True if it needs the number of items ahead."""
        ...

    async def admit(self, item: InboxItem, ahead: int) -> InboxItem | None:
        """Return the item as it is to be stored; None if it is not. `ahead`: items of its lane."""
        ...

    async def turn(self, item: InboxItem) -> float:
        """Return the seconds that a stored item has to wait before it is handled."""
        ...


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
        slow_calls: SlowCalls | None = None,
        events: EventStream | None = None,
    ) -> None:
        self.inbox = inbox
        self._events = events or EventStream()
        self._handlers: dict[InboxSource, RegisteredHandler] = {}
        self._filters: dict[InboxSource, AcceptFilter | None] = {}  # of every known source
        self._orders: dict[InboxSource, Order] = {}
        self._dispatcher = InboxDispatcher(
            inbox,
            clock,
            self._handlers,
            at_once=at_once,
            deadline=deadline,
            turn=self._turn,
            slow_calls=slow_calls,
        )
        self._repeats = repeats  # whatever is cut off is handled again
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
        is_new = await self._accept(items)
        if self._events.has(UpdateReceived):
            self._tell([item for item, new in zip(items, is_new, strict=True) if new])
        return is_new

    def _tell(self, items: Sequence[InboxItem]) -> None:
        for item in items:
            if (bot := bot_of(item.source)) is not None:
                self._events.publish(UpdateReceived(BotId(bot), partial(_content_of, item.body)))

    async def _accept(self, items: Sequence[InboxItem]) -> list[bool]:
        if all(self._filters.get(item.source) is None for item in items):
            return await self.inbox.accept(items)
        ahead: dict[tuple[InboxSource, str], int] = {}  # by lane, also those of this call
        admitted = [await self._admit(item, ahead) for item in items]
        passed = [item for item in admitted if item is not None]
        is_new = iter(await self.inbox.accept(passed) if passed else [])
        return [item is not None and next(is_new) for item in admitted]

    async def _admit(self, item: InboxItem, ahead: dict[tuple[InboxSource, str], int]) -> InboxItem | None:
        accept_filter, lane = self._filters.get(item.source), (item.source, item.lane)
        if accept_filter is None:
            return item
        if accept_filter.is_queue and lane not in ahead:
            ahead[lane] = await self.inbox.lane_length(item)
        admitted = await accept_filter.admit(item, ahead.get(lane, 0))
        if admitted is not None and admitted.lane == item.lane:
            ahead[lane] = ahead.get(lane, 0) + 1
        return admitted

    async def _turn(self, item: InboxItem) -> float:
        accept_filter = self._filters.get(item.source)
        return 0.0 if accept_filter is None else await accept_filter.turn(item)

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
            self._starts += 1

    def end_at_once(self) -> None:
        """Give handlers no time to end when it stops, or no more if it does so now."""
        self._dispatcher.end_at_once()

    async def stop(self, grace: float = 5.0) -> None:
        """The last one waits for handlers, `grace` seconds at most; unfinished items go back."""
        async with self._starting:
            self._starts = max(0, self._starts - 1)
            if self._starts == 0:
                await self._dispatcher.stop(grace)


def _content_of(body: bytes) -> Json:
    try:
        return decode_update(body)
    except UnreadableBodyError:  # its handler meets it, too
        return {}
