"""The first page: how fast each bot goes, how fast it may, and what is wrong, in words."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.model import BotId
from tidegate.ops.access import Role
from tidegate.ops.api.routes import RouteAccess, Scope
from tidegate.ops.dashboard import charts
from tidegate.ops.dashboard.activity import (
    SAMPLE_EVERY,
    SAMPLES,
    Activity,
    BotState,
    SystemState,
    sample_of,
)
from tidegate.ops.dashboard.formats import duration, number, obstacle, plural
from tidegate.ops.dashboard.page import Context, PageRequest, PageTable
from tidegate.outbox.port import OutboxStats

PAGES = PageTable()
LATE_AFTER: Final = 900.0  # seconds that the oldest message may wait before it is said, as the alert has it
LOOP_LATE: Final = 0.25  # seconds
UNAUTHORIZED: Final = "unauthorized"  # the obstacle that does not go away by itself
BOTS_SHOWN: Final = 50  # the busiest first
TONES: Final = ("bad", "warn", "dim")  # of troubles, the worst first
FIRST_SLOTS: Final = 30  # samples that a chart has room for at first: it grows until it shows an hour


class Trouble(NamedTuple):
    """A problem: a sentence, what to do about it, and the page where that is done."""

    text: str
    advice: str = ""
    link: str = ""
    tone: str = "bad"

    @property
    def key(self) -> str:
        """Part that stays the same while numbers change: by it, its link keeps the focus."""
        return re.sub(r"[\d.\s]+", "-", f"trouble {self.advice or self.text}") + self.link


@PAGES.page("/", "now.html", "Now", RouteAccess(Role.VIEWER, Scope.FILTER), every=1.0)
async def now_page(asked: PageRequest) -> Context:
    activity = asked.call.activity
    state, whose = await activity.now(), asked.call.bot_filter(None)
    if whose is not None:
        state = of_one_bot(state, whose)
    bots = sorted(state.bots, key=lambda bot: (-bot.sends, -bot.counts.waiting, bot.bot))
    shown = sorted(bots[:BOTS_SHOWN], key=lambda bot: bot.bot)  # each keeps its place from second to second
    limit = sum(bot.limit for bot in bots)
    return {
        "state": state,
        "bots": [(bot, _bot_charts(bot, activity)) for bot in shown],
        "more_bots": len(bots) - BOTS_SHOWN,
        "troubles": troubles(state),
        "charts": [] if whose is not None else _charts(activity, state, limit),
        "since": activity.samples[0].at if activity.samples else None,
        "total": {
            "sends": sum(bot.sends for bot in bots),
            "limit": limit,
            "oldest": max((bot.oldest_age for bot in bots if bot.oldest_age is not None), default=None),
            "drains_in": max((bot.drains_in or 0.0 for bot in bots if bot.counts.waiting), default=0.0),
        },
    }


def of_one_bot(state: SystemState, bot: BotId) -> SystemState:
    """Return what a token of one bot may see: its bot, and nothing of the processes."""
    own = tuple(one for one in state.bots if one.bot == bot)
    stats = own[0].counts if own else OutboxStats()
    return msgspec.structs.replace(
        state, bots=own, stats=stats, health=None, own_health=type(state.own_health)()
    )


def troubles(state: SystemState) -> list[Trouble]:
    """Return what is not well, the worst first; nothing: all is well. Pure."""
    found: list[Trouble] = []
    if state.away:
        found.append(
            Trouble(
                f"The store does not answer: {state.away}",
                "Numbers below are from before. See tidegate doctor.",
            )
        )
    if state.database_answers is False:
        found.append(
            Trouble(
                "The database does not answer.",
                "Messages are sent all the same; reminders, jobs, history and logins wait for it.",
            )
        )
    # Of a bot that cannot send more is known than its process says: what to do, and where.
    held = tuple(f"bot {bot.bot} cannot send" for bot in state.bots if bot.obstacle)
    reasons = [one for one in _reasons(state) if not one[0].startswith(held)]
    found += [
        Trouble(f"{reason[:1].upper()}{reason[1:]}", tone="bad" if not ready else "warn")
        for reason, ready in reasons
    ]
    told = " ".join(reason for reason, _ in reasons)
    if not state.vitals and not state.away and state.stats.waiting:
        found.append(
            Trouble(
                f"No process delivers, and {plural(state.stats.waiting, 'message')} wait.",
                "Start one: tidegate worker, or tidegate up.",
            )
        )
    for bot in state.bots:
        found += _bot_troubles(bot, told)
    late = max((one.loop_p99 or 0.0 for one in state.vitals), default=0.0)
    if late > LOOP_LATE:
        found.append(
            Trouble(
                f"The event loop is {duration(late)} late (99th percentile of the last minute).",
                "Something blocks it: the log names the line.",
                tone="warn",
            )
        )
    return sorted(found, key=lambda one: TONES.index(one.tone))


def _reasons(state: SystemState) -> list[tuple[str, bool]]:
    """Return what processes say of themselves, each once, and whether they are ready all the same."""
    found: dict[str, bool] = {}
    for health in (state.health, state.own_health):
        if health is not None:
            found |= {reason: health.ready for reason in health.reasons if reason not in found}
    return list(found.items())


def _bot_troubles(bot: BotState, told: str) -> list[Trouble]:
    link, found = f"/bots/{bot.bot}", list[Trouble]()
    if bot.obstacle:
        waits = f", and {plural(bot.counts.waiting, 'message')} wait" if bot.counts.waiting else ""
        mends = "Give it its new token." if bot.obstacle == UNAUTHORIZED else "It tries again by itself."
        found.append(Trouble(f"Bot {bot.bot} cannot send: {obstacle(bot.obstacle)}{waits}.", mends, link))
    if bot.closed_for > 1 and f"bot {bot.bot} is closed" not in told:
        found.append(
            Trouble(
                f"Telegram has closed bot {bot.bot} for another {duration(bot.closed_for)} (429).",
                "It goes on by itself then.",
                link,
                "warn",
            )
        )
    if bot.is_paused:
        waits = f", and {plural(bot.counts.waiting, 'message')} wait" if bot.counts.waiting else ""
        found.append(
            Trouble(f"Bot {bot.bot} is paused{waits}.", "Resume it when you are ready.", link, "warn")
        )
    elif bot.oldest_age is not None and bot.oldest_age > LATE_AFTER:
        found.append(
            Trouble(
                f"The oldest message of bot {bot.bot} has waited for {duration(bot.oldest_age)}.",
                "Open it to read why.",
                f"/messages?bot={bot.bot}&state=waiting",
                "warn",
            )
        )
    if bot.is_learned:
        found.append(
            Trouble(
                f"Bot {bot.bot} sends at most {number(bot.limit)} a second: 429s have cut its limit.",
                "It recovers by itself.",
                link,
                "warn",
            )
        )
    if bot.counts.dead or bot.counts.parked:
        letters = bot.counts.dead + bot.counts.parked
        found.append(
            Trouble(
                f"Bot {bot.bot} has {plural(letters, 'dead letter')}.",
                "See why, and replay or drop them.",
                f"/dead-letters?bot={bot.bot}",
                "dim",
            )
        )
    return found


def _bot_charts(bot: BotState, activity: Activity) -> dict[str, Any]:
    sends = [*activity.sends_of.get(bot.bot, ()), bot.sends]
    about = f"{number(bot.sends)} of {number(bot.limit)} sends a second"
    nominal = bot.nominal.count / bot.nominal.seconds
    return {
        "gauge": charts.gauge(bot.sends, bot.limit, nominal, about),
        "spark": charts.sparkline(
            sends, "sends a second in the last hour", slots=_slots(activity), top=bot.limit
        ),
    }


def _slots(activity: Activity) -> int:
    return 1 + min(SAMPLES, max(FIRST_SLOTS, len(activity.samples)))  # one for what is true now


def _charts(activity: Activity, state: SystemState, limit: float) -> Sequence[dict[str, Any]]:
    samples, slots = list(activity.samples), _slots(activity)
    if not state.away:  # else the chart would say something else than the numbers above, for ten seconds
        samples.append(sample_of(state))
    refused = [one.refused for one in samples]

    def chart(
        title: str, say: Callable[[float], str], *series: charts.Series, limit: float | None = None
    ) -> dict[str, Any]:
        values = series[0].values
        latest, most = say(values[-1] if values else 0.0), say(max(values, default=0.0))
        top = charts.chart_top(series, limit)
        about = f"{title} in the last hour: {latest} now, {most} at most"
        return {
            "title": title,
            "latest": latest,
            "most": most,
            "svg": charts.line_chart(series, about, slots=slots, limit=limit),
            "scale": [say(top), say(top / 2), say(0.0)],
            "marks": [f"{duration(SAMPLE_EVERY * (slots - 1))} ago", "now"],
            "names": [one.name for one in series] + ([] if limit is None else ["limit"]),
        }

    return [
        chart(
            "Sends a second",
            _mark,
            charts.Series("sends", [one.sends for one in samples]),
            *([charts.Series("refused", refused)] if any(refused) else []),
            limit=limit or None,
        ),
        chart("Waiting messages", _mark, charts.Series("waiting", [one.waiting for one in samples])),
        chart("Age of the oldest", duration, charts.Series("oldest", [one.oldest_age for one in samples])),
        chart(
            "Loop delay, p99",
            lambda value: f"{_mark(value)} ms",
            charts.Series("loop", [1000 * one.loop_p99 for one in samples]),
        ),
    ]


def _mark(value: float) -> str:
    """Return a number for a scale: `0.05`, where `number` would say 0.1."""
    return number(value) if value >= 1 or value == 0 else f"{value:.2g}"
