"""Tickets of accepted messages and receipts of delivered ones."""

from typing import Any

import msgspec

from tidegate.clock import Clock
from tidegate.errors import (
    DeadError,
    ExpiredError,
    NotDeliveredError,
    OutcomeUnknownError,
    WithdrawnError,
    name_of,
)
from tidegate.handler_run import waiting_for_gate
from tidegate.model import Record, State, TicketId, Why
from tidegate.outbox.port import OutboxOperator


class Receipt(msgspec.Struct, frozen=True):
    """Telegram's result for a delivered message, with the id of the new message if there is one."""

    message_id: int | None
    result: Any


class LiveTicket:
    """An accepted message. Any process that shares the store may ask about it."""

    __slots__ = ("_outbox", "_timeout", "fresh", "id")

    def __init__(self, ticket: TicketId, outbox: OutboxOperator, clock: Clock, *, fresh: bool) -> None:
        self.id = ticket
        self.fresh = fresh  # False: an earlier put with the same dedup key had it
        self._outbox = outbox
        self._timeout = clock.timeout

    async def delivered(self, timeout: float | None = None) -> Receipt:  # noqa: ASYNC109  (the clock's time)
        """Wait until it has ended. Raises the NotDeliveredError that says why not, or TimeoutError."""
        with waiting_for_gate():
            async with self._timeout(timeout):
                return receipt_of(await self._outbox.settled(self.id))

    async def why(self) -> Why | None:
        """Return what it waits for; None if it is not known any more."""
        return await self._outbox.why(self.id)

    async def cancel(self) -> bool:
        """Take it back, if it is not being sent yet."""
        return await self._outbox.cancel([self.id]) == 1

    def __repr__(self) -> str:
        return f"LiveTicket({self.id!r})"


def receipt_of(record: Record) -> Receipt:
    """The receipt of a message that has ended, or the error that says why there is none."""
    message = record.message
    about: dict[str, Any] = {"method": message.method, "chat_id": message.chat_id}
    what = name_of(message.method, message.chat_id)
    match record.state:
        case State.DELIVERED:
            return receipt_for(record.result)
        case State.DEAD:
            reason, description = record.reason or "unknown", record.description or ""
            raise DeadError(**about, reason=reason, description=description)
        case State.PARKED:
            raise OutcomeUnknownError(f"{what} was parked: {record.description}", **about)
        case State.EXPIRED:
            raise ExpiredError(f"{what} expired before its turn came", **about)
        case State.CANCELLED | State.REPLACED:
            raise WithdrawnError(f"{what} was {record.state}", **about)
        case State.QUEUED | State.SENDING | State.RETRY:
            raise NotDeliveredError(f"{what} is still {record.state}", **about)


def receipt_for(result: object) -> Receipt:
    """The receipt of a call that Telegram answered with `result`."""
    return Receipt(result.get("message_id") if isinstance(result, dict) else None, result)
