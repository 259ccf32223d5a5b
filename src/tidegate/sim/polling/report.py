"""Times of payments and notifications, and the report of one run with its targets."""

import math
from collections.abc import Sequence

import msgspec

from tidegate.sim.polling.scenario import Mode, PollingScenario

MOST_RPS = 1.0  # on average, of a batch poller
MOST_SHARE = 0.5  # of the limit, at most: the rest is for others


class WaitTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Waits of the people who paid, in milliseconds from payment to notification; without one, until now."""

    paid: int
    told: int  # people, once or more often
    doubled: int  # told more than once
    early: int  # told without having paid
    missed: int  # not told, although an interval has passed
    waiting: int  # not told yet
    p50_ms: float
    p99_ms: float
    max_ms: float
    within_interval: float | None  # share of those who paid an interval ago or more; None if nobody did


class PaymentLog:
    """Times of payments and notifications, in seconds since the start."""

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

    def waits(self, now: float, interval: float) -> WaitTimes:
        took = [self._told[key] - at for key, at in self.paid.items() if key in self._told]
        untold = [now - at for key, at in self.paid.items() if key not in self._told]
        missed = sum(age > interval for age in untold)
        waited = sorted(took + untold)
        return WaitTimes(
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
        """Return the share told in time of all whose interval is over, whether told or not."""
        over = [(key, at) for key, at in self.paid.items() if now - at >= interval]
        in_time = sum(self._told.get(key, math.inf) - at <= interval for key, at in over)
        return round(in_time / len(over), 4) if over else None

    def needed(self, users: int, now: float, interval: float) -> float:
        """Return the requests of a bot that asks about each unpaid person once per interval."""
        waited = sum(self.paid.values()) + (users - len(self.paid)) * now
        return waited / interval


def quantile(rising: Sequence[float], share: float) -> float:
    """Return, in ms, the smallest of rising seconds that `share` of them do not exceed; 0 for none."""
    if not rising:
        return 0.0
    return round(1_000 * rising[max(0, math.ceil(share * len(rising)) - 1)], 1)


class PollingReport(msgspec.Struct, frozen=True, kw_only=True):
    """`reduction`: percent, against one request per person and interval. `flaws`: the missed targets."""

    mode: Mode
    users: int
    paid: int
    told: int
    doubled: int
    early: int
    missed: int
    waiting: int
    requests: int
    avg_rps: float
    peak_rps: int
    refused: int
    locked_seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    within_interval: float | None
    reduction: float
    virtual_seconds: float
    seconds: float
    flaws: tuple[str, ...] = ()
    seed: int = 0

    @property
    def passed(self) -> bool:
        return not self.flaws

    def as_dict(self) -> dict[str, object]:
        known: dict[str, object] = msgspec.to_builtins(self)
        return known | {"passed": self.passed}


def with_flaws(result: PollingReport, scenario: PollingScenario) -> PollingReport:
    """Add the missed targets. Every mode must keep the limit and tell nobody twice or early; batch and delta
    must also need few requests and tell everybody within the interval.
    """
    met = {
        "refused": result.refused == 0,
        "doubled": result.doubled == 0,
        "early": result.early == 0,
    }
    if result.mode in {"batch", "delta"}:
        share = scenario.rate.count / scenario.rate.seconds * MOST_SHARE
        met["avg_rps"] = result.avg_rps <= share if result.mode == "delta" else result.avg_rps < MOST_RPS
        met["within_interval"] = result.within_interval in {None, 1} and result.missed == 0
    return msgspec.structs.replace(result, flaws=tuple(name for name, good in met.items() if not good))
