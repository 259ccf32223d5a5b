"""Who paid when, and who was told when: what the people of a scenario see, whichever bot serves them."""

import math
from collections.abc import Sequence

import msgspec


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """What became of those who paid. Times are in milliseconds, from the payment until told; who was not told
    counts with what he has waited so far.
    """

    paid: int
    told: int  # people, however often
    doubled: int  # told more than once
    early: int  # told without having paid
    missed: int  # not told, although an interval has passed
    waiting: int  # not told yet
    p50_ms: float
    p99_ms: float
    max_ms: float
    within_interval: float | None  # the share of those who paid an interval ago or more; None if nobody did


class Ledger:
    """Times are seconds since the start."""

    def __init__(self) -> None:
        self.paid: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._doubled = 0

    def pays(self, key: str, at: float) -> None:
        self.paid[key] = at

    def tell(self, key: str, at: float) -> None:
        if key in self._told:
            self._doubled += 1
        self._told.setdefault(key, at)

    def waits(self, now: float, interval: float) -> Waits:
        took = [self._told[key] - at for key, at in self.paid.items() if key in self._told]
        untold = [now - at for key, at in self.paid.items() if key not in self._told]
        missed = sum(age > interval for age in untold)
        waited = sorted(took + untold)
        return Waits(
            paid=len(self.paid),
            told=len(self._told),
            doubled=self._doubled,
            early=len(self._told.keys() - self.paid.keys()),
            missed=missed,
            waiting=len(untold) - missed,
            p50_ms=quantile(waited, 0.5),
            p99_ms=quantile(waited, 0.99),
            max_ms=quantile(waited, 1.0),
            within_interval=self._in_time(now, interval),
        )

    def _in_time(self, now: float, interval: float) -> float | None:
        """Whose time is not over may still be told late: to count only those who were told would flatter."""
        over = [(key, at) for key, at in self.paid.items() if now - at >= interval]
        in_time = sum(self._told.get(key, math.inf) - at <= interval for key, at in over)
        return round(in_time / len(over), 4) if over else None

    def needed(self, users: int, now: float, interval: float) -> float:
        """Requests of a bot that asks for each person once in an interval, until he has paid."""
        waited = sum(self.paid.values()) + (users - len(self.paid)) * now
        return waited / interval


def quantile(rising: Sequence[float], share: float) -> float:
    """In milliseconds, of seconds; the smallest that `share` of them do not exceed. Of none: 0."""
    if not rising:
        return 0.0
    return round(1_000 * rising[max(0, math.ceil(share * len(rising)) - 1)], 1)
