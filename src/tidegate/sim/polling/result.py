"""What came of one mode, in the words of all reports, and whether it is what Tidegate promises."""

import msgspec

from tidegate.sim.polling.scenario import Mode, Scenario

MOST_RPS = 1.0  # on average, of a batch poller
MOST_SHARE = 0.5  # of the limit, at most: the rest is for others


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """`reduction`: against one request per person and interval. `flaws`: the targets that were missed."""

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


def judged(result: Result, scenario: Scenario) -> Result:
    """With its flaws. Every mode of ours must keep within the limit and tell nobody twice or too early; batch
    and delta must also be frugal and tell everybody within the interval, which asking for each alone cannot.
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
