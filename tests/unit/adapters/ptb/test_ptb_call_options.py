"""Values of `rate_limit_args`, and the errors for all others."""

from typing import Any

import pytest

from tidegate.adapters.ptb import CallOptions
from tidegate.errors import BadInputError
from tidegate.model import Priority


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (None, CallOptions()),
        ("low", CallOptions(priority=Priority.LOW)),
        ({"priority": "low", "deadline": 5}, CallOptions(priority="low", deadline=5)),
        ({"queue": True, "dedup_key": "order 7"}, CallOptions(queue=True, dedup_key="order 7")),
        (CallOptions(max_wait=0), CallOptions(max_wait=0)),
    ],
)
def test_a_priority_a_mapping_or_a_record_is_taken(args: object, meant: CallOptions) -> None:
    assert CallOptions.of(args) == meant


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (3, r"rate_limit_args is 3: give a priority such as 'low', a mapping, or CallOptions"),
        ("lowest", "choose one of high, normal, low"),
        ({"prio": "low"}, "has 'prio': it may hold priority, deadline, max_wait, queue"),
        ({1: "low"}, "has 1: it may hold"),
        ({"priority": 5}, "priority 5 is not known"),
        ({"deadline": 0}, "deadline is 0: give seconds from now, a number above 0"),
        ({"deadline": float("inf")}, "deadline is inf"),
        ({"max_wait": -1}, "max_wait is -1: give seconds from now, a number 0 or more"),
        ({"max_wait": "1"}, "max_wait is '1'"),
        ({"max_wait": True}, "max_wait is True"),
        ({"max_wait": float("nan")}, "max_wait is nan"),
        ({"queue": "yes"}, "queue is 'yes': give True or False"),
        ({"queue": True, "max_wait": 1}, "give a deadline instead of max_wait"),
        ({"dedup_key": "a", "on_unknown": "park"}, "dedup_key, on_unknown: for queued calls only"),
    ],
)
def test_anything_else_is_refused_with_what_to_give(args: object, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        CallOptions.of(args)


@pytest.mark.parametrize(
    ("asked", "usual", "wait"),
    [
        ({}, None, None),
        ({}, 9, 9),
        ({"max_wait": 20}, 9, 20),
        ({"deadline": 5}, None, 5),
        ({"deadline": 5}, 9, 5),
        ({"deadline": 50}, 9, 9),
        ({"deadline": 5, "max_wait": 2}, 9, 2),
    ],
)
def test_a_call_waits_no_longer_than_any_bound(
    asked: dict[str, Any], usual: float | None, wait: float | None
) -> None:
    assert CallOptions(**asked).wait_bound(usual) == wait
