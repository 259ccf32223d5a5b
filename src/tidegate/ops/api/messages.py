"""Routes of messages: list, look at one, ask why it waits, change its priority, cancel."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from tidegate.history import AttemptOutcome
from tidegate.model import BotId, Priority, Record, State, TicketId
from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall, Call
from tidegate.ops.api.pagination import Cursor, ItemPage, Limit, decode_cursor, encode_cursor
from tidegate.ops.api.parameters import (
    EXAMPLE_ID,
    EXAMPLE_TIME,
    BotField,
    BotFilter,
    ChatField,
    ChatFilter,
    JsonBody,
    MessagePath,
    ReasonFilter,
    RecordingField,
    Seconds,
    chat_of,
)
from tidegate.ops.api.problems import CONFLICT, ProblemError
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope
from tidegate.ops.reports import bounded, explain, record_json, why_report

ROUTES = RouteTable("messages")
TEXTS = ("params", "result", "description", "first_bytes", "first_text", "body")  # hidden from viewers


class MessageView(BaseModel):
    """A message and its state. A viewer gets null for everything that may quote it."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": EXAMPLE_ID,
                "bot": 42,
                "chat_id": 1001,
                "method": "sendMessage",
                "params": {"text": "Your order has left."},
                "priority": "normal",
                "urgent": False,
                "state": "queued",
                "created_at": EXAMPLE_TIME,
                "attempts": 0,
                "crashes": 0,
            }
        }
    )

    id: str
    bot: BotField
    chat_id: ChatField
    method: str = Field(description="Of the Bot API; empty if the stored message cannot be decoded.")
    params: dict[str, Any] | None = Field(default=None, description="In lists, long values are cut short.")
    priority: Priority
    urgent: bool
    state: State
    created_at: Seconds
    settled_at: Seconds | None = None
    not_before: Seconds | None = None
    expires_at: Seconds | None = None
    attempts: int
    crashes: int
    reason: str | None = Field(
        default=None, description="A word: why it is dead or parked, or is tried again."
    )
    description: str | None = Field(default=None, description="What Telegram said.")
    result: Any = Field(default=None, description="Telegram's.")
    dedup_key: str | None = None
    dedup_for: float | None = Field(default=None, description="Seconds in which the dedup key counts.")
    coalesce_key: str | None = None
    max_attempts: int | None = None
    on_unknown: str | None = None
    size: int | None = Field(default=None, description="Bytes of a stored message that cannot be decoded.")
    first_bytes: str | None = None
    first_text: str | None = None
    body: str | None = Field(default=None, description="All of its bytes, in base64.")


class MessagePage(ItemPage[MessageView]):
    """Messages, the oldest first."""


class WhyView(BaseModel):
    """The reason why a message waits, and when it should be sent."""

    id: str
    state: State
    waits_for: list[str]
    expected_in: float | None = Field(description="Seconds; null if it depends on a person or a process.")
    expected_at: Seconds | None
    reason: str | None
    description: str | None


class NewPriority(JsonBody):
    """The priority that a message gets."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"priority": "high"}})

    priority: Priority


class Reprioritized(BaseModel):
    id: str
    priority: Priority


class AttemptView(BaseModel):
    """An attempt that did not deliver a message, and the answer. A viewer gets null for what may quote it."""

    number: int = Field(description="1 for the first. Attempts that are not counted repeat a number.")
    at: Seconds
    seconds: float = Field(description="From the claim to the answer.")
    outcome: AttemptOutcome
    reason: str | None = Field(default=None, examples=["server_error"])
    description: str | None = Field(default=None, description="What Telegram said.")
    wait: float | None = Field(default=None, description="Seconds until it, or its bot, tries again.")


class AttemptList(BaseModel):
    """Attempts, the oldest first: the last 1,000."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "items": [
                    {
                        "number": 1,
                        "at": EXAMPLE_TIME,
                        "seconds": 0.14,
                        "outcome": "refused",
                        "reason": None,
                        "description": None,
                        "wait": 17.0,
                    }
                ],
                "recording": True,
            }
        }
    )

    items: list[AttemptView]
    recording: RecordingField


class Cancelled(BaseModel):
    cancelled: bool


def message_view(call: ApiCall, record: Record, *, whole: bool = True) -> MessageView:
    """Return a record as the principal may see it. If not `whole`, long values are cut short."""
    known = record_json(record)
    if not call.sees_texts:
        known = {name: value for name, value in known.items() if name not in TEXTS}
    elif not whole:
        known |= {"params": bounded(known["params"]), "result": bounded(known["result"]), "body": None}
    return MessageView(**known)


async def find_record(call: ApiCall, message_id: str) -> Record:
    """Return a message that the principal may see. Raises ProblemError."""
    record = await call.gate.outbox.find(TicketId(message_id))
    if record is None:
        raise call.not_found(f"message {message_id}")
    call.check_own(record.message.bot, f"message {message_id}")
    return record


async def bots_of(call: ApiCall, message_id: str) -> list[BotId]:
    """Return the bot of a message, as the outbox or else the history knows it; nothing if neither does."""
    record = await call.gate.outbox.find(TicketId(message_id))
    if record is not None:
        return [record.message.bot]
    return [one.bot for one in await call.gate.history.find(ticket=message_id)]


