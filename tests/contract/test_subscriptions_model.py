"""Each store of subscriptions against a simple model: none lost, none notified twice, order kept."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from contract.stores import SLOW
from contract.subscribers import KINDS
from contract.subscribers_machine import machine_for
from shrinking import ROOM_TO_SHRINK


@ROOM_TO_SHRINK
@pytest.mark.parametrize("kind", KINDS)
def test_subscriptions_do_what_the_simple_model_does(kind: str) -> None:
    examples = max(1, settings().max_examples // 4 // SLOW.get(kind, 1))
    run_state_machine_as_test(
        machine_for(KINDS[kind]), settings=settings(stateful_step_count=30, max_examples=examples)
    )
