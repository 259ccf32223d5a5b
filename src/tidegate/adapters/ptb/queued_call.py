"""Calls that are stored first and made by the gate when their turn comes."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from telegram import InputFile, TelegramObject

from tidegate.adapters.port import Gate
from tidegate.adapters.ptb.call import KnownBots, PtbCall, Result, api_url
from tidegate.adapters.ptb.errors import as_ptb_error
from tidegate.errors import BadInputError, ClosedError, NotDeliveredError
from tidegate.model import File, Priority
from tidegate.outbox.admission import check_options, library_fields
from tidegate.outbox.tickets import LiveTicket


class CallQueue:
    """Stores calls in the outbox."""

    def __init__(self, gate: Gate, bots: KnownBots) -> None:
        self._gate = gate
        self._bots = bots

    async def make(self, call: PtbCall) -> Result:
        """Store a call and return Telegram's result once it is delivered. If cancelled, it stays queued."""
        ticket = await self.put(call, {})
        try:
            receipt = await ticket.delivered()
        except NotDeliveredError as error:
            raise as_ptb_error(error) from None
        except ClosedError:
            raise ClosedError(
                f"{call} waits in the queue: the gate was closed before its turn came"
            ) from None
        result: Result = receipt.result
        return result

    async def put(self, call: PtbCall, options: Mapping[str, Any]) -> LiveTicket:
        """Store a call. `options` override those of the call itself."""
        if call.chat_id is None:
            raise BadInputError(
                f"{call.endpoint} has no chat_id: only calls to a chat are queued; await it instead"
            )
        if api_url(call.bot) is None:
            raise BadInputError("a queued call needs a URL with the token in it: the bot's base_url has none")
        check_options(options)
        bot = self._bots.id_of(call.bot)
        plain = await asyncio.to_thread(plain_fields, call.data)
        fields = call.options.queue_options() | library_fields(call.endpoint, plain)
        if call.options.deadline is not None:
            fields["expires_at"] = self._gate.clock.now() + call.options.deadline
        fields |= {"priority": call.priority(bot, Priority.NORMAL), **options}
        return await self._gate.send(bot=bot, **fields)


def plain_fields(data: Mapping[str, object]) -> dict[str, Any]:
    """Return every value as it is sent, files as `File`. Blocks where it reads a file: use a thread."""
    return {name: _plain(name, value) for name, value in data.items() if value is not None}


def _plain(name: str, value: object) -> object:  # noqa: PLR0911  (one for each kind)
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case InputFile():
            return _file(name, value)
        case TelegramObject():
            return plain_fields(value.to_dict())
        case Mapping():
            return plain_fields(value)
        case datetime():
            return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
        case timedelta():
            seconds = value.total_seconds()
            return int(seconds) if seconds.is_integer() else seconds
        case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return [_plain(name, item) for item in value]
        case _:
            kind = type(value).__name__
            raise BadInputError(f"{name} holds a {kind}, which cannot be queued: give a file as InputFile")


def _file(name: str, file: InputFile) -> File:
    content = file.input_file_content
    if isinstance(content, bytes):
        return File(content=content, name=file.filename)
    try:
        content.seek(0)  # as the library's own client does
        return File(content=content.read(), name=file.filename)
    except (OSError, ValueError) as error:
        raise BadInputError(f"{name} is a file that cannot be read to be queued: {error}") from None
