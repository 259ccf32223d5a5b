"""A ticket whose receipt is what aiogram would have given."""

import functools
from typing import Any, Generic

from aiogram import Bot
from aiogram.methods import TelegramMethod
from aiogram.methods.base import TelegramType
from pydantic import TypeAdapter

from tidegate.model import TicketId, Why
from tidegate.tickets import LiveTicket


class MethodTicket(Generic[TelegramType]):
    """As `LiveTicket`, but that `delivered` gives aiogram's type: a `Message` for what sends one."""

    __slots__ = ("_bot", "_returning", "_ticket")

    def __init__(self, ticket: LiveTicket, method: TelegramMethod[TelegramType], bot: Bot) -> None:
        self._ticket = ticket
        self._returning: Any = method.__returning__
        self._bot = bot

    @property
    def id(self) -> TicketId:
        return self._ticket.id

    @property
    def fresh(self) -> bool:
        """False: an earlier one with the same dedup key had it."""
        return self._ticket.fresh

    async def delivered(self, timeout: float | None = None) -> TelegramType:  # noqa: ASYNC109  (the clock's time)
        """Wait until it has ended. Raises the NotDeliveredError that says why not, or TimeoutError."""
        receipt = await self._ticket.delivered(timeout)
        result: TelegramType = _reader(self._returning).validate_python(
            receipt.result, context={"bot": self._bot}
        )
        return result

    async def why(self) -> Why | None:
        """What it waits for."""
        return await self._ticket.why()

    async def cancel(self) -> bool:
        """Take it back, if it is not being sent yet."""
        return await self._ticket.cancel()

    def __repr__(self) -> str:
        return f"MethodTicket({self.id!r})"


@functools.cache
def _reader(returning: Any) -> TypeAdapter[Any]:  # noqa: ANN401  (a type, or a union of types)
    """One for each kind of result: making it costs more than using it."""
    return TypeAdapter(returning)
