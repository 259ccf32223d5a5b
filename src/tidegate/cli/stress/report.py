"""What was measured, for programs."""

from collections.abc import Sequence
from typing import Any

from tidegate.sim.polling import OURS, Result, Scenario


def report_of(
    scenarios: Sequence[Scenario], results: Sequence[Result], *, interrupted: bool
) -> dict[str, Any]:
    """One scenario: `scenario` and `modes`. Several: a list of these, as `scenarios`. Only our modes can
    fail; what was stopped has not passed.
    """
    ours = [result for result in results if result.mode in OURS]
    passed = not interrupted and all(result.passed for result in ours)
    played = [_about(scenario, results) for scenario in scenarios]
    report = played[0] if len(played) == 1 else {"scenarios": played}
    return report | {"interrupted": interrupted, "passed": passed}


def _about(scenario: Scenario, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "scenario": {
            "users": scenario.users,
            "duration": scenario.duration,
            "interval": scenario.interval,
            "batch_size": scenario.batch_size,
            "period": round(scenario.period, 1),
            "rate": str(scenario.rate),
            "block": scenario.block,
            "latency_ms": list(scenario.latency),
            "seed": scenario.seed,
        },
        "modes": {result.mode: result.as_dict() for result in results if result.users == scenario.users},
    }
