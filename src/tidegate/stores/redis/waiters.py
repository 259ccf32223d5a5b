"""Futures of callers that wait for a message to be settled by any process."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.model import Record, TicketId
from tidegate.outbox.dispatcher import SettledWaiters
from tidegate.tasks import BackgroundTasks

FIRST_LOOK_AFTER: Final = 0.02  # seconds between two looks for what other processes may have settled
SHORTEST_PAUSE: Final = 0.001
LONGEST_PAUSE: Final = 0.5
PAUSE_GROWTH: Final = 1.5  # with each look in vain
TICKETS_PER_LOOK: Final = 500


class EndedMessages(NamedTuple):
    """The answer to a look for messages that have ended."""

    records: list[Record]
    gone: set[TicketId]  # nothing is known of these any more
    due: float | None  # seconds until something is due


FindEnded = Callable[[list[TicketId]], Awaitable[EndedMessages]]


class RedisSettledWaiters:
    """`find_ended` looks for some tickets."""

    def __init__(self, clock: Clock, find_ended: FindEnded) -> None:
        self._clock = clock
        self._find_ended = find_ended
        self._waiters = SettledWaiters(lambda _: 0)  # what is left unsettled is asked of Redis
        self._tasks = BackgroundTasks()
        self._pause = FIRST_LOOK_AFTER
        self._ended_here = asyncio.Event()

    async def close(self) -> None:
        self._waiters.close()
        await self._tasks.stop()

    def problems(self) -> list[str]:
        return self._tasks.problems()

    async def end_of(self, ticket: TicketId) -> Record:
        ended = self._waiters.end_of(ticket)
        self._pause = FIRST_LOOK_AFTER
        if not self._tasks:
            self._tasks.supervise(self._look, "waiting for the ends of messages", self._clock)
        return await ended

    def ended(self, record: Record) -> None:
        """A message has ended by a step of this process."""
        self._ended_here.set()
        self._waiters.ended(record.message.id, lambda: record)

    async def pause(self) -> None:
        """Wait until a message has ended here, or it is time to look again."""
        self._ended_here.clear()
        with suppress(TimeoutError):
            async with self._clock.timeout(self._pause):
                await self._ended_here.wait()
        self._pause = min(LONGEST_PAUSE, self._pause * PAUSE_GROWTH)

    async def _look(self) -> None:
        due: float | None = None
        while self._waiters:
            soonest = self._pause if due is None else max(due, SHORTEST_PAUSE)
            await self._clock.sleep(min(soonest, self._pause))
            self._pause = min(LONGEST_PAUSE, self._pause * PAUSE_GROWTH)
            tickets = self._waiters.tickets
            for first in range(0, len(tickets), TICKETS_PER_LOOK):
                due = None
                with suppress(StoreError):
                    found = await self._find_ended(tickets[first : first + TICKETS_PER_LOOK])
                    due = found.due
                    for record in found.records:
                        self.ended(record)
                    for ticket in found.gone:
                        text = f"message {ticket} is gone: it was erased, or Redis has lost its data"
                        self._waiters.lost(ticket, LookupError(text))
