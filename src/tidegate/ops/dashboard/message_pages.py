"""Pages of messages: found by whatever is known of them, one with all that happened to it, and a chat."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from tidegate.database.pending_actions import PendingAction
from tidegate.errors import BadInputError, TidegateError
from tidegate.history import HistoryState
from tidegate.model import BotId, Record, State, TicketId, Why
from tidegate.ops.access import Role
from tidegate.ops.api.bots import find_bot
from tidegate.ops.api.history import (
    HistoryView,
    list_history,
    search_history,
    show_chain,
    show_ends,
    show_history,
)
from tidegate.ops.api.messages import (
    AttemptView,
    MessageView,
    explain_message,
    find_record,
    list_attempts,
    list_messages,
    message_view,
)
from tidegate.ops.api.problems import NOT_FOUND, ProblemError
from tidegate.ops.api.routes import RouteAccess, Scope, check_access
from tidegate.ops.dashboard.letter_advice import advice_for
from tidegate.ops.dashboard.letter_pages import UNDO_FOR
from tidegate.ops.dashboard.message_texts import excerpt, text_in
from tidegate.ops.dashboard.message_timeline import timeline_of, timeline_of_history
from tidegate.ops.dashboard.page import Context, PageMovedError, PageRequest, PageTable
from tidegate.ops.reports import explain_many
from tidegate.outbox.admission import LARGEST_ID, check_chat
from tidegate.outbox.transitions import DEAD_LETTER_STATES

T = TypeVar("T")

PAGES = PageTable()
ROWS: Final = 50
CHAIN: Final = 10  # messages above and below
WAITING: Final = frozenset({State.QUEUED, State.RETRY})
EITHER: Final = "waiting"  # a state to search for: queued, or between two attempts
ANY: Final = "any"
EXPLAINED_WITHIN: Final = 0.2  # seconds; a list that is late is worse than one without reasons
LISTED_EVERY: Final = 3.0  # seconds between two renderings of a list
OPEN_STATES: Final = (State.QUEUED, State.SENDING, State.RETRY)
SEARCH: Final = RouteAccess(Role.OPERATOR, Scope.FILTER)  # that of the route
AWAY: Final = "The history cannot be read now"


class Row(NamedTuple):
    """A message in a list, of the queue or of history. `why` is what one waits for that has not left."""

    link: str | None
    at: float
    direction: str
    bot: int
    chat_id: int | str
    method: str
    priority: str | None
    state: str
    reason: str | None
    text: str
    why: str = ""
    leaves_at: float | None = None


@PAGES.page(
    "/messages", "messages.html", "Messages", RouteAccess(Role.VIEWER, Scope.FILTER), every=LISTED_EVERY
)
async def messages_page(asked: PageRequest) -> Context:
    bot = asked.call.bot_filter(asked.number("bot"))
    wanted, chat, text = asked.one("id"), asked.one("chat"), asked.one("text")
    missing = None
    if wanted is not None:
        if await _is_known(asked, wanted):
            raise PageMovedError(f"/messages/{quote(wanted, safe='')}")
        missing = wanted[:100]
    state, direction = _state(asked), _direction(asked)
    place = asked.one("in") or ("history" if text or direction or state == HistoryState.RECEIVED else "queue")
    fields = {"bot": bot, "chat": chat, "state": state, "direction": direction, "text": text}
    given = {name: value for name, value in fields.items() if value is not None}
    in_queue = _without(given, "text", "direction")
    found = _Found([], None)
    if missing is None:
        found = await (_in_history if place == "history" else _in_queue)(asked, bot, fields)
    is_live = missing is None and text is None and asked.one("cursor") is None
    return {
        "every": LISTED_EVERY if is_live else None,
        "rows": found.rows,
        "next_cursor": found.next_cursor,
        "cursor": asked.one("cursor"),
        "place": place,
        "filter": fields,
        "missing": missing,
        "states": [EITHER, *State] if place == "queue" else [*HistoryState],
        "address": f"/messages?{urlencode({**given, 'in': place})}",
        "waiting_link": f"/messages?{urlencode({**in_queue, 'state': EITHER, 'in': 'queue'})}",
        "queue_link": f"/messages?{urlencode({**_without(in_queue, 'state'), 'in': 'queue'})}",
        "history_link": f"/messages?{urlencode({**_kept_in_history(given), 'in': 'history'})}",
        "is_filtered": bool(_without(given, "state")) or (state is not None and bool(asked.fields)),
    }


class _Found(NamedTuple):
    rows: list[Row]
    next_cursor: str | None


async def _in_queue(asked: PageRequest, bot: BotId | None, fields: dict[str, Any]) -> _Found:
    state = fields["state"]
    if state == HistoryState.RECEIVED:
        return _Found([], None)
    cursor = asked.one("cursor")
    page = await list_messages(
        asked.call,
        bot=bot,
        chat_id=fields["chat"],
        state=None if state is None else sorted(WAITING) if state == EITHER else [State(state)],
        cursor=cursor,
        limit=ROWS,
    )
    # Further ones are deep in their lines, where counting those before them takes long.
    rows = await _rows_with_reasons(asked, page.items if cursor is None else [])
    return _Found(rows or [row_of_message(one) for one in page.items], page.next_cursor)


async def _rows_with_reasons(asked: PageRequest, messages: Sequence[MessageView]) -> list[Row]:
    """Return rows of which those that wait say why, and until when, as far as their store says it in time."""
    gate, now = asked.call.gate, asked.call.clock.now()
    waiting = [TicketId(one.id) for one in messages if one.state in WAITING]
    known: dict[TicketId, Why] = {}
    with suppress(TimeoutError):
        async with gate.clock.timeout(EXPLAINED_WITHIN):
            known = await explain_many(gate, waiting)

    def row(message: MessageView) -> Row:
        why = known.get(TicketId(message.id))
        if why is None:
            return row_of_message(message)
        leaves_at = None if why.expected_in is None else now + why.expected_in
        return row_of_message(message)._replace(why="; ".join(why.waits_for), leaves_at=leaves_at)

    return [row(one) for one in messages]


async def _in_history(asked: PageRequest, bot: BotId | None, fields: dict[str, Any]) -> _Found:
    chat, direction, state = fields["chat"], fields["direction"], fields["state"]
    cursor = asked.one("cursor")
    if fields["text"] is not None:
        check_access(asked.call.principal, SEARCH)
        page = await search_history(
            asked.call,
            text=fields["text"],
            bot=bot,
            chat_id=chat,
            direction=direction,
            cursor=cursor,
            limit=ROWS,
        )
        if state in {*HistoryState}:  # others are of the queue, which is not searched for words
            fits = [one for one in page.items if one.state == state]
            page = page.model_copy(update={"items": fits})
    elif state in {EITHER, *State} - {*HistoryState}:  # one of what has not ended
        return _Found([], None)
    else:
        page = await list_history(
            asked.call,
            bot=bot,
            chat_id=chat,
            direction=direction,
            state=None if state is None else [HistoryState(state)],
            cursor=cursor,
            limit=ROWS,
        )
    return _Found([row_of_history(one) for one in page.items], page.next_cursor)


async def _is_known(asked: PageRequest, ticket: str) -> bool:
    for ask in (find_record, show_ends):
        try:
            await ask(asked.call, ticket)
        except ProblemError as error:
            if error.kind is not NOT_FOUND:
                raise
        else:
            return True
    return False


def row_of_message(message: MessageView) -> Row:
    return Row(
        link=f"/messages/{quote(message.id, safe='')}",
        at=message.created_at,
        direction="out",
        bot=message.bot,
        chat_id=message.chat_id,
        method=message.method or "not readable",
        priority=message.priority.value,
        state=message.state.value,
        reason=message.reason,
        text=excerpt(message),
    )


def row_of_history(message: HistoryView) -> Row:
    return Row(
        link=link_of(message),
        at=message.created_at,
        direction=message.direction,
        bot=message.bot,
        chat_id=message.chat_id,
        method=message.kind,
        priority=message.priority,
        state="changed" if message.is_change and message.direction == "in" else message.state.value,
        reason=message.reason,
        text=excerpt(message),
    )


def link_of(message: HistoryView) -> str | None:
    """Return the page of a message in history: of its ticket, or of Telegram's id; None if it has neither."""
    if message.ticket is not None:
        return f"/messages/{quote(message.ticket, safe='')}"
    if message.telegram_message_id is None:
        return None
    chat = quote(str(message.chat_id), safe="")
    return f"/history/{chat}/{message.telegram_message_id}?bot={message.bot}"


