"""The messages on their way: held back here, put there, removed here; some at a time, in order."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tidegate.clock import Clock
from tidegate.errors import StoreAwayError, StoreFullError
from tidegate.model import Message, Ticket, TicketId
from tidegate.outbox.base import Outbox
from tidegate.outbox.sqlite import moving
from tidegate.outbox.sqlite.file import StoreFile, Transaction


class Carried(msgspec.Struct):
    """`known`: an earlier run had put them already. `duplicates`: their dedup key was put there by others."""

    moved: int = 0
    known: int = 0
    duplicates: int = 0

    @property
    def all(self) -> int:
        return self.moved + self.known + self.duplicates

    def count(self, messages: Sequence[Message], tickets: Sequence[Ticket]) -> None:
        for message, ticket in zip(messages, tickets, strict=True):
            self.moved += ticket.fresh
            self.known += not ticket.fresh and ticket.id == message.id
            self.duplicates += not ticket.fresh and ticket.id != message.id


class Carrier:
    """Nothing is lost or in both stores to be sent, wherever it is killed.

    What is held back here when it is killed may be there or not: the next run puts it again, which changes
    nothing there while it is known.
    """

    def __init__(self, file: StoreFile, target: Outbox, clock: Clock) -> None:
        self._file, self._target, self._clock = file, target, clock
        self.carried = Carried()

    async def carry(self, stop: asyncio.Event, tell: Callable[[int], None]) -> None:
        """Until nothing waits, or `stop`."""
        while not stop.is_set() and await self._file.read(self._line_up):
            after, done = 0, list[TicketId]()
            while True:
                after, chunk = await self._next(done, None if stop.is_set() else after)
                if not chunk:
                    break
                self.carried.count(chunk, await self._put(chunk))
                done = [message.id for message in chunk]
                tell(self.carried.all)

    def _line_up(self, tx: Transaction) -> int:
        return moving.line_up(tx, self._clock.now())

    async def _next(self, done: list[TicketId], after: int | None) -> tuple[int, list[Message]]:
        """One step: what is done leaves, and the next are held back, unless there shall be none."""

        def step(tx: Transaction) -> tuple[int, list[Message]]:
            moving.remove(tx, done)
            return (0, []) if after is None else moving.take(tx, after, self._clock.now())

        following: tuple[int, list[Message]] = await self._file.write(step)
        return following

    async def _put(self, chunk: list[Message]) -> list[Ticket]:
        ids = [message.id for message in chunk]
        try:
            return await self._target.put(chunk)
        except StoreFullError:  # it has surely taken none of them
            await self._file.write(lambda tx: moving.let_go(tx, ids))
            raise
        except StoreAwayError as error:
            held = f"{len(chunk)} messages may be there or not, and are held back in the file"
            raise StoreAwayError(f"{error} {held}: run the same command again soon") from error
