"""The limits of a schedule in memory, as an operator sees them."""

from tidegate.model import BotId, ChatId, Rate
from tidegate.outbox.port import LimitState
from tidegate.outbox.schedule import Schedule

Closures = list[tuple[BotId, ChatId | None, float, str]]
Learned = dict[tuple[BotId, ChatId | None], Rate]


def limit_states(closures: Closures, learned: Learned) -> list[LimitState]:
    """One state for each bot and chat, those that are closed first."""
    closed: dict[tuple[BotId, ChatId | None], tuple[float, str]] = {}
    for bot, chat, seconds, obstacle in closures:  # a chat has a lane for each kind of call
        before, _ = closed.get((bot, chat), (0.0, ""))
        closed[bot, chat] = (max(0.0, before, seconds), obstacle)
    places = [*closed, *(place for place in learned if place not in closed)]
    return [LimitState(*place, learned.get(place), *closed.get(place, (0.0, ""))) for place in places]


def limits_in(schedule: Schedule, now: float) -> list[LimitState]:
    return limit_states(schedule.closures(now), schedule.learned())
