"""Impossible rules are refused; the notice gives whole seconds."""

from collections.abc import Collection
from typing import Any

import pytest
from aiogram.types import Update

from tidegate.errors import BadInputError
from tidegate.inbound.throttle import DEFAULT_COSTS, NEVER_CHARGED, THROTTLE_NOTICE, ThrottleRules
from tidegate.inbound.updates import UPDATE_KINDS
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
    ({"user": Rate(9, 1), "chat": Rate(2, 1), "costs": {"poll": 3}}, "more than the 2/1 of a chat"),
    ({"stubborn": 0}, "stubborn is a number of dropped updates, 1 or more, not 0"),
    ({"pause": -1.0}, "pause is a number of seconds, 0 for none, not -1"),
    ({"pause": float("nan")}, "pause is a number of seconds"),
    ({"pause": "1h"}, "pause is a number of seconds, 0 for none, not '1h'"),
    ({"stubborn": "20"}, "stubborn is a number of dropped updates, 1 or more, not '20'"),
    (
        {"text": 5},
        "text is what the user is told, or a text for each language, .* or None .* not 5",
    ),
    ({"text": {"de": 5}}, "a text for each language"),
    ({"forwarded": 2}, "forwarded is the share of its cost that a forwarded message has, from 0 to 1, not 2"),
    ({"forwarded": "no"}, "forwarded is the share"),
    ({"costs": {"command": "2"}}, "'command' costs '2': write 0 for free"),
    ({"costs": {"comand": 2}}, "costs: there is no kind 'comand' of updates: did you mean \"command\""),
    ({"costs": {"Message": 2}}, 'did you mean "message"'),
    ({"costs": {7: 2}}, 'costs names kinds of updates, such as "message", not 7'),
    ({"costs": 2}, "costs gives the cost of kinds"),
    ({"never": {"payment", "callbacks"}}, "never: .* 'callbacks' .* did you mean \"callback_query\""),
    ({"never": ["xyzzy"]}, "'xyzzy' of updates: use Telegram.s name of it, or one of command, payment"),
    ({"never": "payment"}, r'write never=\{"payment"\}, not \'payment\''),
    ({"never": None}, "never is a set of kinds"),
    ({"never": [None]}, "never names kinds of updates"),
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
    ("language", "said"),
    [
        ("de", "langsam 5"),
        ("pt-br", "devagar 5"),
        ("pt-PT", "lento 5"),
        ("fr", "slowly 5"),
        (None, "slowly 5"),
    ],
)
def test_a_user_is_told_in_the_users_language(language: str | None, said: str) -> None:
    texts = {"de": "langsam {seconds}", "pt_BR": "devagar {seconds}", "pt": "lento {seconds}"}
    assert ThrottleRules(text={**texts, "default": "slowly {seconds}"}).notice(5, language) == said
    if said.startswith("slowly"):
        assert ThrottleRules(text=texts).notice(5, language) == THROTTLE_NOTICE.format(seconds=5)


@pytest.mark.parametrize(
    ("wait", "said"), [(0.0, "1 s"), (0.2, "1 s"), (1.0, "1 s"), (1.01, "2 s"), (59.5, "60 s")]
)
def test_seconds_are_whole_and_never_too_few(wait: float, said: str) -> None:
    assert ThrottleRules(text="{seconds} s").notice(wait) == said


def test_other_braces_of_a_text_are_left_alone() -> None:
    assert ThrottleRules(text="{name}, {seconds} {").notice(3) == "{name}, 3 {"


def test_there_may_be_nothing_to_say() -> None:
    assert ThrottleRules(text=None).notice(3) is None


@pytest.mark.parametrize(
    "kinds", [["payment", "poll"], ("poll", "payment"), {"payment": 1, "poll": 2}.keys()]
)
def test_kinds_may_come_in_any_collection(kinds: Collection[str]) -> None:
    assert ThrottleRules(never=kinds).never == frozenset({"payment", "poll"})


def test_a_kind_of_payments_stands_for_all_of_them() -> None:
    rules = ThrottleRules(never={"pre_checkout_query"}, costs={"shipping_query": 0})
    assert "payment" in rules.never
    assert rules.cost("payment") == 0


def test_every_kind_that_there_is_can_be_named() -> None:
    assert set(UPDATE_KINDS) >= {*DEFAULT_COSTS, *NEVER_CHARGED, *Update.model_fields} - {"update_id"}
    ThrottleRules(never=UPDATE_KINDS, costs=dict.fromkeys(UPDATE_KINDS, 1))
