"""Futures of callers that wait for one message to be settled, or for all."""

import asyncio
from collections.abc import Callable

from tidegate.errors import ClosedError
from tidegate.model import BotId, Record, TicketId
from tidegate.outbox.dispatcher import CLOSED_WHILE_WAITING


class SettledWaiters:
    """`left` counts the messages of a bot, or of all bots (None), that are not settled."""

    def __init__(self, left: Callable[[BotId | None], int]) -> None:
        self._left = left
        self._waiting: dict[TicketId, list[asyncio.Future[Record]]] = {}
        self._drainers: list[tuple[BotId | None, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting or self._drainers)

    @property
    def tickets(self) -> list[TicketId]:
        return list(self._waiting)

    def end_of(self, ticket: TicketId) -> asyncio.Future[Record]:
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(ticket, []).append(future)
        future.add_done_callback(lambda future: self._forget(ticket, future))
        return future

    def end_of_all(self, bot: BotId | None) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drainers.append((bot, future))
        self._tell_drainers()
        return future

    def ended(self, ticket: TicketId, record: Callable[[], Record]) -> None:
        """`record` is called only if a caller waits for it."""
        for future in self._waiting.pop(ticket, ()):
            if not future.done():
                future.set_result(record())
        self.changed()

    def lost(self, ticket: TicketId, error: Exception) -> None:
        """Fail those who wait: how the message ended will never be known."""
        for future in self._waiting.pop(ticket, ()):
            if not future.done():
                future.set_exception(error)

    def changed(self) -> None:
        """Some have ended. Look once this step is complete, as the end of one may be the start of another."""
        if self._drainers:
            asyncio.get_running_loop().call_soon(self._tell_drainers)

    def close(self) -> None:
        for ticket in self.tickets:
            self.lost(ticket, ClosedError(CLOSED_WHILE_WAITING))
        for _, future in self._drainers:
            if not future.done():
                future.set_exception(ClosedError(CLOSED_WHILE_WAITING))

    def _forget(self, ticket: TicketId, future: asyncio.Future[Record]) -> None:
        waiting = self._waiting.get(ticket, [])
        if future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._waiting[ticket]

    def _tell_drainers(self) -> None:
        for bot, future in self._drainers:
            if not future.done() and not self._left(bot):
                future.set_result(None)
        self._drainers = [(bot, future) for bot, future in self._drainers if not future.done()]
