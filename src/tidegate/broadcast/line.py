"""What of a broadcast waits in the outbox: a short line, however long the audience is."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tidegate.audience.template import Row
from tidegate.broadcast.gone import Gone
from tidegate.broadcast.tally import Tally
from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.model import ChatId, Record, State, TicketId
from tidegate.outbox.base import Outbox
from tidegate.tickets import LiveTicket

LOOK_AGAIN: Final = 60.0  # seconds; nobody tells of a message that was erased from the store
PATIENCE: Final = 5.0  # seconds until the next look, while the store cannot be read
GRACE: Final = 10.0  # seconds to wait for on_dead when the gate closes


class Letter(NamedTuple):
    """What one of the audience gets."""

    number: int  # of the row
    row: Row
    fields: dict[str, Any]
    copy: int = 1  # above 1 if those before it were taken back

    @property
    def chat_id(self) -> ChatId:
        chat: ChatId = self.fields["chat_id"]
        return chat

    @property
    def key(self) -> str:
        """An @name means the same chat in any case."""
        chat = str(self.chat_id).lower()
        return chat if self.copy == 1 else f"{chat}+{self.copy}"


PutAgain = Callable[[Letter], Awaitable[LiveTicket | None]]


class _Place:
    """One that waits."""

    __slots__ = ("ended", "letter", "task", "ticket")

    def __init__(self, letter: Letter, ticket: LiveTicket) -> None:
        self.letter = letter
        self.ticket = ticket
        self.ended = False  # and now on_dead is told
        self.task: asyncio.Task[None] | None = None


class Line:
    """Follows each message to its end: counts it, tells who is gone, and gives its place free after that.

    `put_again` puts a letter that an earlier call had put and taken back; it gives None if that cannot be, as
    this call is cancelled too.
    """

    def __init__(self, outbox: Outbox, clock: Clock, tally: Tally, gone: Gone, *, ahead: int) -> None:
        self._outbox = outbox
        self._clock = clock
        self._tally = tally
        self._gone = gone
        self._ahead = ahead
        self._places: dict[str, _Place] = {}  # by chat
        self._moved = asyncio.Event()
        self.put_again: PutAgain = _never

    async def room(self, count: int) -> None:
        """Wait until so many more may come."""
        while len(self._places) + count > self._ahead:
            await self._move()

    async def empty(self) -> None:
        """Wait until all have ended, and on_dead with them."""
        while self._places:
            await self._move()

    async def _move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def enter(self, letter: Letter, ticket: LiveTicket) -> None:
        chat = letter.key
        if chat in self._places:
            self._tally.repeat()
            return
        self._tally.enter(fresh=ticket.fresh)
        place = self._places[chat] = _Place(letter, ticket)
        place.task = asyncio.create_task(self._follow(chat, place), name=f"tidegate: broadcast to {chat}")

    async def take_back(self) -> None:
        """Cancel what is not being sent yet."""
        await self._outbox.cancel([place.ticket.id for place in self._places.values()])

    async def close(self) -> None:
        """Follow nobody any longer. An on_dead that runs may end, for a while."""
        for place in self._places.values():
            if place.task is not None and not place.ended:
                place.task.cancel()
        with suppress(TimeoutError):
            async with self._clock.timeout(GRACE):
                await self.empty()
        left = [place.task for place in self._places.values() if place.task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # --- one of them ---

    async def _follow(self, chat: str, place: _Place) -> None:
        try:
            record = await self._end_of(place)
            place.ended = True
            if self._is_counted(place.ticket, record):
                self._tally.leave_repeated()
                return
            self._tally.leave(record, fresh=place.ticket.fresh)
            if record is not None and record.state == State.DEAD:
                await self._gone.tell(place.letter.row, record.reason)
        finally:
            del self._places[chat]
            self._moved.set()

    async def _end_of(self, place: _Place) -> Record | None:
        """What was taken back from an earlier call of the same name goes now."""
        while True:
            record = await self._settled(place.ticket.id)
            if not self._was_taken_back(record):
                return record
            letter = place.letter._replace(copy=place.letter.copy + 1)
            again = await self.put_again(letter)
            if again is None:
                return record
            place.letter, place.ticket = letter, again
            if again.fresh:
                self._tally.put_again()

    async def _settled(self, ticket: TicketId) -> Record | None:
        while True:
            try:
                async with self._clock.timeout(LOOK_AGAIN):
                    return await self._outbox.settled(ticket)
            except TimeoutError:
                continue
            except LookupError:
                return None
            except StoreError:
                await self._clock.sleep(PATIENCE)

    def _was_taken_back(self, record: Record | None) -> bool:
        """Before this call, that is."""
        return (
            record is not None
            and record.state == State.CANCELLED
            and (record.settled_at or 0.0) <= self._tally.started_at
        )

    def _is_counted(self, ticket: LiveTicket, record: Record | None) -> bool:
        """Whether an earlier row of this call put it, or another process that sends the same broadcast."""
        return not ticket.fresh and record is not None and record.created_at >= self._tally.started_at


async def _never(_: Letter) -> LiveTicket | None:
    return None
