"""Each inbox against the simple model: nothing lost, nothing twice at once, order kept."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from contract.inbox.inboxes import INBOXES, SLOW
from contract.inbox.machine import machine_for
from shrinking import ROOM_TO_SHRINK


@ROOM_TO_SHRINK
@pytest.mark.parametrize("inbox", INBOXES)
def test_an_inbox_does_what_the_simple_model_does(inbox: str) -> None:
    examples = settings().max_examples // 10 // SLOW.get(inbox, 1)
    run_state_machine_as_test(
        machine_for(INBOXES[inbox]), settings=settings(stateful_step_count=40, max_examples=examples)
    )
