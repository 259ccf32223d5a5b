"""Puts messages into the outbox: fields become validated messages with ids and dedup keys."""

import itertools
import secrets
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.events import Accepted, EventStream
from tidegate.model import BotId, Message, Ticket, TicketId
from tidegate.outbox.admission import compose
from tidegate.outbox.effect_keys import effect_key
from tidegate.outbox.port import Outbox
from tidegate.outbox.tickets import LiveTicket

MESSAGES_PER_PUT: Final = 250

Fields = Mapping[str, Any]


class Producer:
    """Accepts messages for one store."""

    def __init__(self, outbox: Outbox, clock: Clock, events: EventStream) -> None:
        self._outbox = outbox
        self._clock = clock
        self._events = events
        self._ids = _message_ids()

    async def send_many(
        self, bot: BotId, items: Iterable[Fields] | AsyncIterable[Fields], shared: Fields
    ) -> list[LiveTicket]:
        """Put messages, some hundreds in a step. Bad input stores nothing of its step; earlier steps stay."""
        tickets: list[LiveTicket] = []
        chunk: list[Message] = []
        async for fields in _each(items):
            if not isinstance(fields, Mapping):
                kind = type(fields).__name__
                raise BadInputError(
                    f"each message is a mapping of fields, such as {{'chat_id': 1}}: got {kind}"
                )
            chunk.append(with_effect_key(self.compose(bot, {**shared, **fields})))
            if len(chunk) == MESSAGES_PER_PUT:
                tickets += await self.put(chunk)
                chunk = []
                await self._clock.sleep(0)  # let others run: an audience may be large
        return tickets + await self.put(chunk)

    def compose(self, bot: BotId, fields: Fields) -> Message:
        """Return a validated message. Raises BadInputError."""
        return compose(next(self._ids), bot, fields, self._clock.now())

    async def put(self, messages: list[Message]) -> list[LiveTicket]:
        """Accept messages, all or none. What this returned for is not lost."""
        tickets = await self.accept(messages)
        return [LiveTicket(ticket.id, self._outbox, self._clock, fresh=ticket.fresh) for ticket in tickets]

    async def accept(self, messages: list[Message]) -> list[Ticket]:
        """As `put`, for callers that do not wait for what becomes of the messages."""
        tickets = await self._outbox.put(messages)
        if fresh := [one for one, ticket in zip(messages, tickets, strict=True) if ticket.fresh]:
            self._events.publish(Accepted(fresh))
        return tickets


def with_effect_key(message: Message) -> Message:
    """Give a message that a handler puts its dedup key: a handler that runs again puts it once."""
    if message.dedup_key is not None or message.coalesce_key is not None:
        return message
    key = effect_key((message.method, message.chat_id, message.params))
    return message if key is None else msgspec.structs.replace(message, dedup_key=key)


def _message_ids() -> Iterator[TicketId]:
    """Unique among processes, and rising: neighbours in time are neighbours in an index."""
    prefix = secrets.token_hex(6)
    return (TicketId(f"{prefix}-{number:08x}") for number in itertools.count(1))


async def _each(items: Iterable[Fields] | AsyncIterable[Fields]) -> AsyncIterable[Fields]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    elif isinstance(items, Iterable):
        for item in items:
            yield item
    else:
        raise BadInputError(f"messages come from an iterable, or an async one: got {type(items).__name__}")
