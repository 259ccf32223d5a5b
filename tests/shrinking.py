"""The time limit of tests that run a state machine: its smallest counterexample is worth waiting for."""

from typing import Final

import pytest

# Hypothesis shrinks for at most 5 minutes, then says what it has. A limit that ends it before, in the middle
# of an example, shows a "flaky" machine instead, or nothing. A machine that passes needs seconds.
ROOM_TO_SHRINK: Final = pytest.mark.timeout(1_200)
