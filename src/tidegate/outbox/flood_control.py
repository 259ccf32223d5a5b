"""The effect of a 429 on the schedule: what it closes, which limit it cuts, how that recovers."""

from tidegate.model import Rate
from tidegate.outbox.lanes import Lane, Pool
from tidegate.pacing.learned import LearnedLimit
from tidegate.pacing.rules import Rules
from tidegate.pacing.window import Window

FULL_FOR_WINDOWS = 1.5  # windows since the last call, within which a limit of one call counts as full


def learn_from_refusal(lane: Lane, pool: Pool, rules: Rules, now: float, retry_after: float) -> None:
    """A 429 never says its scope. One refused chat is closed; several within a window close the bot.

    Call it before the refused call gives up its slots: how full its limits were is the evidence.
    """
    bot, window = lane.bot, pool.window
    lane.closed_until = max(lane.closed_until, now + retry_after)
    seconds = window.seconds if window is not None else 1.0
    bot.refused = {chat: at for chat, at in bot.refused.items() if now - at < seconds}
    bot.refused[lane.chat] = now
    several = len(bot.refused) > 1
    if several:
        bot.closed_until = max(bot.closed_until, now + retry_after)
    if window is not None and (several or _others(window) >= _fullness(lane, now)):
        _cut(pool, window, rules.paid if bot.pools.get("paid") is pool else rules.bot, now)
    else:
        rule = rules.actions[0] if lane.kind == "action" else rules.chat(lane.chat)
        _cut(lane, lane.windows[0], rule, now)


def step_up(limited: Lane | Pool, window: Window, now: float) -> None:
    """Let a learned limit recover, if it is time."""
    if limited.learned is not None and limited.learned.quiet(now):
        window.resize(limited.learned.rate)
        if limited.learned.intact:
            limited.learned = None


def _cut(limited: Lane | Pool, window: Window, rule: Rate, now: float) -> None:
    if limited.learned is None:
        limited.learned = LearnedLimit(rule)
    if limited.learned.refused(now):
        window.resize(limited.learned.rate)


def _others(window: Window) -> float:
    """How full it is without the refused call."""
    return (window.taken - 1) / window.count


def _fullness(lane: Lane, now: float) -> float:
    window = lane.windows[0]
    if window.count == 1:  # it holds the refused call alone: look at the call before
        return 1.0 if now - lane.last_call < FULL_FOR_WINDOWS * window.seconds else 0.0
    return _others(window)
