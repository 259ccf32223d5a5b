"""Learned limits: what a limit really allows, judged by the 429s that it drew.

The allowance is one step on a ladder: n, n-1, … 2, 1 calls in W seconds, and below that one call in a
window that stretches by a quarter with each step. A 429 goes down the ladder, quiet time goes up again;
the step that was refused last is tried again only at intervals that double with each failure.

The limit of a burst keeps its average: its steps are n calls in W seconds, n-1 in W·(n-1)/n, … A 429 that
meets a burst ends it: one call in W/n. One that meets a call within the average goes below that.
"""

from typing import Self

import msgspec

from tidegate.model import Rate

CUT = 0.85
STRETCH = 1.25
LOWEST = -20  # one call in W · 1.25^21, about 108 W
STEP_UP_AFTER = 10.0  # windows of quiet before the next step towards what is known to be bad
PROBE_AFTER = 60.0  # seconds until a bad step is tried again, at first
PROBE_AT_MOST = 6 * 3600.0
FORGET_AFTER = 3600.0  # seconds without a 429


class LearnedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A learned limit between two runs; times are seconds from the moment it was stored."""

    step: int
    bad: int | None
    interval: float
    probing: bool
    cut_ago: float
    up_in: float


class LearnedLimit:
    """Starts at the rate that the rules give and never goes above it."""

    __slots__ = ("_bad", "_cut_at", "_interval", "_is_burst", "_next_up", "_probing", "_rule", "_step")

    def __init__(self, rule: Rate, *, is_burst: bool = False) -> None:
        self._rule = rule
        self._is_burst = is_burst
        self._step = rule.count
        self._bad: int | None = None  # the lowest step that was refused
        self._cut_at = float("-inf")
        self._next_up = float("inf")
        self._interval = PROBE_AFTER
        self._probing = False

    @property
    def rate(self) -> Rate:
        """The rate to allow now."""
        stretch = STRETCH ** max(0, 1 - self._step)
        count = max(1, self._step)
        if self._is_burst:
            stretch *= count / self._rule.count
        return Rate(count, self._rule.seconds * stretch)

    @property
    def rule(self) -> Rate:
        """The rate that it starts from and returns to."""
        return self._rule

    @property
    def intact(self) -> bool:
        """Return whether this is the rule itself, with nothing learned."""
        return self._bad is None

    def stale(self, now: float) -> bool:
        """Return whether it is so old that starting from the rule again is as good."""
        return self.intact or now - self._cut_at > FORGET_AFTER

    def dump(self, now: float) -> LearnedSnapshot:
        """The state to store over a restart."""
        return LearnedSnapshot(
            self._step, self._bad, self._interval, self._probing, now - self._cut_at, self._next_up - now
        )

    @classmethod
    def load(
        cls, rule: Rate, kept: LearnedSnapshot, now: float, elapsed: float, *, is_burst: bool = False
    ) -> Self:
        """Restore the state that was stored `elapsed` seconds ago."""
        learned = cls(rule, is_burst=is_burst)
        learned._step = min(kept.step, rule.count)  # the rule may have been lowered since
        learned._bad, learned._interval, learned._probing = kept.bad, kept.interval, kept.probing
        if kept.bad is not None and kept.bad > rule.count:
            learned._bad = rule.count if learned._step < rule.count else None
            learned._probing = False
        learned._cut_at = now - elapsed - kept.cut_ago
        learned._next_up = now - elapsed + kept.up_in
        return learned

    def rebased(self, rule: Rate, *, is_burst: bool = False) -> Self | None:
        """Return what holds of it under another rule; None if nothing does, as its steps mean other rates."""
        if rule.seconds != self._rule.seconds or is_burst != self._is_burst:
            return None
        learned = self.load(rule, self.dump(0.0), 0.0, 0.0, is_burst=is_burst)
        return None if learned.intact else learned

    def refused(self, now: float, *, in_burst: bool = False) -> bool:
        """A 429 was blamed on this limit. Cuts once in a window; True if it did."""
        if now - self._cut_at < self.rate.seconds:
            return False
        self._cut_at = now
        if self._is_burst and not in_burst and self._step > 1:
            self._step, self._probing = 1, False  # what was refused is the average
        self._bad = self._step
        if self._probing:
            self._step -= 1  # the step before the probe was good
            self._interval = min(2 * self._interval, PROBE_AT_MOST)
        elif self._is_burst and self._step > 1:
            self._step = 1
        else:
            self._step = max(LOWEST, min(int(self._step * CUT), self._step - 1))
        self._probing = False
        self._next_up = now + self._patience()
        return True

    def quiet(self, now: float) -> bool:
        """Time has passed: go a step up if it is due. True if something changed."""
        if now < self._next_up:
            return False
        if self._probing:
            # The step held for a whole interval: it is not bad, and higher ones are tried anew.
            self._interval = PROBE_AFTER
            self._bad = self._step + 1 if self._step < self._rule.count else None
        if self._bad is None:
            self._probing, self._next_up = False, float("inf")
        else:
            self._step += 1
            self._probing = self._step >= self._bad
            self._next_up = now + self._patience()
        return True

    def _patience(self) -> float:
        """Seconds to stay on this step."""
        below_bad = self._bad is None or self._step + 1 < self._bad
        return STEP_UP_AFTER * self.rate.seconds if below_bad and not self._probing else self._interval
