"""Which limits a call falls under."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model import ChatId, Rate
from tidegate.pacing.rules import Family, Rules, cost_of, family_of, is_private


@pytest.mark.parametrize(
    ("method", "family"),
    [
        ("sendMessage", "send"),
        ("sendMediaGroup", "send"),
        ("copyMessages", "send"),
        ("forwardMessage", "send"),
        ("sendSomethingNewTelegramWillInvent", "send"),
        ("sendChatAction", "action"),
        ("editMessageText", "edit"),
        ("stopPoll", "edit"),
        ("getChat", "free"),
        ("answerCallbackQuery", "free"),
        ("deleteMessage", "free"),
        ("setMyCommands", "free"),
        ("pinChatMessage", "free"),
    ],
)
def test_each_method_draws_on_its_budget(method: str, family: Family) -> None:
    assert family_of(method) == family


@given(st.text(), st.integers(0, 20))
def test_only_albums_and_bulk_calls_cost_more_than_one(method: str, items: int) -> None:
    params = {"media": [0] * items, "message_ids": [0] * items}

    assert cost_of("sendMediaGroup", params) == max(1, items)
    assert cost_of("copyMessages", params) == max(1, items)
    assert cost_of("forwardMessages", params) == max(1, items)
    if method not in {"sendMediaGroup", "copyMessages", "forwardMessages"}:
        assert cost_of(method, params) == 1


@pytest.mark.parametrize("media", [None, "attach://album", 7, {}])
def test_an_album_that_is_none_costs_one(media: object) -> None:
    assert cost_of("sendMediaGroup", {"media": media}) == 1
    assert cost_of("sendMediaGroup", {}) == 1


@pytest.mark.parametrize(
    ("chat", "private"), [(1, True), (0, False), (-5, False), (-100_123, False), ("@name", False)]
)
def test_people_have_positive_numbers(chat: ChatId, private: bool) -> None:  # noqa: FBT001  (an expectation)
    assert is_private(chat) is private


def test_private_chats_and_groups_have_their_own_limits() -> None:
    rules = Rules(private=Rate(3, 3), group=Rate(7, 60))

    assert rules.chat(5) == Rate(3, 3)
    assert rules.chat(-5) == rules.chat("@channel") == Rate(7, 60)


@pytest.mark.parametrize(
    ("family", "shared", "separate"),
    [
        ("send", "send", "send"),
        ("edit", "send", "edit"),
        ("action", "action", "action"),
        ("free", "send", "send"),
    ],
)
def test_edits_have_a_lane_of_their_own_only_if_the_rules_say_so(
    family: Family, shared: str, separate: str
) -> None:
    assert Rules().kind(family) == shared
    assert Rules(edits="separate").kind(family) == separate
