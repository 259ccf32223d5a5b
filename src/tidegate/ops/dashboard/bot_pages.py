"""Pages of bots: how fast each may go, what closes it, and its pauses."""

from typing import Final, NamedTuple

from tidegate.model import BotId
from tidegate.ops.access import Role
from tidegate.ops.api.bots import list_bots, show_bot
from tidegate.ops.api.limits import BotLimitsView, show_limits
from tidegate.ops.api.routes import RouteAccess, Scope
from tidegate.ops.dashboard.page import Context, PageRequest, PageTable

PAGES = PageTable()
CHATS_SHOWN: Final = 50


class LimitField(NamedTuple):
    """A limit as a form shows it: calls in a fixed number of seconds, which people can compare."""

    name: str  # in the API
    label: str
    seconds: int
    value: str
    is_own: bool


@PAGES.page("/bots", "bots.html", "Bots and limits", RouteAccess(Role.VIEWER, Scope.FILTER), every=2.0)
async def bots_page(asked: PageRequest) -> Context:
    views = (await list_bots(asked.call)).items
    states = {bot.bot: bot for bot in (await asked.call.activity.now()).bots}
    return {"bots": [(view, states.get(BotId(view.bot))) for view in views]}


@PAGES.page("/bots/{bot:int}", "bot.html", "Bot", RouteAccess(Role.VIEWER, Scope.PATH), every=2.0)
async def bot_page(asked: PageRequest) -> Context:
    bot = int(asked.parts["bot"])
    view = await show_bot(asked.call, bot)
    states = {one.bot: one for one in (await asked.call.activity.now()).bots}
    found = await show_limits(asked.call, bot, asked.one("cursor"), CHATS_SHOWN)
    limits = next((one for one in found.bots if one.bot == bot), None)
    return {
        "view": view,
        "state": states.get(BotId(bot)),
        "title": f"Bot {bot}",
        "limits": limits,
        "webhook": asked.call.activity.webhooks.look(BotId(bot)),
        "asks_webhook": asked.call.activity.webhooks.asks_for(BotId(bot)),
        "fields": [] if limits is None else limit_fields(limits),
        "chats": found.items,
        "next_cursor": found.next_cursor,
        "cursor": asked.one("cursor"),
    }


def limit_fields(limits: BotLimitsView) -> list[LimitField]:
    """Return the limits that can be changed."""
    fields = (
        ("bot_rate", "Calls a second of the bot", 1, limits.bot_rate),
        ("chat_rate", "Calls a second to a private chat", 1, limits.chat_rate),
        ("group_rate", "Calls a minute to a group or channel", 60, limits.group_rate),
    )
    return [
        LimitField(name, label, seconds, _per(rate, seconds), name in limits.own)
        for name, label, seconds, rate in fields
    ]


def _per(rate: str, seconds: int) -> str:
    """Return how many calls that is in so many seconds; rules of a program may be above what a form takes."""
    count, _, per = rate.partition("/")
    calls = float(count) * seconds / float(per)
    return f"{calls:.0f}" if calls.is_integer() else f"{calls:g}"