@ROUTES.get("/api/v1/messages", RouteAccess(Role.VIEWER, Scope.FILTER), summary="List messages")
async def list_messages(
    call: Call,
    *,
    bot: BotFilter = None,
    chat_id: ChatFilter = None,
    state: Annotated[list[State] | None, Query(description="Only in this state; repeatable.")] = None,
    reason: ReasonFilter = None,
    dedup_key: Annotated[
        str | None,
        Query(
            max_length=300, description="Only the one that was put last with this key.", examples=["order-17"]
        ),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> MessagePage:
    """Messages that wait, move, or have ended lately, the oldest first."""
    if dedup_key is not None:
        found = await _by_key(call, await call.bot_for(bot), dedup_key)
        return MessagePage(items=[message_view(call, record, whole=False) for record in found])
    page = await call.gate.outbox.record_page(
        bot=call.bot_filter(bot),
        chat_id=chat_of(chat_id),
        states=frozenset(state or State),
        reason=reason,
        cursor=decode_cursor("messages", cursor, str) or "",
        limit=limit,
    )
    items = [message_view(call, record, whole=False) for record in page.records]
    return MessagePage(items=items, next_cursor=encode_cursor("messages", page.cursor or None))


async def _by_key(call: ApiCall, bot: BotId, key: str) -> list[Record]:
    ticket = await call.gate.outbox.find_by_key(bot, key)
    record = None if ticket is None else await call.gate.outbox.find(ticket)
    return [] if record is None else [record]


@ROUTES.get("/api/v1/messages/{message_id}", RouteAccess(Role.VIEWER, Scope.OBJECT), summary="Show a message")
async def show_message(call: Call, message_id: MessagePath) -> MessageView:
    """Everything that is known of a message. One that ended some time ago is forgotten: see history."""
    return message_view(call, await find_record(call, message_id))


@ROUTES.get(
    "/api/v1/messages/{message_id}/why", RouteAccess(Role.VIEWER, Scope.OBJECT), summary="Why a message waits"
)
async def explain_message(call: Call, message_id: MessagePath) -> WhyView:
    """Each thing that a message waits for, and when it should go as things stand."""
    await find_record(call, message_id)
    found = await explain(call.gate, TicketId(message_id))
    if found is None:
        raise call.not_found(f"message {message_id}")
    report = why_report(*found, call.clock.now())
    return WhyView(**report | ({} if call.sees_texts else {"description": None}))


@ROUTES.get(
    "/api/v1/messages/{message_id}/attempts",
    RouteAccess(Role.VIEWER, Scope.OBJECT),
    summary="List the attempts of a message",
)
async def list_attempts(call: Call, message_id: MessagePath) -> AttemptList:
    """Attempts that did not deliver a message, as the history has them, also of one that is forgotten.

    They are written a second after the fact, and kept as long as the history is. Without one there are none.
    """
    attempts = await call.gate.history.attempts(message_id)
    owners = await bots_of(call, message_id) or [one.bot for one in attempts]
    call.check_owners(owners, f"message {message_id}")
    hidden = set() if call.sees_texts else {"description"}
    shown = AttemptView.model_fields.keys() - hidden
    items = [AttemptView(**{name: getattr(one, name) for name in shown}) for one in attempts]
    return AttemptList(items=items, recording=call.records_history)


@ROUTES.change(
    "POST",
    "/api/v1/messages/{message_id}/priority",
    RouteAccess(Role.OPERATOR, Scope.OBJECT),
    "messages.priority",
    summary="Change the priority of a message",
)
async def reprioritize_message(call: Call, message_id: MessagePath, new: NewPriority) -> Reprioritized:
    """Raise or lower the priority of a message that waits, also for a retry or for its time.

    Among the messages of that priority to its chat it stands by its arrival. One that is being sent, has
    ended, or is urgent is a conflict (409).
    """
    record = await find_record(call, message_id)
    if await call.gate.outbox.reprioritize([record.message.id], new.priority) != 1:
        record = await find_record(call, message_id)
        why = "urgent, and goes before every priority" if record.message.urgent else f"{record.state}"
        said = f"message {message_id} is {why}: its priority cannot be changed"
        raise ProblemError(CONFLICT, said, state=record.state)
    call.changed(bot=record.message.bot, target=message_id, detail=new.priority)
    return Reprioritized(id=message_id, priority=new.priority)


@ROUTES.change(
    "POST",
    "/api/v1/messages/{message_id}/cancel",
    RouteAccess(Role.OPERATOR, Scope.OBJECT),
    "messages.cancel",
    summary="Cancel a message",
)
async def cancel_message(call: Call, message_id: MessagePath) -> Cancelled:
    """Take a message back that waits. One that is being sent, or has ended, is a conflict (409)."""
    record = await find_record(call, message_id)
    if await call.gate.outbox.cancel([record.message.id]) != 1:
        record = await find_record(call, message_id)
        raise ProblemError(
            CONFLICT, f"message {message_id} is {record.state}: it does not wait", state=record.state
        )
    call.changed(bot=record.message.bot, target=message_id)
    return Cancelled(cancelled=True)
