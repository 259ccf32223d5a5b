"""A method of aiogram as a message that waits."""

from collections.abc import Mapping
from typing import Any

from aiogram import Bot
from aiogram.methods import TelegramMethod
from aiogram.methods.base import TelegramType

from tidegate.adapters.aiogram.fields import fields_of
from tidegate.adapters.aiogram.tickets import MethodTicket
from tidegate.adapters.gate import Gate
from tidegate.adapters.handling import priority_for
from tidegate.errors import BadInputError
from tidegate.model import BotId, Priority
from tidegate.outbox.admission import check_options


async def queue(
    gate: Gate, method: TelegramMethod[TelegramType], bot: Bot | None, options: Mapping[str, Any]
) -> MethodTicket[TelegramType]:
    """Write it down. High by itself inside a handler of its chat."""
    if not isinstance(method, TelegramMethod):
        raise BadInputError(
            'queue takes a call that was not awaited, such as message.answer("Hi"): '
            f"got {type(method).__name__}"
        )
    bot = bot or method.bot
    if bot is None:
        raise BadInputError(f"{method.__api_method__} knows no bot: give bot=…, or write method.as_(bot)")
    check_options(options)
    bot_id = BotId(bot.id)
    fields = await fields_of(method, bot, gate.clock)
    priority = priority_for(bot_id, fields["chat_id"], Priority.NORMAL)
    ticket = await gate.send(bot=bot_id, **({"priority": priority} | fields | dict(options)))
    return MethodTicket(ticket, method, bot)
