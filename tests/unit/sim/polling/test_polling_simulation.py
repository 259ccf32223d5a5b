"""Small scenarios from beginning to end, in virtual time: what the documents promise is seen to happen."""

import pytest

from tidegate.sim.polling import Mode, PollingReport, PollingScenario
from tidegate.sim.polling.simulation import run_scenario
from tidegate.sim.virtual_time import VirtualClock

SMALL = PollingScenario(users=50, duration=150, interval=60, seed=1)


async def play(mode: Mode, clock: VirtualClock, scenario: PollingScenario = SMALL) -> PollingReport:
    return await run_scenario(scenario, mode, clock)


async def test_a_bot_that_asks_for_each_at_once_is_refused_and_locked_out(clock: VirtualClock) -> None:
    found = await play("per-user", clock)

    assert found.peak_rps >= 45
    assert found.refused > 45
    assert found.locked_seconds >= 30
    assert found.flaws == ("refused",)


@pytest.mark.parametrize("mode", ["batch", "delta"])
async def test_everybody_is_told_once_within_the_interval_and_nobody_is_refused(
    mode: Mode, clock: VirtualClock
) -> None:
    found = await play(mode, clock)

    assert (found.users, found.paid, found.told, found.doubled, found.missed) == (50, 25, 25, 0, 0)
    assert (found.refused, found.within_interval, found.passed) == (0, 1.0, True)
    assert found.peak_rps <= 5


async def test_batches_need_a_fraction_of_the_requests(clock: VirtualClock) -> None:
    found = await play("batch", clock)

    assert found.avg_rps < 0.2
    assert found.reduction > 85


@pytest.mark.parametrize("users", [1, 2, 5, 10, 100])
async def test_delta_is_never_dearer_than_asking_for_each(clock: VirtualClock, users: int) -> None:
    found = await play("delta", clock, PollingScenario(users=users))

    assert (found.told, found.within_interval, found.flaws) == (found.paid, 1.0, ())


async def test_delta_tells_300_people_within_seconds_with_less_than_a_request_a_second(
    clock: VirtualClock,
) -> None:
    found = await play("delta", clock, PollingScenario(users=300))

    assert (found.told, found.flaws) == (150, ())
    assert found.avg_rps < 1
    assert found.p99_ms < 5_000


async def test_paced_keeps_the_limit_where_asking_for_each_alone_breaks_it(clock: VirtualClock) -> None:
    found = await play("paced", clock)

    assert (found.refused, found.told, found.missed) == (0, 25, 0)
    assert found.peak_rps <= 5


async def test_a_run_that_is_stopped_tells_what_was_measured_so_far(clock: VirtualClock) -> None:
    seen: list[float] = []

    def tick(played: float) -> bool:
        seen.append(played)
        return played < 30

    found = await run_scenario(SMALL, "batch", clock, tick=tick)

    assert found.virtual_seconds == pytest.approx(30, abs=1)
    assert found.requests > 0
    assert seen == sorted(seen)


async def test_the_same_seed_gives_the_same_run(clock: VirtualClock) -> None:
    first, second = await play("per-user", clock), await play("per-user", clock)

    assert first.requests == second.requests
    assert (first.p50_ms, first.refused) == (second.p50_ms, second.refused)