@PAGES.page(
    "/messages/{message_id}",
    "message.html",
    "Message",
    RouteAccess(Role.VIEWER, Scope.OBJECT),
    every=1.5,
)
async def message_page(asked: PageRequest) -> Context:
    ticket = str(asked.parts["message_id"])
    try:
        record = await find_record(asked.call, ticket)
    except ProblemError as error:
        if error.kind is not NOT_FOUND:
            raise
        return await _forgotten(asked, ticket)
    message = message_view(asked.call, record)
    why = await explain_message(asked.call, ticket) if record.state in WAITING else None
    recorded = await _recorded(asked, ticket)
    return {
        "title": f"Message {ticket}",
        "message": message,
        "ends": recorded.ends,
        "text": text_in(message.params or {}),
        "why": why,
        "timeline": timeline_of(message, recorded.attempts, recorded.ends, why, asked.call.clock.now()),
        "trouble": recorded.trouble,
        "limits": _limits(asked, message.bot, message.chat_id),
        "chain": await _chain_of(asked, message, recorded.ends),
        "advice": advice_for(record.reason, record.state) if record.state in DEAD_LETTER_STATES else None,
        "pending": await _pending(asked, record),
        "undo_for": UNDO_FOR,
        "link_of": link_of,
        "excerpt": excerpt,
    }


