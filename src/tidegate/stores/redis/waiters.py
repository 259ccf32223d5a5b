"""Futures of callers that wait for a message to be settled by any process."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError
from tidegate.model import Record, TicketId
from tidegate.outbox.dispatcher import CLOSED_WHILE_WAITING

FIRST_LOOK_AFTER: Final = 0.02  # seconds between two looks at what others may have ended
SHORTEST_PAUSE: Final = 0.001
LONGEST_PAUSE: Final = 0.5
PAUSE_GROWTH: Final = 1.5  # with each look in vain
TICKETS_PER_LOOK: Final = 500  # tickets in one look


FindEnded = Callable[[list[TicketId]], Awaitable[tuple[list[Record], float | None]]]


class RedisSettledWaiters:
    """`look` gives the records of those tickets that have ended, and in how many seconds something is due."""

    def __init__(self, clock: Clock, look: FindEnded) -> None:
        self._clock = clock
        self._look = look
        self._waiting: dict[TicketId, list[asyncio.Future[Record]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._pause = FIRST_LOOK_AFTER
        self.changed = asyncio.Event()  # something ended here

    def close(self) -> list[asyncio.Task[None]]:
        for future in [future for waiting in self._waiting.values() for future in waiting]:
            if not future.done():
                future.set_exception(ClosedError(CLOSED_WHILE_WAITING))
        if self._looking is None:
            return []
        self._looking.cancel()
        return [self._looking]

    async def end_of(self, ticket: TicketId) -> Record:
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(ticket, []).append(future)
        self._pause = FIRST_LOOK_AFTER
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_on(), name="tidegate: watching")
        try:
            return await future
        finally:
            self._forget(ticket, future)

    def ended(self, record: Record) -> None:
        """Here, in this process."""
        self.changed.set()
        for future in self._waiting.get(record.message.id, ()):
            if not future.done():
                future.set_result(record)

    async def pause(self) -> None:
        """Until something ended here, or it is time to look again."""
        self.changed.clear()
        with suppress(TimeoutError):
            async with self._clock.timeout(self._pause):
                await self.changed.wait()
        self._pause = min(LONGEST_PAUSE, self._pause * PAUSE_GROWTH)

    async def _look_on(self) -> None:
        due: float | None = None
        while self._waiting:
            await self._clock.sleep(
                self._pause if due is None else min(max(due, SHORTEST_PAUSE), self._pause)
            )
            self._pause = min(LONGEST_PAUSE, self._pause * PAUSE_GROWTH)
            tickets = list(self._waiting)
            for first in range(0, len(tickets), TICKETS_PER_LOOK):
                due = None
                with suppress(StoreError):
                    records, due = await self._look(tickets[first : first + TICKETS_PER_LOOK])
                    for record in records:
                        self.ended(record)

    def _forget(self, ticket: TicketId, future: asyncio.Future[Record]) -> None:
        waiting = self._waiting.get(ticket, [])
        if future in waiting:
            waiting.remove(future)
        if not waiting:
            self._waiting.pop(ticket, None)
