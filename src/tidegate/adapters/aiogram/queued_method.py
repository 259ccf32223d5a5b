"""An aiogram method as a queued message: its fields as plain values, and a ticket for its result."""

import asyncio
import datetime as dt
import functools
import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, Generic

from aiogram import Bot
from aiogram.client.default import Default
from aiogram.methods import TelegramMethod
from aiogram.methods.base import TelegramType
from aiogram.types import BufferedInputFile, FSInputFile, InputFile, TelegramObject
from aiohttp import ClientError
from pydantic import TypeAdapter

from tidegate.adapters.call_context import reply_priority
from tidegate.adapters.port import Gate
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import BotId, File, Priority, TicketId, Why
from tidegate.outbox.admission import check_options, library_fields
from tidegate.outbox.tickets import LiveTicket

MAX_UPLOAD_BYTES: Final = 50 * 1024 * 1024  # Telegram takes no more from a bot


async def fields_of(method: TelegramMethod[Any], bot: Bot, clock: Clock) -> dict[str, Any]:
    """Return the fields that `gate.send` takes, with the bot's defaults filled in.

    What has to be downloaded is downloaded now. A file on disk is only named: it must exist until the message
    is sent. Raises BadInputError.
    """
    name = method.__api_method__
    values = method.model_dump(warnings=False)
    if values.get("chat_id") is None:
        raise BadInputError(f"{name} has no chat_id: only calls to a chat can be queued; await it instead")
    fields = {key: await _plain(value, bot, clock) for key, value in values.items()}
    given = {key: value for key, value in fields.items() if value is not None}
    # aiogram passes on whatever it is given: names that it does not know itself are checked as of `send`.
    unknown = {key: given.pop(key) for key in (method.model_extra or {}).keys() & given.keys()}
    return library_fields(name, given) | unknown


async def _plain(value: object, bot: Bot, clock: Clock) -> Any:  # noqa: ANN401, PLR0911  (one line for each kind)
    match value:
        case Default():
            return await _plain(bot.default[value.name], bot, clock)
        case InputFile():
            return await _file(value, bot)
        case TelegramObject():
            return await _plain(value.model_dump(warnings=False), bot, clock)
        case dict():
            items = {key: await _plain(item, bot, clock) for key, item in value.items()}
            return {key: item for key, item in items.items() if item is not None}
        case list() | tuple():
            return [await _plain(item, bot, clock) for item in value]
        case dt.datetime():
            return round(value.timestamp())
        case dt.timedelta():  # from when it is queued, as it would be from when it is sent
            return round(clock.now() + value.total_seconds())
        case Enum():
            return value.value
        case _:
            return value


async def _file(file: InputFile, bot: Bot) -> File:
    if isinstance(file, FSInputFile):
        return File(path=await asyncio.to_thread(_readable, file.path), name=file.filename)
    if isinstance(file, BufferedInputFile):
        _check_size(file.data)
        return File(content=file.data, name=file.filename)
    content = bytearray()
    try:
        async for chunk in file.read(bot):
            content += chunk
            _check_size(content)
    except (ClientError, OSError, TimeoutError) as error:
        raise BadInputError(f"a file could not be downloaded to be queued: {type(error).__name__}") from error
    return File(content=bytes(content), name=file.filename or "file")


def _readable(path: str | Path) -> str:
    absolute = Path(path).absolute()
    if not absolute.is_file() or not os.access(absolute, os.R_OK):
        raise BadInputError(f"the file {str(path)!r} cannot be read, and is needed until the message is sent")
    return str(absolute)


def _check_size(content: bytes | bytearray) -> None:
    if len(content) > MAX_UPLOAD_BYTES:
        raise BadInputError(
            f"a file has more than {MAX_UPLOAD_BYTES:,} bytes: Telegram takes no more from a bot"
        )


class MethodTicket(Generic[TelegramType]):
    """A `LiveTicket` whose `delivered` returns aiogram's type, such as `Message`."""

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
        """False if an earlier message with the same dedup key took its place."""
        return self._ticket.fresh

    async def delivered(self, timeout: float | None = None) -> TelegramType:  # noqa: ASYNC109  (the clock's time)
        """Wait until it is delivered. Raises NotDeliveredError if it ends otherwise, or TimeoutError."""
        receipt = await self._ticket.delivered(timeout)
        result: TelegramType = _result_adapter(self._returning).validate_python(
            receipt.result, context={"bot": self._bot}
        )
        return result

    async def why(self) -> Why | None:
        """Return what it waits for."""
        return await self._ticket.why()

    async def cancel(self) -> bool:
        """Cancel it if it is not being sent yet; return whether it was."""
        return await self._ticket.cancel()

    def __repr__(self) -> str:
        return f"MethodTicket({self.id!r})"


@functools.cache
def _result_adapter(returning: Any) -> TypeAdapter[Any]:  # noqa: ANN401  (a type, or a union of types)
    """Cached for each type of result: making it costs more than using it."""
    return TypeAdapter(returning)


async def queue_method(
    gate: Gate, method: TelegramMethod[TelegramType], bot: Bot | None, options: Mapping[str, Any]
) -> MethodTicket[TelegramType]:
    """Store the call. Its priority is high by default inside a handler of its chat."""
    if not isinstance(method, TelegramMethod):
        raise BadInputError(
            'queue takes a call that was not awaited, such as message.answer("Hi"): '
            f"got {type(method).__name__}"
        )
    bot = bot or method.bot
    if bot is None:
        raise BadInputError(f"{method.__api_method__} has no bot: give bot=…, or write method.as_(bot)")
    check_options(options)
    bot_id = BotId(bot.id)
    fields = await fields_of(method, bot, gate.clock)
    priority = reply_priority(bot_id, fields["chat_id"], Priority.NORMAL)
    ticket = await gate.send(bot=bot_id, **({"priority": priority} | fields | dict(options)))
    return MethodTicket(ticket, method, bot)