async def _forgotten(asked: PageRequest, ticket: str) -> Context:
    """Show a message of which the outbox knows nothing any more."""
    ends, attempts = list[HistoryView](), list[AttemptView]()
    try:
        ends = (await show_ends(asked.call, ticket)).items
    except ProblemError as error:
        if error.kind is not NOT_FOUND:
            raise
    attempts = (await list_attempts(asked.call, ticket)).items  # raises if it was never put
    chain = await _chain(asked, ends[-1]) if ends else None
    return {
        "title": f"Message {ticket}",
        "message": None,
        "ends": ends,
        "text": next((one.text for one in ends if one.text), ""),
        "why": None,
        "timeline": timeline_of_history(ends, attempts),
        "trouble": "",
        "limits": _limits(asked, ends[0].bot, ends[0].chat_id) if ends else None,
        "chain": chain,
        "advice": None,
        "pending": [],
        "undo_for": UNDO_FOR,
        "link_of": link_of,
        "excerpt": excerpt,
    }


@PAGES.page(
    "/history/{chat_id}/{telegram_id}",
    "history_message.html",
    "Message of history",
    RouteAccess(Role.VIEWER, Scope.OBJECT),
)
async def history_page(asked: PageRequest) -> Context:
    chat, number, bot = str(asked.parts["chat_id"]), _telegram_id(asked), asked.number("bot")
    found = (await show_history(asked.call, chat, number, bot=bot)).items
    chain = await show_chain(asked.call, chat, number, bot=found[0].bot, depth=CHAIN)
    return {
        "title": f"Message {number} of chat {found[0].chat_id}",
        "area": "/messages",
        "versions": found,
        "first": found[0],
        "chain": chain,
        "link_of": link_of,
        "excerpt": excerpt,
    }


async def _pending(asked: PageRequest, record: Record) -> list[PendingAction]:
    """Return what is going to happen to a dead letter unless it is undone."""
    if record.state not in DEAD_LETTER_STATES:
        return []
    known = await _if_readable(asked.call.pending.store.list)
    return [one for one in known or [] if one.choice.covers(record)]


def _limits(asked: PageRequest, bot: int, chat_id: int | str) -> dict[str, Any]:
    """Return the limits that a message is under: the rules, and what 429s have taught of its bot."""
    rules = asked.call.gate.core.rules
    return {
        "bot": rules.bot,
        "chat": rules.chat(chat_id),
        "learned": asked.call.activity.learned_by(BotId(bot)),
    }


class _Recorded(NamedTuple):
    ends: list[HistoryView]
    attempts: list[AttemptView]
    trouble: str = ""


async def _recorded(asked: PageRequest, ticket: str) -> _Recorded:
    """Return what history knows of a message. It may be away: then the outbox' part is shown all the same."""
    try:
        ends = await show_ends(asked.call, ticket)
        attempts = await list_attempts(asked.call, ticket)
    except TidegateError as error:
        return _Recorded([], [], f"{AWAY}: {error}")
    return _Recorded(ends.items, attempts.items)


async def _chain_of(asked: PageRequest, message: MessageView, ends: list[HistoryView]) -> Any:  # noqa: ANN401
    """Return what came before and after a message: by its end, or by what it is going to reply to."""
    if ends:
        return await _chain(asked, ends[-1])
    reply = (message.params or {}).get("reply_parameters")
    parent = reply.get("message_id") if isinstance(reply, dict) else None
    if not isinstance(parent, int) or parent < 1:
        return None
    return await _if_known(
        lambda: show_chain(asked.call, str(message.chat_id), parent, bot=message.bot, depth=CHAIN)
    )


