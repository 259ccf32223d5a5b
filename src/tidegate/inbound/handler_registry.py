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
)
from tidegate.inbound.inbox import Inbox, InboxItem, InboxSource, InboxStats
from tidegate.inbound.stall_watch import StallWatch

# Whether an arrival is let pass. Asked again about the same one, it says the same.
AcceptFilter = Callable[[InboxItem], Awaitable[bool]]

WAITING_ITEMS_WHILE_FETCHING: Final = (
    10_000  # arrivals that wait; then polling pauses, so that Telegram keeps the rest
)


class HandlerRegistry:
    """One for each gate that is open. Accepts at any time; hands out between `start` and `stop`."""

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        *,
        at_once: int = HANDLERS_AT_ONCE,
        deadline: float = HANDLER_DEADLINE,
        stalls: StallWatch | None = None,
    ) -> None:
        self.inbox = inbox
        self._services: dict[InboxSource, RegisteredHandler] = {}
        self._guards: dict[InboxSource, AcceptFilter | None] = {}
        self._desk = InboxDispatcher(inbox, clock, self._services, at_once=at_once, deadline=deadline)
        self._stalls = stalls
        self._starts = 0
        self._starting = asyncio.Lock()

    def serve(self, source: InboxSource, handler: ItemHandler, *, attempts: int = 1) -> None:
        """From now on `handler` gets what this source sends, in this process."""
        if source in self._services:
            raise BadInputError(f"{source} has a handler already: one is enough")
        self._services[source] = RegisteredHandler(handler, attempts)
        self._guards.setdefault(source, None)
        self._desk.look_again()

    def know(self, source: InboxSource, guard: AcceptFilter | None = None) -> None:
        """What this source sends is taken here, whoever handles it, as far as its guard lets it pass."""
        self._guards[source] = guard

    def leave(self, source: InboxSource) -> None:
        """Take back `serve`: what arrives waits."""
        self._services.pop(source, None)

    async def end(self, source: InboxSource, grace: float) -> None:
        """After `leave`: handlers of this source have `grace` seconds; what they did not end goes back."""
        await self._desk.end(source, grace)

    def forget(self, source: InboxSource) -> None:
        """Take back `know`."""
        self._guards.pop(source, None)

    def knows(self, source: InboxSource) -> bool:
        return source in self._guards

    def serves(self, source: InboxSource) -> bool:
        return source in self._services

    @property
    def handling(self) -> int:
        return self._desk.handling

    async def accept(self, arrivals: Sequence[InboxItem]) -> list[bool]:
        """As the inbox does. False also for what is not let pass: a flood costs neither disk nor order."""
        if all(self._guards.get(arrival.source) is None for arrival in arrivals):
            return await self.inbox.accept(arrivals)
        passes = [await self._passes(arrival) for arrival in arrivals]
        let_in = list(itertools.compress(arrivals, passes))
        fresh = iter(await self.inbox.accept(let_in) if let_in else [])
        return [passed and next(fresh) for passed in passes]

    async def _passes(self, arrival: InboxItem) -> bool:
        guard = self._guards.get(arrival.source)
        return guard is None or await guard(arrival)

    async def has_room(self) -> bool:
        """Whether it is time to fetch more."""
        return (await self.stats()).waiting < WAITING_ITEMS_WHILE_FETCHING

    async def stats(self) -> InboxStats:
        return await self.inbox.stats()

    async def start(self) -> None:
        """Hand out what arrives. Each start needs its `stop`."""
        async with self._starting:
            if self._starts == 0:
                await self._desk.start()
                if self._stalls is not None:
                    self._stalls.start()
            self._starts += 1

    async def stop(self, grace: float = 5.0) -> None:
        """The last one waits for handlers, `grace` seconds at most; what they did not end goes back."""
        async with self._starting:
            self._starts = max(0, self._starts - 1)
            if self._starts == 0:
                if self._stalls is not None:
                    self._stalls.stop()
                await self._desk.stop(grace)
