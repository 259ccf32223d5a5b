"""Pages of dead letters: what died of what, what to do about it, and replaying or dropping them."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from tidegate.errors import BadInputError, StoreError
from tidegate.model import State
from tidegate.ops.access import Role
from tidegate.ops.api.dead_letters import (
    LetterGroupView,
    LetterState,
    PendingView,
    list_groups,
    list_letters,
    list_pending,
)
from tidegate.ops.api.messages import MessageView, show_message
from tidegate.ops.api.problems import ProblemError
from tidegate.ops.api.routes import RouteAccess, Scope
from tidegate.ops.dashboard.formats import number
from tidegate.ops.dashboard.letter_advice import Advice, advice_for
from tidegate.ops.dashboard.message_texts import excerpt
from tidegate.ops.dashboard.page import Context, PageRequest, PageTable

PAGES = PageTable()
UNDO_FOR: Final = 15  # seconds, as long as the button to undo is there
GROUPS_SHOWN: Final = 50
BOTS_SHOWN: Final = 20  # of a group
ROWS: Final = 50
COUNTED: Final = "{messages}"  # the browser counts them when it asks, and writes one or many
AGES: Final = ((3_600, "an hour"), (86_400, "a day"), (7 * 86_400, "a week"), (30 * 86_400, "30 days"))


class ReasonGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of all bots that ended in one state for one reason."""

    reason: str | None
    state: State
    count: int
    first_at: float
    last_at: float
    advice: Advice
    bots: list[LetterGroupView]
    example: MessageView | None
    selection: dict[str, Any]
    link: str
    about: str  # "{messages} that died as blocked"


@PAGES.page(
    "/dead-letters", "dead_letters.html", "Dead letters", RouteAccess(Role.VIEWER, Scope.FILTER), every=3.0
)
async def letters_page(asked: PageRequest) -> Context:
    bot, state = asked.call.bot_filter(asked.number("bot")), state_of(asked)
    found = (await list_groups(asked.call, bot=bot)).items
    wanted = [one for one in found if state in {None, one.state}]
    groups = reason_groups(wanted, None if bot is None else int(bot))
    shown = [
        msgspec.structs.replace(group, example=await _example(asked, group.bots[0].latest))
        for group in groups[:GROUPS_SHOWN]
    ]
    return {
        "groups": shown,
        "more": len(groups) - len(shown),
        "total": sum(one.count for one in wanted),
        "bot": bot,
        "state": state,
        "pending": await pending_of(asked, bot),
        "undo_for": UNDO_FOR,
        "bots_shown": BOTS_SHOWN,
        "excerpt": excerpt,
    }


@PAGES.page(
    "/dead-letters/list",
    "letters.html",
    "Dead letters",
    RouteAccess(Role.VIEWER, Scope.FILTER),
    every=3.0,
)
async def letter_list_page(asked: PageRequest) -> Context:
    bot, state, older_than = (
        asked.call.bot_filter(asked.number("bot")),
        state_of(asked),
        asked.number("older_than"),
    )
    if older_than is not None and not 0 <= older_than <= 10**9:
        raise BadInputError("older_than is a number of seconds, 0 to 1,000,000,000")
    chat, reason, cursor = asked.one("chat"), asked.one("reason"), asked.one("cursor")
    page = await list_letters(
        asked.call,
        bot=bot,
        chat_id=chat,
        reason=reason,
        state=state,
        older_than=older_than,
        cursor=cursor,
        limit=ROWS,
    )
    fields = {"bot": bot, "chat": chat, "reason": reason, "state": state, "older_than": older_than}
    given = {name: value for name, value in fields.items() if value is not None}
    return {
        "letters": page.items,
        "next_cursor": page.next_cursor,
        "cursor": cursor,
        "filter": fields,
        "selection": selection_of(given),
        "about": about(given, COUNTED),
        "address": f"/dead-letters/list?{urlencode(given)}",
        "advice": None if reason is None else advice_for(reason, State(state or State.DEAD)),
        "ages": AGES,
        "pending": await pending_of(asked, bot),
        "undo_for": UNDO_FOR,
        "excerpt": excerpt,
    }


def state_of(asked: PageRequest) -> LetterState | None:
    """Return the state that is asked for. Raises BadInputError."""
    match asked.one("state"):
        case None:
            return None
        case "dead":
            return "dead"
        case "parked":
            return "parked"
        case other:
            raise BadInputError(f"a dead letter is dead or parked, not {other[:40]}")


def reason_groups(found: Sequence[LetterGroupView], bot: int | None) -> list[ReasonGroup]:
    """Return what died of what, of all bots together, the most frequent first. Pure."""
    by_reason: dict[tuple[str | None, State], list[LetterGroupView]] = {}
    for one in found:
        by_reason.setdefault((one.reason, one.state), []).append(one)
    groups = [
        _group(reason, state, sorted(bots, key=lambda one: (-one.count, one.bot)), bot)
        for (reason, state), bots in by_reason.items()
    ]
    return sorted(groups, key=lambda one: (-one.count, one.reason or ""))


def _group(reason: str | None, state: State, bots: list[LetterGroupView], bot: int | None) -> ReasonGroup:
    count = sum(one.count for one in bots)
    given: dict[str, Any] = {"reason": reason, "state": state.value}
    given |= {} if bot is None else {"bot": bot}
    return ReasonGroup(
        reason=reason,
        state=state,
        count=count,
        first_at=min(one.first_at for one in bots),
        last_at=max(one.last_at for one in bots),
        advice=advice_for(reason, state),
        bots=bots,
        example=None,
        selection=given,
        link=f"/dead-letters/list?{urlencode({name: value for name, value in given.items() if value})}",
        about=about(given, COUNTED),
    )


def selection_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a request that means what a list shows."""
    if not given:
        return {"everything": True}
    named = {("chat_id" if name == "chat" else name): value for name, value in given.items()}
    chat = named.get("chat_id")
    if isinstance(chat, str) and not chat.startswith("@"):
        named["chat_id"] = int(chat)  # it was checked by the list
    return named


def about(given: dict[str, Any], noun: str) -> str:
    """Say which letters a filter means: `messages of bot 42 that died as blocked`."""
    words = [noun]
    words += [f"to chat {given['chat']}"] if "chat" in given else []
    words += [f"of bot {given['bot']}"] if "bot" in given else []
    ended = "parked" if given.get("state") == "parked" else "that died"
    words.append(f"{ended} as {given['reason']}" if given.get("reason") else ended)
    ages = dict(AGES)
    if "older_than" in given:
        age = ages.get(given["older_than"], f"{number(given['older_than'])} s")
        words.append(f"more than {age} ago")
    return " ".join(words)


async def pending_of(asked: PageRequest, bot: int | None) -> list[tuple[PendingView, str]]:
    """Return what can still be undone, or is being done, each with the letters that it means."""
    try:
        views = (await list_pending(asked.call, bot=bot)).items
    except StoreError:  # the database is away; dead letters are in the store
        return []
    return [(view, pending_words(view)) for view in views]


def pending_words(view: PendingView) -> str:
    noun = "message" if view.selected == 1 else "messages"
    if view.by_ids:
        return f"selected {noun}"
    fields = {"chat": view.chat_id, "bot": view.bot, "reason": view.reason, "state": view.state}
    return about({name: value for name, value in fields.items() if value is not None}, noun)


async def _example(asked: PageRequest, ticket: str) -> MessageView | None:
    """Return the letter that ended last; None if it was replayed or dropped in this moment."""
    try:
        return await show_message(asked.call, ticket)
    except ProblemError:
        return None