async def _chain(asked: PageRequest, end: HistoryView) -> Any:  # noqa: ANN401  (a chain, or None)
    number = end.telegram_message_id
    if number is None:
        return None
    return await _if_known(lambda: show_chain(asked.call, str(end.chat_id), number, bot=end.bot, depth=CHAIN))


async def _if_known(ask: Callable[[], Awaitable[T]]) -> T | None:
    try:
        return await ask()
    except (ProblemError, TidegateError):  # it is beside the point of the page
        return None


@PAGES.page(
    "/chats/{bot}/{chat_id}",
    "chat.html",
    "Chat",
    RouteAccess(Role.VIEWER, Scope.PATH),
    every=LISTED_EVERY,
)
async def chat_page(asked: PageRequest) -> Context:
    given = str(asked.parts["bot"])
    if not given.isascii() or not given.isdecimal() or not 0 < int(given[:20]) < LARGEST_ID:
        raise ProblemError(NOT_FOUND, f"bot {given[:20]} is not known here")
    chat = check_chat(str(asked.parts["chat_id"]))
    bot = await find_bot(asked.call, int(given))
    text = str(chat)
    waiting = await list_messages(asked.call, bot=bot, chat_id=text, state=[*OPEN_STATES], limit=ROWS)
    letters = await list_messages(
        asked.call, bot=bot, chat_id=text, state=[State.DEAD, State.PARKED], limit=ROWS
    )
    history = await _if_readable(
        lambda: list_history(asked.call, bot=bot, chat_id=text, cursor=asked.one("cursor"), limit=ROWS)
    )
    limits = await asked.call.gate.outbox.limits()
    closed = next((one.closed_for for one in limits if (one.bot, one.chat_id) == (bot, chat)), 0.0)
    closed_bot = next((one.closed_for for one in limits if (one.bot, one.chat_id) == (bot, None)), 0.0)
    pauses = await asked.call.gate.core.store.pauses()
    now = asked.call.clock.now()
    return {
        "title": f"Chat {chat}",
        "area": "/messages",
        "bot": bot,
        "chat": chat,
        "waiting": await _rows_with_reasons(asked, waiting.items),
        "more_waiting": waiting.next_cursor is not None,
        "letters": [row_of_message(one) for one in letters.items],
        "more_letters": letters.next_cursor is not None,
        "history": None if history is None else [row_of_history(one) for one in history.items],
        "next_cursor": None if history is None else history.next_cursor,
        "cursor": asked.one("cursor"),
        "closed_until": now + closed if closed > 0 else None,
        "bot_closed_until": now + closed_bot if closed_bot > 0 else None,
        "is_paused": (bot, chat) in pauses,
        "bot_is_paused": (bot, None) in pauses,
        "chat_path": quote(text, safe=""),
    }


async def _if_readable(ask: Callable[[], Awaitable[T]]) -> T | None:
    """Return None while the database is away; what the store knows is shown all the same."""
    try:
        return await ask()
    except BadInputError:
        raise
    except TidegateError:
        return None


def _state(asked: PageRequest) -> str | None:
    """Return the state to look for; None: any. Whoever asks for nothing in particular gets what waits."""
    state = asked.one("state") if asked.fields else EITHER
    if state == ANY:
        return None
    if state is not None and state not in {EITHER, *State, *HistoryState}:
        raise BadInputError(
            f"{state[:40]} is no state: use {', '.join(dict.fromkeys((EITHER, *State, *HistoryState)))}"
        )
    return state


def _direction(asked: PageRequest) -> Any:  # noqa: ANN401  ("in", "out" or None)
    direction = asked.one("direction")
    if direction not in {None, "in", "out"}:
        raise BadInputError(f'direction is "in" or "out", not {str(direction)[:40]}')
    return direction


def _telegram_id(asked: PageRequest) -> int:
    given = str(asked.parts["telegram_id"])
    if not given.isascii() or not given.isdecimal() or not 0 < int(given[:20]) < LARGEST_ID:
        raise ProblemError(NOT_FOUND, f"{given[:20]} is no id of a message in a chat")
    return int(given)


def _without(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


def _kept_in_history(given: dict[str, Any]) -> dict[str, Any]:
    """Return the filters that history has, too."""
    return given if given.get("state") in {None, *HistoryState} else _without(given, "state")
