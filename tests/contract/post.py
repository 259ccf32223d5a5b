"""Short verbs for the contract's tests. They use the port and the clock, no internals."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.model import (
    BotId,
    ChatId,
    Claim,
    Delivered,
    Message,
    Outcome,
    Priority,
    Rate,
    Record,
    Settlement,
    State,
    TicketId,
    Why,
)
from tidegate.outbox.port import Outbox, Turn
from tidegate.pacing.rules import Rules

T = TypeVar("T")

BOT: Final = BotId(42)
OTHER_BOT: Final = BotId(43)
DELIVERED: Final = Delivered({"message_id": 1})
ROOMY: Final = Rules(bot=Rate(1000, 1), private=Rate(1000, 1), group=Rate(1000, 1), paid=Rate(1000, 1))
SOON: Final = 0.02  # seconds: long enough for the spacing of what may go, short beside every limit


class Post:
    """One store and its clock."""

    def __init__(self, outbox: Outbox, clock: Clock) -> None:
        self.outbox = outbox
        self.clock = clock
        self._ids = itertools.count(1)
        self._tasks: set[asyncio.Task[Any]] = set()

    def message(self, chat: ChatId = 1, **fields: Any) -> Message:  # noqa: ANN401  (a message's own)
        given: dict[str, Any] = {"bot": BOT, "method": "sendMessage", "params": {"text": "x"}}
        return Message(id=TicketId(f"m{next(self._ids)}"), chat_id=chat, **given | fields)

    async def put(self, chat: ChatId = 1, **fields: Any) -> TicketId:  # noqa: ANN401
        [ticket] = await self.outbox.put([self.message(chat, **fields)])
        return ticket.id

    async def put_many(self, count: int, chat: ChatId = 1, **fields: Any) -> list[TicketId]:  # noqa: ANN401
        tickets = await self.outbox.put([self.message(chat, **fields) for _ in range(count)])
        return [ticket.id for ticket in tickets]

    async def album(self, items: int, chat: ChatId = 1, **fields: Any) -> TicketId:  # noqa: ANN401
        return await self.put(chat, method="sendMediaGroup", params={"media": [{}] * items}, **fields)

    async def claim(self, room: int = 100, *, within: float = SOON) -> list[Claim]:
        """What goes first within that time; nothing if nothing may go."""
        try:
            async with self.clock.timeout(within):
                return await self.outbox.claim(room)
        except TimeoutError:
            return []

    async def claim_all(self, *, within: float = SOON) -> list[Claim]:
        """Everything that may go within that time, none of it answered."""
        end, claims = self.clock.monotonic() + within, []
        while (left := end - self.clock.monotonic()) > 0 and (more := await self.claim(within=left)):
            claims += more
        return claims

    async def one(self, *, within: float = SOON) -> Claim:
        [claim] = await self.claim(1, within=within)
        return claim

    async def settle(self, claim: Claim, outcome: Outcome = DELIVERED, age: float = 0.0) -> Record | None:
        [record] = await self.outbox.settle([Settlement(claim, outcome, age)])
        return record

    async def send(self, outcome: Outcome = DELIVERED, *, within: float = SOON) -> Record:
        """Claim the next one and settle it at once."""
        record = await self.settle(await self.one(within=within), outcome)
        assert record is not None
        return record

    async def run(self, seconds: float, room: int = 100) -> list[tuple[float, Message]]:
        """A worker for that time whose every call is answered at once: what went, and when."""
        start, sent = self.clock.monotonic(), []
        while (left := start + seconds - self.clock.monotonic()) > 0:
            claims = await self.claim(room, within=left)
            sent += [(self.clock.monotonic() - start, claim.message) for claim in claims]
            await self.outbox.settle([Settlement(claim, DELIVERED) for claim in claims])
        return sent

    async def order(self, seconds: float = 1.0) -> list[TicketId]:
        return [message.id for _, message in await self.run(seconds)]

    async def record(self, ticket: TicketId) -> Record:
        record = await self.outbox.find(ticket)
        assert record is not None, f"{ticket} is lost"
        return record

    async def state(self, ticket: TicketId) -> State:
        return (await self.record(ticket)).state

    async def why(self, ticket: TicketId) -> Why:
        why = await self.outbox.why(ticket)
        assert why is not None
        return why

    async def turn(
        self,
        chat: ChatId = 1,
        bot: BotId = BOT,
        cost: int = 1,
        priority: Priority = Priority.HIGH,
        *,
        paid: bool = False,
    ) -> Turn:
        return await self.outbox.turn(bot, chat, "send", cost, priority, paid=paid)

    async def no_turn(self, chat: ChatId = 1, *, within: float = SOON) -> bool:
        """Whether no turn is granted in that time."""
        try:
            async with self.clock.timeout(within):
                turn = await self.turn(chat)
        except TimeoutError:
            return True
        await self.outbox.end_turn(turn, DELIVERED)
        return False

    async def begin(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start it, and let it come to where it waits."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        await self.clock.sleep(0)
        return task

    @staticmethod
    async def cancel(task: asyncio.Task[Any]) -> None:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
