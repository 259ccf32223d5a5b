"""Rules that would hold somebody for ever are refused; what is said is said in whole seconds."""

from typing import Any

import pytest

from tidegate.errors import BadInputError
from tidegate.inbound.throttle.rules import ThrottleRules
from tidegate.model import Rate

NEVER = Rate(0, 1)
IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"user": NEVER}, "user 0/1 would never let an update pass"),
    ({"chat": NEVER}, "chat 0/1 would never let an update pass"),
    ({"user": Rate(1, float("inf"))}, "would never let an update pass"),
    ({"user": "30/60"}, r'user is a Rate: write Rate.parse\("30/60"\)'),
    ({"user": Rate(2, 1), "costs": {"command": 3}}, "'command' costs 3: write 0 for free, or at most 2"),
    ({"costs": {"command": -1}}, "'command' costs -1"),
    ({"costs": {"command": float("nan")}}, "'command' costs nan"),
    ({"user": Rate(9, 1), "chat": Rate(2, 1), "costs": {"x": 3}}, "more than the 2/1 of a chat"),
    ({"stubborn": 0}, "stubborn is a number of held updates, 1 or more, not 0"),
    ({"pause": -1.0}, "pause is a number of seconds, 0 for none, not -1"),
    ({"pause": float("nan")}, "pause is a number of seconds"),
]


@pytest.mark.parametrize(("rules", "said"), IMPOSSIBLE)
def test_rules_that_cannot_be_kept_are_refused(rules: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        ThrottleRules(**rules)


def test_costs_that_are_not_named_stay_as_they_are() -> None:
    rules = ThrottleRules(costs={"command": 5, "edited_message": 0})
    kinds = ("command", "edited_message", "callback_query", "message", "something_new")
    assert [rules.cost(kind) for kind in kinds] == [5, 0, 0.5, 1, 1]


@pytest.mark.parametrize(
    ("wait", "said"), [(0.0, "1 s"), (0.2, "1 s"), (1.0, "1 s"), (1.01, "2 s"), (59.5, "60 s")]
)
def test_seconds_are_whole_and_never_too_few(wait: float, said: str) -> None:
    assert ThrottleRules(text="{seconds} s").say(wait) == said


def test_other_braces_of_a_text_are_left_alone() -> None:
    assert ThrottleRules(text="{name}, {seconds} {").say(3) == "{name}, 3 {"


def test_there_may_be_nothing_to_say() -> None:
    assert ThrottleRules(text=None).say(3) is None
