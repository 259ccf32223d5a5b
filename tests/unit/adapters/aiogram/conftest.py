import pytest

from tidegate.model import Rate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import Limits
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.aiogram.stage import Stage


@pytest.fixture
def stage(clock: VirtualClock) -> Stage:
    """At Telegram's usual limits."""
    return Stage(clock)


@pytest.fixture
def optimist(clock: VirtualClock) -> Stage:
    """A gate that takes Telegram for more generous than it is."""
    return Stage(clock, Rules(private=Rate(10, 1)), Limits(burst=1))
