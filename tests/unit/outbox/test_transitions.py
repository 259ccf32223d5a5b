"""The state of a message after a call, and after the death of a worker: what every store follows."""

from typing import Any

import pytest

from tidegate.model import (
    BotId,
    ChatId,
    Dead,
    Delivered,
    Message,
    Migrated,
    NotSent,
    Outcome,
    Refused,
    Retry,
    State,
    TicketId,
)
from tidegate.outbox.transitions import CRASHES_ALLOWED, NextState, after_call, after_crash, other_name


def message(**fields: Any) -> Message:  # noqa: ANN401  (a message's own)
    given: dict[str, Any] = {"max_attempts": 4, **fields}
    return Message(id=TicketId("m1"), bot=BotId(42), chat_id=1, method="sendMessage", params={}, **given)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Delivered({"message_id": 1}), NextState(State.DELIVERED, 3)),
        (Dead("blocked", "Forbidden"), NextState(State.DEAD, 3, 0.0, "blocked", "Forbidden")),
        (Refused(7.0), NextState(State.QUEUED, 2, 0.0, "refused")),
        (Migrated(-1005), NextState(State.QUEUED, 2, 0.0, "migrated")),
        (NotSent("late", 0.5), NextState(State.QUEUED, 2, 0.5, "late")),
        (Retry(5.0, "502"), NextState(State.RETRY, 3, 5.0, "502")),
    ],
)
def test_what_follows_the_third_call(outcome: Outcome, expected: NextState) -> None:
    assert after_call(message(), 2, outcome) == expected


def test_the_last_attempt_that_fails_is_the_end() -> None:
    assert after_call(message(), 3, Retry(5.0, "502")) == NextState(
        State.DEAD, 4, 0.0, "attempts", "given up after 4 attempts; the last failure: 502"
    )


def test_a_crash_puts_it_back_uncounted_and_too_many_park_it() -> None:
    assert after_crash(message(), 2, CRASHES_ALLOWED - 1) == NextState(State.QUEUED, 2, 0.0, "crash")
    parked = after_crash(message(), 2, CRASHES_ALLOWED)
    assert (parked.state, parked.attempts, parked.reason) == (State.PARKED, 2, "crashes")
    assert parked.description is not None
    assert parked.description.startswith(f"{CRASHES_ALLOWED} workers died")


def test_a_crash_parks_what_must_not_be_doubled() -> None:
    parked = after_crash(message(on_unknown="park"), 2, 1)
    assert parked == NextState(State.PARKED, 2, 0.0, "unknown", "its worker died")


@pytest.mark.parametrize(
    ("chat", "outcome", "number"),
    [
        (-5, Migrated(-1005), -1005),
        ("@shop", Migrated(-1005), -1005),
        ("@shop", Delivered({"chat": {"id": -1007}}), -1007),
        ("@shop", Delivered({"chat": {"id": 1}}), 1),
        ("@shop", Delivered({"chat": {"id": 2**63 - 1}}), 2**63 - 1),
        ("@shop", Delivered({"chat": {"id": 2**63}}), None),
        ("@shop", Delivered({"chat": {"id": -(2**63)}}), None),
        ("@shop", Delivered({"chat": {"id": 0}}), None),
        ("@shop", Delivered({"chat": {"id": True}}), None),
        ("@shop", Delivered({"chat": {"id": "7"}}), None),
        ("@shop", Delivered({"chat": [7]}), None),
        ("@shop", Delivered({}), None),
        ("@shop", Delivered(True), None),  # noqa: FBT003
        ("@shop", Dead("not_found", "chat not found"), None),
        (-5, Delivered({"chat": {"id": -1007}}), None),  # it has a number
    ],
)
def test_an_answer_tells_the_number_of_a_chat_that_moved_or_has_a_name(
    chat: ChatId, outcome: Outcome, number: int | None
) -> None:
    assert other_name(chat, outcome) == number
