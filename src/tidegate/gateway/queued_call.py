"""Calls that a client hands over to the outbox: accepted at once, delivered in their turn by the worker."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from tidegate.errors import (
    BadInputError,
    DeadError,
    NotDeliveredError,
    OutcomeUnknownError,
    StoreError,
    StoreFullError,
)
from tidegate.gateway.answers import ApiRefusal, bad_request, dead
from tidegate.gateway.bot_access import Caller
from tidegate.gateway.directives import Directives
from tidegate.gateway.received_call import ReceivedCall, plain
from tidegate.lifecycle import GateCore
from tidegate.model import ChatId, File, TicketId
from tidegate.outbox.admission import check_chat, library_fields
from tidegate.outbox.bot_api_results import RESULTS
from tidegate.outbox.tickets import LiveTicket

# A message that is not sent yet has this number in the Bot API, too: that of one that Telegram schedules.
NOT_SENT_YET: Final = 0
UPLOADS_IN_MEMORY: Final = 4  # at a time: each may have 50 MB
CHAT_ID: Final = "chat_id"
ATTACHED: Final = "attach://"
_FORM_OF: Final = {method: form for form, methods in RESULTS.items() for method in methods.split()}


class QueuedCalls:
    """Puts calls into the outbox. What it answers for is as durable as the store."""

    def __init__(self, core: GateCore, max_wait: float) -> None:
        self._core = core
        self._max_wait = max_wait
        self._loading = asyncio.Semaphore(UPLOADS_IN_MEMORY)

    async def queue(
        self, caller: Caller, received: ReceivedCall, directives: Directives
    ) -> tuple[TicketId, dict[str, Any]]:
        """Accept a call. Returns its ticket, and an answer of the type that the method has.

        Raises ApiRefusal for what cannot be queued; then nothing is stored.
        """
        form = _FORM_OF.get(received.method)
        if form is None:
            text = (
                f"{received.method} cannot be queued: its answer is needed, or its result is not known here"
            )
            raise bad_request(text)
        ticket = await self._put(caller, received, directives)
        return ticket.id, {"ok": True, "result": self._placeholder(form, received)}

    async def make_urgently(
        self, caller: Caller, received: ReceivedCall, directives: Directives
    ) -> tuple[TicketId, dict[str, Any]]:
        """Make a call before all others, with or without a free slot. Returns ticket and answer."""
        ticket = await self._put(caller, received, directives)
        try:
            receipt = await ticket.delivered(timeout=self._max_wait)
        except TimeoutError:
            text = f"{received.method} was accepted, and is not answered yet: see ticket {ticket.id}"
            raise ApiRefusal(504, text) from None
        except DeadError as error:
            raise dead(error.description) from None
        except OutcomeUnknownError as error:
            raise ApiRefusal(504, str(error)) from None
        except NotDeliveredError as error:
            raise bad_request(str(error)) from None
        return ticket.id, {"ok": True, "result": receipt.result}

    async def _put(self, caller: Caller, received: ReceivedCall, directives: Directives) -> LiveTicket:
        if received.params.get(CHAT_ID) is None:
            raise bad_request(f"{received.method} without a chat_id cannot be queued")
        given = received.paced_params()  # limits read them again when it is sent
        if not received.has_files:
            return await self._put_params(caller, received.method, given, directives)
        async with self._loading:
            params = _with_files(given, await received.load_files())
            return await self._put_params(caller, received.method, params, directives)

    async def _put_params(
        self, caller: Caller, method: str, params: Mapping[str, Any], directives: Directives
    ) -> LiveTicket:
        fields = {
            **library_fields(method, {name: params[name] for name in params if name != CHAT_ID}),
            CHAT_ID: params[CHAT_ID],
            "urgent": directives.urgent,
            **dict(directives.options),
        }
        if directives.priority is not None:
            fields["priority"] = directives.priority
        try:
            return (await self._core.producer.send_many(caller.bot, [fields], {}))[0]
        except BadInputError as error:
            raise bad_request(str(error)) from None
        except StoreFullError as error:
            raise ApiRefusal(507, str(error), retry_after=30) from None
        except StoreError as error:
            raise ApiRefusal(
                503, "the store cannot be reached: nothing was accepted", detail=str(error)
            ) from None

    def _placeholder(self, form: str, received: ReceivedCall) -> Any:  # noqa: ANN401  (as the method has it)
        if form == "true":
            return True
        params = received.paced_params()
        what = "message_ids" if form == "ids" else "media"
        items = params.get(what)
        count = len(items) if isinstance(items, list) else 1
        if form in {"id", "ids"}:
            one: dict[str, Any] = {"message_id": NOT_SENT_YET}
            return one if form == "id" else [one] * count
        message = self._message(received)
        return [message] * count if form == "messages" else message

    def _message(self, received: ReceivedCall) -> dict[str, Any]:
        """Return a message as the client expects one: of the bot, to this chat, with its text."""
        params = received.params
        edited = plain(params.get("message_id"))
        message: dict[str, Any] = {
            "message_id": edited if isinstance(edited, int) else NOT_SENT_YET,
            "date": int(self._core.clock.now()),
            "chat": _chat(check_chat(params[CHAT_ID])),
        }
        return message | {
            name: params[name] for name in ("text", "caption") if isinstance(params.get(name), str)
        }


def _chat(chat_id: ChatId) -> dict[str, Any]:
    if isinstance(chat_id, str):  # its number is Telegram's to tell
        return {"id": 0, "type": "channel", "title": chat_id, "username": chat_id.removeprefix("@")}
    if chat_id > 0:
        return {"id": chat_id, "type": "private", "first_name": ""}
    return {"id": chat_id, "type": "supergroup" if chat_id <= -(10**12) else "group", "title": ""}


def _with_files(given: Mapping[str, Any], files: Mapping[str, File]) -> dict[str, Any]:
    """Return the parameters with their files in place: where a parameter names one by `attach://`."""
    params: dict[str, Any] = {**files, **given}
    named = set[str]()
    placed = {name: _place(value, files, named) for name, value in params.items()}
    return {name: value for name, value in placed.items() if name not in named}


def _place(value: object, files: Mapping[str, Any], named: set[str]) -> object:
    if isinstance(value, str):
        if value.startswith(ATTACHED):
            name = value.removeprefix(ATTACHED)
            if name in files:
                named.add(name)
                return files[name]
        elif ATTACHED in value:  # JSON in a form
            found = plain(value)
            return value if isinstance(found, str) else _place(found, files, named)
    if isinstance(value, dict):
        return {key: _place(item, files, named) for key, item in value.items()}
    if isinstance(value, list):
        return [_place(item, files, named) for item in value]
    return value
