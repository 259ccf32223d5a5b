"""Routes of history: messages in and out, listed, searched, and with what they reply to."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from tidegate.history import LONGEST_CHAIN, HistoryMessage, HistoryPage, HistoryState
from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall, Call
from tidegate.ops.api.messages import bots_of
from tidegate.ops.api.pagination import Cursor, ItemPage, Limit, decode_cursor, encode_cursor
from tidegate.ops.api.parameters import (
    EXAMPLE_ID,
    EXAMPLE_TIME,
    LARGEST_ROW,
    BotField,
    BotFilter,
    ChatField,
    ChatFilter,
    ChatPath,
    MessagePath,
    RecordingField,
    Seconds,
    chat_of,
)
from tidegate.ops.api.problems import NOT_FOUND, ProblemError
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope
from tidegate.outbox.admission import check_chat

ROUTES = RouteTable("history")
TEXTS = ("text", "description")  # hidden from viewers

DirectionFilter = Annotated[Literal["in", "out"] | None, Query(description="Received, or sent.")]
StateFilter = Annotated[list[HistoryState] | None, Query(description="Only in this state; repeatable.")]
TimeFilter = Annotated[
    float | None, Query(ge=0, le=1e11, description="By when it came in, or was put.", examples=[EXAMPLE_TIME])
]
TelegramId = Annotated[
    int,
    Field(ge=1, le=LARGEST_ROW, description="Telegram's id of the message in its chat.", examples=[3]),
]
Depth = Annotated[
    int,
    Query(ge=0, le=LONGEST_CHAIN, description="How many messages above and below at most.", examples=[20]),
]


class HistoryView(BaseModel):
    """A message that came in or went out, or a change of one. A viewer gets null for texts."""

    id: int
    bot: BotField
    direction: Literal["in", "out"]
    chat_id: ChatField
    telegram_message_id: int | None
    reply_to_message_id: int | None
    user_id: int | None
    kind: str = Field(description="The method, or Telegram's name of the update.", examples=["sendMessage"])
    is_change: bool = Field(description="An edit or a deletion of the message with this id.")
    text: str | None = None
    state: HistoryState
    reason: str | None
    description: str | None = None
    ticket: str | None = Field(description="The id of the queued message.", examples=[EXAMPLE_ID])
    priority: str | None
    attempts: int | None
    created_at: Seconds
    ended_at: Seconds | None


class HistoryList(ItemPage[HistoryView]):
    """Messages, the newest first."""

    recording: RecordingField


class ReplyChainView(BaseModel):
    """A message, what it replies to, the first one first, and the replies to it."""

    message: HistoryView
    above: list[HistoryView]
    replies: list[HistoryView]


class FoundMessages(BaseModel):
    """A message and its changes, the oldest first."""

    items: list[HistoryView]
    recording: RecordingField


def _view(call: ApiCall, message: HistoryMessage) -> HistoryView:
    hidden = () if call.sees_texts else TEXTS
    return HistoryView(
        **{name: getattr(message, name) for name in HistoryView.model_fields if name not in hidden}
    )


def _page(call: ApiCall, page: HistoryPage) -> HistoryList:
    items = [_view(call, one) for one in page.messages]
    cursor = encode_cursor("history", page.cursor)
    return HistoryList(items=items, next_cursor=cursor, recording=call.records_history)


def _found(call: ApiCall, messages: Sequence[HistoryMessage]) -> FoundMessages:
    return FoundMessages(items=[_view(call, one) for one in messages], recording=call.records_history)


def _unknown(call: ApiCall, chat_id: str, telegram_id: int) -> ProblemError:
    hint = "" if call.records_history else ": nothing is recorded, as TIDEGATE_HISTORY is off"
    return ProblemError(NOT_FOUND, f"message {telegram_id} of chat {chat_id} is not known here{hint}")


@ROUTES.get("/api/v1/history", RouteAccess(Role.VIEWER, Scope.FILTER), summary="List history")
async def list_history(
    call: Call,
    *,
    bot: BotFilter = None,
    chat_id: ChatFilter = None,
    direction: DirectionFilter = None,
    state: StateFilter = None,
    since: TimeFilter = None,
    until: TimeFilter = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> HistoryList:
    """Messages in and out, the newest first."""
    found = await call.gate.history.list(
        bot=call.bot_filter(bot),
        chat_id=chat_of(chat_id),
        direction=direction,
        states=state or (),
        since=since,
        until=until,
        limit=limit,
        cursor=decode_cursor("history", cursor, str),
    )
    return _page(call, found)


# Whoever can search for words can find out texts: a viewer cannot.
@ROUTES.get("/api/v1/history/search", RouteAccess(Role.OPERATOR, Scope.FILTER), summary="Search history")
async def search_history(
    call: Call,
    *,
    text: Annotated[
        str,
        Query(
            min_length=1,
            max_length=500,
            description="All of these words; pay* is a beginning.",
            examples=["order"],
        ),
    ],
    bot: BotFilter = None,
    chat_id: ChatFilter = None,
    direction: DirectionFilter = None,
    since: TimeFilter = None,
    until: TimeFilter = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> HistoryList:
    """Messages with all of these words, the newest first."""
    found = await call.gate.history.search(
        text,
        bot=call.bot_filter(bot),
        chat_id=chat_of(chat_id),
        direction=direction,
        since=since,
        until=until,
        limit=limit,
        cursor=decode_cursor("history", cursor, str),
    )
    return _page(call, found)


@ROUTES.get(
    "/api/v1/messages/{message_id}/history",
    RouteAccess(Role.VIEWER, Scope.OBJECT),
    summary="Show a queued message in history",
)
async def show_ends(call: Call, message_id: MessagePath) -> FoundMessages:
    """How a queued message has ended, also if the outbox has forgotten it. One that has not ended has no row,
    an album a row for each message, and one that was replayed a row for each end.
    """
    call.check_owners(await bots_of(call, message_id), f"message {message_id}")
    found = await call.gate.history.find(ticket=message_id)
    return _found(call, found)


@ROUTES.get(
    "/api/v1/history/{chat_id}/{telegram_id}",
    RouteAccess(Role.VIEWER, Scope.OBJECT),
    summary="Show a message of history",
)
async def show_history(
    call: Call, chat_id: ChatPath, telegram_id: TelegramId, bot: BotFilter = None
) -> FoundMessages:
    """A message and its changes. In private chats each bot counts for itself: name the bot."""
    found = await call.gate.history.find(check_chat(chat_id), telegram_id, bot=call.bot_filter(bot))
    if not found:
        raise _unknown(call, chat_id, telegram_id)
    return _found(call, found)


@ROUTES.get(
    "/api/v1/history/{chat_id}/{telegram_id}/chain",
    RouteAccess(Role.VIEWER, Scope.OBJECT),
    summary="Show a reply chain",
)
async def show_chain(
    call: Call, chat_id: ChatPath, telegram_id: TelegramId, *, bot: BotFilter = None, depth: Depth = 20
) -> ReplyChainView:
    """A message, the messages that it replies to, and the replies to it."""
    found = await call.gate.history.chain(
        check_chat(chat_id), telegram_id, bot=call.bot_filter(bot), depth=depth
    )
    if found is None:
        raise _unknown(call, chat_id, telegram_id)
    return ReplyChainView(
        message=_view(call, found.message),
        above=[_view(call, one) for one in found.above],
        replies=[_view(call, one) for one in found.replies],
    )
