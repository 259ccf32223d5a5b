"""The calls, closures and learned limits of a schedule that outlive a restart."""

import msgspec

from tidegate.model import BotId, ChatId
from tidegate.outbox.lanes import Entry, Lane, Pool
from tidegate.outbox.schedule import Schedule
from tidegate.pacing.learned import LearnedLimit, LearnedSnapshot
from tidegate.pacing.window import Window

WHOLE_BOT: ChatId = 0  # no chat has this number


class StoredLimit(msgspec.Struct, frozen=True, array_like=True):
    """The effect of a 429 on a chat, or on a bot (chat 0; its kind is then the budget)."""

    bot: BotId
    chat: ChatId
    kind: str
    closed_for: float  # seconds
    learned: LearnedSnapshot | None


def remember_call(
    schedule: Schedule, bot: BotId, chat: ChatId, kind: str, *, paid: bool, cost: int, at: float, now: float
) -> None:
    """Restore the slots of a call that was answered `at`, before the schedule was made."""
    lane = schedule.lane_of(bot, chat, kind)
    lane.touch()
    shared = schedule.pool_of(lane.bot, "paid" if paid else kind).window
    for window in (*lane.windows, shared) if shared is not None else lane.windows:
        if cost and at + window.seconds * max(1, cost / window.count) > now:
            window.take(cost)
            window.answered(at, cost)
    lane.last_call = max(lane.last_call, at)
    schedule.settle_lane(lane, now)


def limits_of(schedule: Schedule, entry: Entry, now: float) -> list[StoredLimit]:
    """The limits to store after a refusal of this entry."""
    lane = entry.lane
    budget = "paid" if entry.paid else lane.kind
    pool = schedule.pool_of(lane.bot, budget)
    return [
        StoredLimit(lane.bot.id, lane.chat, lane.kind, lane.closed_until - now, _snapshot(lane, now)),
        StoredLimit(lane.bot.id, WHOLE_BOT, budget, lane.bot.closed_until - now, _snapshot(pool, now)),
    ]


def remember_limit(schedule: Schedule, limit: StoredLimit, now: float, elapsed: float) -> None:
    """Restore a limit that was stored `elapsed` seconds ago."""
    closed_until = now + limit.closed_for - elapsed
    if limit.chat == WHOLE_BOT:
        owner = schedule.bot(limit.bot)
        owner.closed_until = max(owner.closed_until, closed_until)
        pool = schedule.pool_of(owner, limit.kind)
        if pool.window is not None:
            _load_learned(pool, pool.window, limit.learned, now, elapsed)
        return
    lane = schedule.lane_of(limit.bot, limit.chat, limit.kind)
    lane.touch()
    lane.closed_until = max(lane.closed_until, closed_until)
    _load_learned(lane, lane.windows[0], limit.learned, now, elapsed)
    schedule.settle_lane(lane, now)


def _snapshot(limited: Lane | Pool, now: float) -> LearnedSnapshot | None:
    return None if limited.learned is None else limited.learned.dump(now)


def _load_learned(
    limited: Lane | Pool, window: Window, kept: LearnedSnapshot | None, now: float, elapsed: float
) -> None:
    if kept is None:
        return
    learned = LearnedLimit.load(window.rate, kept, now, elapsed)
    if not learned.stale(now):
        limited.learned = learned
        window.resize(learned.rate)
