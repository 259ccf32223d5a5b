"""Flood control: what a 429 closes, which limit it cuts, how that recovers, and what outlives a restart."""

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tidegate.events import LimitChange
from tidegate.model import BotId, ChatId
from tidegate.outbox.lanes import Entry, Lane, Pool
from tidegate.pacing.learned import LearnedLimit, LearnedSnapshot
from tidegate.pacing.rules import Rules
from tidegate.pacing.window import Window

if TYPE_CHECKING:  # it calls this module
    from tidegate.outbox.schedule import Schedule

WHOLE_BOT: ChatId = 0  # no chat has this number
FULL_FOR_WINDOWS = 1.5  # windows since the last call, within which a limit of one call counts as full


class RefusalEffect(NamedTuple):
    """The changes that a 429 has made."""

    closes_bot: bool  # else the chat alone
    cut: LimitChange | None = None
    cuts_bot: bool = False  # else the limit of the chat


def learn_from_refusal(lane: Lane, pool: Pool, rules: Rules, now: float, retry_after: float) -> RefusalEffect:
    """A 429 never says its scope. One refused chat is closed; several within a window close the bot.

    A reply that exceeded the average of its chat was refused for that: it says nothing about the bot. Call
    this before the refused call gives up its slots: how full its limits were is the evidence.
    """
    bot, window = lane.bot, pool.window
    lane.closed_until = max(lane.closed_until, now + retry_after)
    if lane.bursts and _others(lane.windows[1], now) >= 1:
        return RefusalEffect(closes_bot=False, cut=_cut_lane(lane, now, in_burst=True))
    seconds = window.seconds if window is not None else 1.0
    bot.refused = {chat: at for chat, at in bot.refused.items() if now - at < seconds}
    bot.refused[lane.chat] = now
    several = len(bot.refused) > 1
    if several:
        bot.closed_until = max(bot.closed_until, now + retry_after)
    if window is not None and (several or _others(window, now) >= _fullness(lane, now)):
        if pool.learned is None:
            pool.learned = LearnedLimit(rules.paid if bot.pools.get("paid") is pool else rules.bot)
        return RefusalEffect(several, _cut(pool.learned, window, now), cuts_bot=True)
    return RefusalEffect(several, _cut_lane(lane, now))


def step_up(limited: Lane | Pool, window: Window, now: float) -> LimitChange | None:
    """Let a learned limit recover, if it is time. Returns the change, if there is one."""
    learned = limited.learned
    if learned is None or not learned.quiet(now):
        return None
    change = LimitChange(learned.rule, window.rate, learned.rate, restored=learned.intact)
    if window.is_burst and learned.rate.seconds > window.seconds:
        window.lengthen(learned.rate, now)
    else:
        window.resize(learned.rate)
    if learned.intact:
        limited.learned = None
    return change


def _cut_lane(lane: Lane, now: float, *, in_burst: bool = False) -> LimitChange | None:
    window = lane.windows[0]
    if lane.learned is None:  # so the window has the rate of its rule
        lane.learned = LearnedLimit(window.rate, is_burst=window.is_burst)
    return _cut(lane.learned, window, now, in_burst=in_burst)


def _cut(learned: LearnedLimit, window: Window, now: float, *, in_burst: bool = False) -> LimitChange | None:
    if not learned.refused(now, in_burst=in_burst):
        return None
    change = LimitChange(learned.rule, window.rate, learned.rate)
    window.resize(learned.rate)
    return change


def _others(window: Window, now: float) -> float:
    """The share of slots that are taken now, without the refused call."""
    return (window.count - window.free(now) - 1) / window.count


def _fullness(lane: Lane, now: float) -> float:
    window = lane.windows[1] if lane.bursts else lane.windows[0]
    if window.count == 1:  # it holds the refused call alone: look at the call before
        return 1.0 if now - lane.last_call < FULL_FOR_WINDOWS * window.seconds else 0.0
    return _others(window, now)


class StoredLimit(msgspec.Struct, frozen=True, array_like=True):
    """The effect of a 429 on a chat, or on a bot (chat 0; its kind is then the budget)."""

    bot: BotId
    chat: ChatId
    kind: str
    closed_for: float  # seconds
    learned: LearnedSnapshot | None


def remember_call(
    schedule: "Schedule", bot: BotId, chat: ChatId, kind: str, *, paid: bool, cost: int, at: float, now: float
) -> None:
    """Restore the slots of a call that was answered `at`, before the schedule was made."""
    lane = schedule.lane_of(bot, chat, kind)
    lane.touch()
    shared = schedule.pool_of(lane.bot, "paid" if paid else kind).window
    for window in (*lane.windows, shared) if shared is not None else lane.windows:
        if cost and at + window.hold_seconds(cost) > now:
            window.take(cost)
            window.answered(at, cost)
    lane.last_call = max(lane.last_call, at)
    schedule.settle_lane(lane, now)


def limits_of(schedule: "Schedule", entry: Entry, now: float) -> list[StoredLimit]:
    """The limits to store after a refusal of this entry."""
    lane = entry.lane
    budget = "paid" if entry.paid else lane.kind
    pool = schedule.pool_of(lane.bot, budget)
    return [
        StoredLimit(lane.bot.id, lane.chat, lane.kind, lane.closed_until - now, _snapshot(lane, now)),
        StoredLimit(lane.bot.id, WHOLE_BOT, budget, lane.bot.closed_until - now, _snapshot(pool, now)),
    ]


def remember_limit(schedule: "Schedule", limit: StoredLimit, now: float, elapsed: float) -> None:
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
    learned = LearnedLimit.load(window.rate, kept, now, elapsed, is_burst=window.is_burst)
    if not learned.stale(now):
        limited.learned = learned
        window.resize(learned.rate)
