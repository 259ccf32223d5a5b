"""Each store against the simple model: nothing lost, nothing twice, order kept, no limit broken."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from contract.machine import machine_for
from contract.stores import STORES, Store


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_a_store_does_what_the_simple_model_does(store: Store) -> None:
    run_state_machine_as_test(machine_for(store), settings=settings(stateful_step_count=40))
