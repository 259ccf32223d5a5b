"""Reasons why a message waits, in words."""

from tidegate.model import State
from tidegate.outbox.reasons import WaitFacts, explain


def test_a_chat_with_two_full_limits_was_named_twice_and_a_wait_said_to_be_of_no_time() -> None:
    why = explain(WaitFacts(State.QUEUED, full=[("chat", 0.7), ("chat", 0.8), ("bot", 0.02)]))
    assert why.waits_for == (
        "the limit of its chat is full for 0.8 s",
        "the limit of its bot is full for a moment",
    )
    assert why.expected_in == 0.8
