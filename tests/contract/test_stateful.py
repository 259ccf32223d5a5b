"""Each store against the simple model: nothing lost, nothing twice, order kept, no limit broken."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from contract.machine import machine_for
from contract.stores import SLOW, STORES
from shrinking import ROOM_TO_SHRINK


@ROOM_TO_SHRINK
@pytest.mark.parametrize("store", STORES)
def test_a_store_does_what_the_simple_model_does(store: str) -> None:
    examples = settings().max_examples // (2 * SLOW.get(store, 1))
    run_state_machine_as_test(
        machine_for(STORES[store]), settings=settings(stateful_step_count=40, max_examples=examples)
    )
