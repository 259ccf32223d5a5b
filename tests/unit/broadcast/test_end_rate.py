"""How fast a broadcast goes is what its progress says."""

import pytest

from tidegate.broadcast.progress import EndRate
from tidegate.sim.virtual_time import VirtualClock


async def test_a_pace_is_known_soon_and_follows_what_happens(clock: VirtualClock) -> None:
    pace = EndRate(clock)
    assert pace.per_second() == 0
    for _ in range(60):
        await clock.sleep(1 / 30)
        pace.count()
    assert pace.per_second() == pytest.approx(30, rel=0.05)
    for _ in range(100):
        await clock.sleep(0.1)
        pace.count()
    assert pace.per_second() == pytest.approx(10, rel=0.05)
    await clock.sleep(11)
    assert pace.per_second() == 0


async def test_a_pace_keeps_little_however_fast_it_goes(clock: VirtualClock) -> None:
    pace = EndRate(clock)
    for _ in range(20_000):
        await clock.sleep(0.001)
        pace.count()
    assert pace.per_second() == pytest.approx(1_000, rel=0.05)
    assert len(pace._steps) < 50  # noqa: SLF001  (its memory is the point)
