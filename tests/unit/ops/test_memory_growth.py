"""Memory that grows is told in steps; what every program does at its start is not."""

import pytest

from tidegate.incidents import Incident, IncidentLog
from tidegate.ops.memory_growth import SAMPLE_INTERVAL, WARM_UP, MemoryGrowth
from tidegate.sim import VirtualClock

MB = 1_000_000


class Process:
    """A process whose memory is what the test says."""

    def __init__(self, clock: VirtualClock, growth: float = 0.5) -> None:
        incidents = IncidentLog(clock)
        self.told: list[Incident] = []
        incidents.subscribe(self.told.append)
        self._growth = MemoryGrowth(incidents, growth)
        self._clock = clock

    async def uses(self, megabytes: float, *, minutes: float = 1.0) -> None:
        for _ in range(round(minutes * 60 / SAMPLE_INTERVAL)):
            self._growth.note(self._clock.monotonic(), int(megabytes * MB))
            await self._clock.sleep(SAMPLE_INTERVAL)


@pytest.fixture
async def process(clock: VirtualClock) -> Process:
    process = Process(clock)
    await process.uses(50, minutes=WARM_UP / 60)
    return process


async def test_the_start_of_a_program_is_no_growth(process: Process) -> None:
    await process.uses(300, minutes=60)
    assert process.told == []


async def test_growth_by_half_and_100_mb_is_told_once_with_its_figures(process: Process) -> None:
    await process.uses(220, minutes=5)
    await process.uses(340, minutes=30)
    assert [one.text for one in process.told] == ["memory has grown from 220 MB to 340 MB within 5 min"]


@pytest.mark.parametrize(("before", "after"), [(50, 140), (1_000, 1_400)])
async def test_less_is_not_told(process: Process, before: float, after: float) -> None:
    await process.uses(before, minutes=5)
    await process.uses(after, minutes=5)
    assert process.told == []


async def test_a_leak_is_told_step_by_step(process: Process) -> None:
    for used in range(200, 1_000, 4):
        await process.uses(used)
    assert [one.text.partition(" within")[0] for one in process.told] == [
        "memory has grown from 200 MB to 300 MB",
        "memory has grown from 300 MB to 452 MB",
        "memory has grown from 452 MB to 680 MB",
    ]


async def test_what_is_given_back_and_taken_again_is_not_told_every_time(process: Process) -> None:
    await process.uses(400, minutes=5)
    for _ in range(20):
        await process.uses(450, minutes=2)
        await process.uses(400, minutes=2)
    assert process.told == []


async def test_growth_over_many_hours_is_forgotten(process: Process) -> None:
    for used in range(400, 600):
        await process.uses(used, minutes=3)
    assert process.told == []
