"""Send now if the limits allow it, queue the message if they do not."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidegate.clock import Clock
from tidegate.delivery.direct import DirectCalls, error_for
from tidegate.errors import LimitedError, NotTheSenderError, StoreError
from tidegate.model import BotId, ChatId, Dead, Delivered, Message, NotSent, Outcome, Unknown
from tidegate.outbox.port import Outbox
from tidegate.outbox.producer import Producer, with_effect_key
from tidegate.outbox.tickets import LiveTicket, Receipt, receipt_for
from tidegate.pacing.rules import cost_of, family_of


class SendOrQueue:
    """`become_sender` makes this process the one that sends, or raises NotTheSenderError."""

    def __init__(
        self,
        producer: Producer,
        direct: DirectCalls,
        outbox: Outbox,
        clock: Clock,
        become_sender: Callable[[], Awaitable[None]],
    ) -> None:
        self._producer = producer
        self._direct = direct
        self._outbox = outbox
        self._clock = clock
        self._become_sender = become_sender

    async def __call__(self, bot: BotId, fields: Mapping[str, Any]) -> Receipt | LiveTicket:
        """Return a receipt if it was delivered, a ticket if it was queued. Raises NotDeliveredError."""
        message = self._producer.compose(bot, fields)
        due = message.not_before is None or message.not_before <= self._clock.now()
        keyed = message.dedup_key is not None or message.coalesce_key is not None  # only the store knows keys
        if due and not keyed and await self._has_room(message):
            outcome = await self._try_now(message)
            if isinstance(outcome, Delivered):
                return receipt_for(outcome.result)
            parks = isinstance(outcome, Unknown) and message.on_unknown == "park"
            if isinstance(outcome, Dead) or parks:
                raise error_for(outcome, message.method, message.chat_id)
        return (await self._producer.put([with_effect_key(message)]))[0]

    async def _has_room(self, message: Message) -> bool:
        """A guess that spares a turn in vain. A store that cannot answer may still take the message."""
        try:
            wait = await wait_for(self._outbox, message.bot, message.chat_id, message.method, message.params)
        except StoreError:
            return False
        return wait <= 0

    async def _try_now(self, message: Message) -> Outcome:
        try:
            await self._become_sender()
            params = {"chat_id": message.chat_id, **message.params}
            return await self._direct.once(message.bot, message.method, params)
        except LimitedError:
            return NotSent("someone was faster")
        except NotTheSenderError:
            return NotSent("another process sends")


async def wait_for(
    outbox: Outbox, bot: BotId, chat_id: ChatId, method: str, params: Mapping[str, Any]
) -> float:
    """Return the seconds until a direct call could be made as things stand. Takes nothing."""
    family = family_of(method)
    cost = 0 if family == "free" else cost_of(method, params)
    return await outbox.wait_for(bot, chat_id, family, cost)
