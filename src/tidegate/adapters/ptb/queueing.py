"""Calls that are written down first, and made by the gate when their turn comes."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tidegate.adapters.gate import Gate
from tidegate.adapters.ptb.bots import KnownBots, api_url
from tidegate.adapters.ptb.call import Call, Result
from tidegate.adapters.ptb.errors import in_both
from tidegate.adapters.ptb.fields import plain
from tidegate.errors import BadInputError, ClosedError, NotDeliveredError
from tidegate.model import Priority
from tidegate.outbox.admission import check_options
from tidegate.tickets import LiveTicket


class Queueing:
    def __init__(self, gate: Gate, bots: KnownBots) -> None:
        self._gate = gate
        self._bots = bots

    async def make(self, call: Call) -> Result:
        """Telegram's result, once it is there. Whoever is cancelled meanwhile leaves the call queued."""
        ticket = await self.put(call, {})
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

    async def put(self, call: Call, options: Mapping[str, Any]) -> LiveTicket:
        """Write it down; `options` count more than what the call asked for itself."""
        _check(call)
        check_options(options)
        bot = self._bots.id_of(call.bot)
        fields = call.pace.options() | await asyncio.to_thread(plain, call.data)
        if call.pace.deadline is not None:
            fields["expires_at"] = self._gate.clock.now() + call.pace.deadline
        fields |= {"method": call.endpoint, "priority": call.priority(bot, Priority.NORMAL), **options}
        return await self._gate.send(bot=bot, **fields)


def _check(call: Call) -> None:
    if call.chat_id is None:
        raise BadInputError(
            f"{call.endpoint} has no chat_id: only calls to a chat are queued; await it instead"
        )
    if api_url(call.bot) is None:
        raise BadInputError("queued calls go to an address with the token in it: the bot's base_url has none")
