"""Pages of broadcasts: all of them, one with its progress and whom it did not reach, and a new one."""

from typing import Any
from urllib.parse import quote, urlencode

from tidegate.model import Priority
from tidegate.ops.access import Role
from tidegate.ops.api.bots import list_bots
from tidegate.ops.api.broadcasts import (
    BroadcastView,
    MissedPage,
    list_broadcasts,
    missed_page,
    show_broadcast,
)
from tidegate.ops.api.pagination import LARGEST_PAGE
from tidegate.ops.api.routes import RouteAccess, Scope
from tidegate.ops.dashboard.activity import BotState
from tidegate.ops.dashboard.formats import obstacle
from tidegate.ops.dashboard.page import Context, PageRequest, PageTable

PAGES = PageTable()
ROWS = 50
LOOK_FOR = 0.1  # seconds of each: the rest is a further page
PAUSABLE = frozenset(("running",))
RESUMABLE = frozenset(("paused", "stopped"))
UNDER_WAY = frozenset(("running", "delivering"))
CANCELLABLE = frozenset(("running", "paused", "stopped", "delivering"))
ENDS = ("delivered", "dead", "parked", "expired", "cancelled", "forgotten", "skipped", "bad", "repeated")
NOT_REACHED = ("dead", "parked", "expired", "cancelled")


@PAGES.page("/broadcasts", "broadcasts.html", "Broadcasts", RouteAccess(Role.VIEWER, Scope.FILTER), every=2.0)
async def broadcasts_page(asked: PageRequest) -> Context:
    """All broadcasts that the store knows, the newest first."""
    bot = asked.number("bot")
    found = (await list_broadcasts(asked.call, bot=bot, limit=LARGEST_PAGE)).items
    states = await _bot_states(asked)
    return {"broadcasts": [_shown(one, states.get(one.bot)) for one in reversed(found)], "bot": bot}


@PAGES.page(
    "/broadcasts/new", "broadcast_new.html", "A new broadcast", RouteAccess(Role.OPERATOR, Scope.FILTER)
)
async def new_broadcast_page(asked: PageRequest) -> Context:
    bots = [one.bot for one in (await list_bots(asked.call)).items]
    return {"bots": bots, "priorities": list(Priority), "script": "broadcast.js"}


@PAGES.page(
    "/broadcasts/{name}", "broadcast.html", "Broadcast", RouteAccess(Role.VIEWER, Scope.OBJECT), every=1.0
)
async def broadcast_page(asked: PageRequest) -> Context:
    """The progress of a broadcast, and the chats that it did not reach."""
    name, bot, cursor = str(asked.parts["name"]), asked.number("bot"), asked.one("cursor")
    view = await show_broadcast(asked.call, name, bot=bot)
    not_reached = sum(view.counts.get(state, 0) for state in NOT_REACHED)
    missed = MissedPage(items=[])
    if not_reached or cursor:  # else all its messages would be looked through, for nobody
        missed = await missed_page(asked.call, view.bot, name, cursor, ROWS, seconds=LOOK_FOR)
    shown = _shown(view, (await _bot_states(asked)).get(view.bot))
    return {
        "one": shown,
        "missed": missed.items,
        "next_cursor": missed.next_cursor,
        "cursor": cursor,
        "never_put": max(0, (view.total or 0) - view.counts.get("read", 0)) if view.ended_at else 0,
        "not_reached": not_reached,
        "title": name,
    }


async def _bot_states(asked: PageRequest) -> dict[int, BotState]:
    return {one.bot: one for one in (await asked.call.activity.now()).bots}


def _shown(view: BroadcastView, bot: BotState | None) -> dict[str, Any]:
    """Return a broadcast with what a template needs: addresses, how far it is, and what can be done.

    `held`: why its bot sends nothing. Then nobody knows when it ends; a bot that is closed goes on later.
    """
    held = _held(bot) if view.state in UNDER_WAY else ""
    closed_for = 0.0 if bot is None else bot.closed_for
    counts = view.counts
    done = sum(counts.get(name, 0) for name in ENDS)
    whole = max(view.total or 0, counts.get("accepted", 0), done)
    query = urlencode({"bot": view.bot})
    api = f"/api/v1/broadcasts/{quote(view.name, safe='')}"
    return {
        "view": view,
        "done": done,
        "whole": whole,
        "held": held,
        "ends_at": None if held or view.ends_at is None else view.ends_at + closed_for,
        "percent": 100 * done / whole if whole else 0.0,
        "page": f"/broadcasts/{quote(view.name, safe='')}?{query}",
        "pause": f"{api}/pause?{query}" if view.state in PAUSABLE else None,
        "resume": f"{api}/resume?{query}" if view.state in RESUMABLE else None,
        "cancel": f"{api}/cancel?{query}" if view.state in CANCELLABLE else None,
        "csv": f"{api}/missed.csv?{query}",
    }


def _held(bot: BotState | None) -> str:
    if bot is None or not (bot.is_paused or bot.obstacle):
        return ""
    return "is paused" if bot.is_paused else f"cannot send: {obstacle(bot.obstacle)}"
