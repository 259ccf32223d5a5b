"""A restart while many wait, second by second."""

import pytest

from tidegate.errors import BadInputError
from tidegate.sim.polling import PollingScenario
from tidegate.sim.polling.restart import RestoreGroups, run_restart
from tidegate.sim.virtual_time import VirtualClock


async def test_everybody_at_once_is_a_burst_that_locks_the_bot_out(clock: VirtualClock) -> None:
    found = await run_restart(PollingScenario(users=45), "at once", RestoreGroups(), clock)

    assert found.per_second[0] == found.peak_rps == 45
    assert found.refused >= 40
    assert not found.passed


@pytest.mark.parametrize("users", [45, 100])
async def test_groups_are_restored_one_by_one_and_nobody_is_refused(users: int, clock: VirtualClock) -> None:
    found = await run_restart(PollingScenario(users=users), "staggered", RestoreGroups(10, 1.0), clock)

    assert (found.refused, found.passed) == (0, True)
    assert found.groups == -(-users // 10)
    assert found.restored_seconds == pytest.approx(found.groups - 1, abs=1)
    assert set(found.restored_per_second[:-1]) == {10}
    assert sum(found.restored_per_second) == users
    assert max(found.per_second) <= 5
    assert found.asked_seconds is not None


async def test_larger_groups_are_restored_sooner(clock: VirtualClock) -> None:
    found = await run_restart(PollingScenario(users=45), "staggered", RestoreGroups(20, 2.0), clock)

    assert found.groups == 3
    assert found.restored_seconds == pytest.approx(4, abs=1)


@pytest.mark.parametrize(("size", "every"), [(0, 1.0), (10, 0.0), (10, float("nan")), (10, -1.0)])
def test_groups_that_make_no_sense_are_refused(size: int, every: float) -> None:
    with pytest.raises(BadInputError, match="must be"):
        RestoreGroups(size, every)
