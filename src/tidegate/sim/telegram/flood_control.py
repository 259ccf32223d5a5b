"""Telegram's flood control as exact sliding windows over arrival times.

Written independently of `tidegate.pacing`, which is tested against it. What Telegram really counts
is known to nobody outside, so every guess about it is a field of `Limits`.
"""

import math
from collections import deque
from typing import Literal, NamedTuple

import msgspec

from tidegate.errors import BadInputError
from tidegate.model import Rate

Family = Literal["send", "edit", "action"]
BOT = 0  # stands in a closure's key where the chat would


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One hypothesis about Telegram. The defaults are what its FAQ says, read strictly."""

    bot: Rate = Rate(30, 1)
    private: Rate = Rate(1, 1)
    group: Rate = Rate(20, 60)  # channels too
    paid: Rate = Rate(1000, 1)  # instead of `bot`, for calls with allow_paid_broadcast
    actions: tuple[Rate, ...] = (Rate(20, 5), Rate(40, 30))  # "typing", for each chat
    closes: Literal["nothing", "chat", "bot"] = "chat"  # what a 429 shuts until its retry_after has passed
    escalates: bool = False  # each call to what is shut doubles the wait
    counts_refused: bool = False  # a refused call fills the windows too
    edit_budget: Literal["shared", "separate"] = "shared"  # with sends
    action_budget: Literal["shared", "separate"] = "separate"
    hidden_floods: float = 0.0  # share of albums' 429s that come wrapped in a 400

    def __post_init__(self) -> None:
        if not 0 <= self.hidden_floods <= 1:
            raise BadInputError("hidden_floods is a share: it must be between 0 and 1")
        if self.escalates and self.closes == "nothing":
            raise BadInputError(
                "what a 429 closes must be the chat or the bot, not nothing, for its wait to escalate"
            )


class Flood(NamedTuple):
    """A refusal: which limit was full (or which closure stood), and the seconds to wait."""

    scope: str
    retry_after: int


class SlidingWindow:
    """The arrivals of the last `seconds`, exactly. An arrival leaves as it turns `seconds` old.

    "Old" is always `arrival + seconds <= now`: another form of it rounds to another instant.
    """

    __slots__ = ("arrivals", "rate")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.arrivals: deque[float] = deque()

    def wait(self, now: float, cost: int) -> float:
        """Seconds until `cost` more arrivals fit; 0 if they fit now.

        More than the window can ever hold fits when it is empty.
        """
        arrivals, count, seconds = self.arrivals, self.rate.count, self.rate.seconds
        while arrivals and arrivals[0] + seconds <= now:
            arrivals.popleft()
        excess = len(arrivals) + cost - count
        if excess <= 0 or not arrivals:
            return 0.0
        return arrivals[min(excess, len(arrivals)) - 1] + seconds - now

    def add(self, now: float, cost: int) -> int:
        """Count `cost` arrivals; returns how many the window now holds."""
        if cost == 1:
            self.arrivals.append(now)
        else:
            self.arrivals.extend([now] * cost)
        return len(self.arrivals)


class _Closure(NamedTuple):
    until: float
    seconds: float


class FloodControl:
    """Counts the calls of all bots, admits or refuses each. `now` must never go back."""

    LONGEST_WAIT = 6 * 3600.0
    SWEEPS_FROM = 1_000  # windows; fewer are not worth a look

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.peaks: dict[str, int] = {}
        self.stars = 0.0
        self._windows: dict[tuple[object, ...], SlidingWindow] = {}
        self._closures: dict[tuple[int, int], _Closure] = {}
        self._sweep_at = self.SWEEPS_FROM

    def change(self, limits: Limits) -> None:
        """Play another hypothesis from now on: the windows start empty, what was counted stays."""
        self.limits = limits
        self._windows.clear()
        self._closures.clear()

    def admit(
        self, now: float, bot: int, chat: int, kind: str, family: Family, *, cost: int = 1, paid: bool = False
    ) -> Flood | None:
        """Count a call that arrives now, in all of its limits or in none. Returns why not."""
        if len(self._windows) >= self._sweep_at:  # before any window is taken: a swept one counts no more
            self._sweep(now)
        if self._closures:
            flood = self._closed(now, bot, chat)
            if flood is not None:
                return flood
        named = self._limits_of(bot, chat, kind, family, paid=paid)
        scope, wait = "", 0.0
        for name, window in named:
            needed = window.wait(now, cost)
            if needed > wait:
                scope, wait = name, needed
        if wait > 0:
            if self.limits.counts_refused:
                self._count(now, named, cost)
            return Flood(scope, self._close(now, bot, chat, wait))
        self._count(now, named, cost)
        if paid:
            self._charge(now, bot, cost)
        return None

    def _limits_of(
        self, bot: int, chat: int, kind: str, family: Family, *, paid: bool
    ) -> list[tuple[str, SlidingWindow]]:
        limits = self.limits
        if family == "action" and limits.action_budget == "separate":
            return [
                ("action", self._window((bot, chat, "action", i), rate))
                for i, rate in enumerate(limits.actions)
            ]
        budget = "edit" if family == "edit" and limits.edit_budget == "separate" else "send"
        whole = self._window((bot, "paid"), limits.paid) if paid else self._window((bot, budget), limits.bot)
        one = self._window((bot, chat, budget), limits.private if kind == "private" else limits.group)
        return [("paid" if paid else "bot", whole), (kind, one)]

    def _window(self, key: tuple[object, ...], rate: Rate) -> SlidingWindow:
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = SlidingWindow(rate)
        return window

    def _count(self, now: float, named: list[tuple[str, SlidingWindow]], cost: int) -> None:
        for name, window in named:
            held = window.add(now, cost)
            if held > self.peaks.get(name, 0):
                self.peaks[name] = held

    def _charge(self, now: float, bot: int, cost: int) -> None:
        """A paid call is free while the ordinary limit has room, and 0.1 Star beyond it."""
        free = self._window((bot, "free of charge"), self.limits.bot)
        if free.wait(now, cost) > 0:
            self.stars += 0.1 * cost
        else:
            free.add(now, cost)

    def _closed(self, now: float, bot: int, chat: int) -> Flood | None:
        for scope, key in (("bot_closed", (bot, BOT)), ("chat_closed", (bot, chat))):
            closure = self._closures.get(key)
            if closure is None:
                continue
            if closure.until <= now:
                del self._closures[key]
                continue
            if self.limits.escalates:
                seconds = min(closure.seconds * 2, self.LONGEST_WAIT)
                closure = self._closures[key] = _Closure(now + seconds, seconds)
            return Flood(scope, math.ceil(closure.until - now))
        return None

    def _close(self, now: float, bot: int, chat: int, wait: float) -> int:
        retry_after = max(1, math.ceil(wait))
        if self.limits.closes != "nothing":
            key = (bot, BOT if self.limits.closes == "bot" else chat)
            self._closures[key] = _Closure(now + retry_after, retry_after)
        return retry_after

    def _sweep(self, now: float) -> None:
        """Forget idle windows; doing so at twice what was left keeps the cost of a call constant."""
        self._windows = {key: window for key, window in self._windows.items() if not _idle(window, now)}
        self._closures = {key: closure for key, closure in self._closures.items() if closure.until > now}
        self._sweep_at = max(self.SWEEPS_FROM, 2 * len(self._windows))


def _idle(window: SlidingWindow, now: float) -> bool:
    return not window.arrivals or window.arrivals[-1] + window.rate.seconds <= now
