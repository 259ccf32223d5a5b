"""What is played is the same for a seed, leaves time to tell everybody, and must make sense."""

import math
from typing import Any

import pytest

from tidegate.errors import BadInputError
from tidegate.sim import virtual_time
from tidegate.sim.polling import PollingScenario
from tidegate.sim.polling.simulation import PollingReport, run_scenario, with_flaws
from tidegate.sim.virtual_time import VirtualClock


def result(mode: str, **fields: Any) -> PollingReport:  # noqa: ANN401  (any field of it)
    good: dict[str, Any] = {
        "users": 300, "paid": 150, "told": 150, "doubled": 0, "early": 0, "missed": 0, "waiting": 0,
        "requests": 75, "avg_rps": 0.25, "peak_rps": 5, "refused": 0, "locked_seconds": 0.0, "p50_ms": 30.0,
        "p99_ms": 55.0, "max_ms": 56.0, "within_interval": 1.0, "reduction": 95.0, "virtual_seconds": 300.0,
        "seconds": 0.5,
    }  # fmt: skip
    return PollingReport(mode=mode, **(good | fields))  # type: ignore[arg-type]


def test_half_of_the_people_pay_once_each_and_nobody_in_the_last_interval() -> None:
    payments = PollingScenario(users=300, duration=300, interval=60).payments()

    assert len({payer for _, payer in payments}) == len(payments) == 150
    assert all(0 <= at <= 240 and 1 <= payer <= 300 for at, payer in payments)
    assert payments == sorted(payments)


def test_the_same_seed_draws_the_same_payments_and_another_one_others() -> None:
    assert (
        PollingScenario(seed=3).payments()
        == PollingScenario(seed=3).payments()
        != PollingScenario(seed=4).payments()
    )


@pytest.mark.parametrize("users", [1, 300, 2_000])
def test_with_its_defaults_a_batch_poller_tells_everybody_within_the_interval(users: int) -> None:
    async def play(clock: VirtualClock) -> PollingReport:
        return await run_scenario(PollingScenario(users=users, duration=130), "batch", clock)

    played = virtual_time.run(play)

    assert (played.within_interval, played.missed, played.refused) == (1, 0, 0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"users": 0}, "--users 0"),
        ({"users": 100_001}, "--users 100001"),
        ({"duration": -1.0}, "--duration -1"),
        ({"duration": math.nan}, "--duration nan"),
        ({"interval": 0.0}, "--interval 0"),
        ({"interval": math.inf}, "--interval inf"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"duration": 60.0}, "must be above --interval 60"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_give(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        PollingScenario(**wrong)


@pytest.mark.parametrize(
    ("mode", "fields", "flaws"),
    [
        ("batch", {}, ()),
        ("batch", {"refused": 1}, ("refused",)),
        ("batch", {"avg_rps": 1.0}, ("avg_rps",)),
        ("batch", {"within_interval": 0.99}, ("within_interval",)),
        ("batch", {"missed": 1}, ("within_interval",)),
        ("delta", {"avg_rps": 2.5}, ()),
        ("delta", {"avg_rps": 2.6, "doubled": 1}, ("doubled", "avg_rps")),
        ("delta", {"early": 1}, ("early",)),
        ("delta", {"requests": 100, "reduction": -10.0}, ("reduction",)),
        ("delta", {"requests": 4, "reduction": -277.0}, ()),  # the start
        ("paced", {"avg_rps": 4.0, "within_interval": 0.2, "missed": 30}, ()),
        ("paced", {"refused": 1}, ("refused",)),
        ("per-user", {"refused": 800}, ("refused",)),
    ],
)
def test_each_mode_is_held_to_what_it_promises(
    mode: str, fields: dict[str, Any], flaws: tuple[str, ...]
) -> None:
    found = with_flaws(result(mode, **fields), PollingScenario())

    assert (found.flaws, found.passed) == (flaws, not flaws)
