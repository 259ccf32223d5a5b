"""Telegram's flood control: exact sliding windows over arrival times, and bursts in private chats.

Independent of `tidegate.pacing`, which is tested against it. Telegram does not publish what it counts,
so every hypothesis about it is a field of `Limits`.
"""

import math
from typing import Literal, NamedTuple

import msgspec

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.sliding_window import ArrivalCounter, BurstBucket, SlidingWindow

Family = Literal["send", "edit", "action"]
BOT = 0  # the chat in the key of a closure of the whole bot


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One hypothesis about Telegram. The defaults are a reading of its FAQ."""

    bot: Rate = Rate(30, 1)
    private: Rate = Rate(1, 1)
    # "We may allow short bursts that go over this limit": calls to a private chat that pass at once, while
    # their average is `private`. How many is not published. 1: a strict window instead.
    burst: int = 25
    group: Rate = Rate(20, 60)  # channels too
    paid: Rate = Rate(1000, 1)  # instead of `bot`, for calls with allow_paid_broadcast
    actions: tuple[Rate, ...] = (Rate(20, 5), Rate(40, 30))  # "typing", for each chat
    closes: Literal["nothing", "chat", "bot"] = "chat"  # what a 429 closes until its retry_after has passed
    escalates: bool = False  # each call to a closed chat or bot doubles the wait
    counts_refused: bool = False  # a refused call fills the windows too
    edit_budget: Literal["shared", "separate"] = "shared"  # with sends
    action_budget: Literal["shared", "separate"] = "separate"
    hidden_floods: float = 0.0  # share of albums' 429s that come wrapped in a 400

    def __post_init__(self) -> None:
        if self.burst < 1:
            raise BadInputError("burst is a number of calls: it must be 1 or more")
        if not 0 <= self.hidden_floods <= 1:
            raise BadInputError("hidden_floods is a share: it must be between 0 and 1")
        if self.escalates and self.closes == "nothing":
            raise BadInputError("escalates needs something that a 429 closes: set closes to chat or bot")


class Flood(NamedTuple):
    """A refusal: the limit that was full, or the closure, and the seconds to wait."""

    scope: str
    retry_after: int


class _Closure(NamedTuple):
    until: float
    seconds: float


class FloodControl:
    """Counts the calls of all bots, admits or refuses each. `now` must never go back."""

    LONGEST_WAIT = 6 * 3600.0
    SWEEPS_FROM = 1_000  # windows; fewer are not worth a sweep

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.peaks: dict[str, int] = {}
        self.stars = 0.0
        self._windows: dict[tuple[object, ...], ArrivalCounter] = {}
        self._closures: dict[tuple[int, int], _Closure] = {}
        self._sweep_at = self.SWEEPS_FROM

    def change(self, limits: Limits) -> None:
        """Replace the limits: the windows start empty, counts stay."""
        self.limits = limits
        self._windows.clear()
        self._closures.clear()

    def admit(
        self, now: float, bot: int, chat: int, kind: str, family: Family, *, cost: int = 1, paid: bool = False
    ) -> Flood | None:
        """Count a call that arrives now, in all of its limits or in none. Returns the refusal, if any."""
        if len(self._windows) >= self._sweep_at:  # before windows are looked up: a swept one no longer counts
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
    ) -> list[tuple[str, ArrivalCounter]]:
        limits = self.limits
        if family == "action" and limits.action_budget == "separate":
            return [
                ("action", self._window((bot, chat, "action", i), rate))
                for i, rate in enumerate(limits.actions)
            ]
        budget = "edit" if family == "edit" and limits.edit_budget == "separate" else "send"
        whole = self._window((bot, "paid"), limits.paid) if paid else self._window((bot, budget), limits.bot)
        private = kind == "private"
        one = self._window(
            (bot, chat, budget), limits.private if private else limits.group, limits.burst if private else 1
        )
        return [("paid" if paid else "bot", whole), (kind, one)]

    def _window(self, key: tuple[object, ...], rate: Rate, burst: int = 1) -> ArrivalCounter:
        window = self._windows.get(key)
        if window is None:
            window = BurstBucket(rate, burst) if burst > rate.count else SlidingWindow(rate)
            self._windows[key] = window
        return window

    def _count(self, now: float, named: list[tuple[str, ArrivalCounter]], cost: int) -> None:
        for name, window in named:
            held = window.add(now, cost)
            if held > self.peaks.get(name, 0):
                self.peaks[name] = held

    def _charge(self, now: float, bot: int, cost: int) -> None:
        """Charge a paid call: free while the ordinary limit has room, 0.1 Star beyond it."""
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
        """Forget idle windows. A sweep at twice their number keeps the average cost of a call constant."""
        self._windows = {key: window for key, window in self._windows.items() if not window.is_idle(now)}
        self._closures = {key: closure for key, closure in self._closures.items() if closure.until > now}
        self._sweep_at = max(self.SWEEPS_FROM, 2 * len(self._windows))
