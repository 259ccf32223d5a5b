"""The limits of a schedule in memory, as an operator sees them."""

from collections.abc import Iterable
from typing import Final

from tidegate.model import BotId, ChatId, Rate
from tidegate.outbox.port import LimitState
from tidegate.outbox.schedule import Schedule

Closures = list[tuple[BotId, ChatId | None, float, str]]
Learned = dict[tuple[BotId, ChatId | None], Rate]

CLOSED: Final = "closed by a 429"
SHORTEST_NOTED: Final = 1.0  # seconds


def limit_states(closures: Closures, learned: Learned) -> list[LimitState]:
    """One state for each bot and chat, those that are closed first."""
    closed: dict[tuple[BotId, ChatId | None], tuple[float, str]] = {}
    for bot, chat, seconds, obstacle in closures:  # a chat has a lane for each kind of call
        before, _ = closed.get((bot, chat), (0.0, ""))
        closed[bot, chat] = (max(0.0, before, seconds), obstacle)
    places = [*closed, *(place for place in learned if place not in closed)]
    return [LimitState(*place, learned.get(place), *closed.get(place, (0.0, ""))) for place in places]


def limits_in(schedule: Schedule, now: float, *, chats: bool = True) -> list[LimitState]:
    return limit_states(schedule.closures(now, chats=chats), schedule.learned(chats=chats))


def closure_notes(closed: Iterable[tuple[BotId, float]]) -> list[str]:
    """Say which bots a 429 has closed, and for how many seconds: Telegram's order, and no fault of a part."""
    return [
        f"bot {bot} is {CLOSED} for another {seconds:.0f} s, and sends nothing until then:"
        f" tidegate limits open --bot {bot} ends that"
        for bot, seconds in closed
        if seconds >= SHORTEST_NOTED
    ]


def closure_notes_in(schedule: Schedule, now: float) -> list[str]:
    return closure_notes((bot.id, bot.closed_until - now) for bot in schedule.bots.values())
