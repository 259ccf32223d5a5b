"""Calls that are written down first, and made by the gate when their turn comes."""

import asyncio

from tidegate.adapters.gate import Gate
from tidegate.adapters.ptb.bots import KnownBots, api_url
from tidegate.adapters.ptb.call import Call, Result
from tidegate.adapters.ptb.errors import in_both
from tidegate.adapters.ptb.fields import plain
from tidegate.errors import BadInputError, ClosedError, NotDeliveredError
from tidegate.model import Priority


class Queueing:
    def __init__(self, gate: Gate, bots: KnownBots) -> None:
        self._gate = gate
        self._bots = bots

    async def make(self, call: Call) -> Result:
        """Telegram's result, once it is there. Whoever is cancelled meanwhile leaves the call queued."""
        _check(call)
        bot = self._bots.id_of(call.bot)
        fields = call.pace.options() | await asyncio.to_thread(plain, call.data)
        if call.pace.deadline is not None:
            fields["expires_at"] = self._gate.clock.now() + call.pace.deadline
        fields |= {"method": call.endpoint, "priority": call.priority(bot, Priority.NORMAL)}
        ticket = await self._gate.send(bot=bot, **fields)
        try:
            receipt = await ticket.delivered()
        except NotDeliveredError as error:
            raise in_both(error) from None
        except ClosedError:
            raise ClosedError(
                f"{call} waits in the queue: the gate was closed before its turn came"
            ) from None
        result: Result = receipt.result
        return result


def _check(call: Call) -> None:
    if call.chat_id is None:
        raise BadInputError(
            f"{call.endpoint} has no chat_id: only calls to a chat are queued; leave out queue"
        )
    if api_url(call.bot) is None:
        raise BadInputError("queued calls go to an address with the token in it: the bot's base_url has none")
