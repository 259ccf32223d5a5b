"""The kind, user, chat and lane of an update."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.inbound.updates import Order, UpdateInfo, describe_update, parse_update

USER = {"id": 5, "is_bot": False, "first_name": "A"}
PRIVATE = {"id": 5, "type": "private"}
GROUP = {"id": -100, "type": "supergroup"}
WRITTEN = {"chat": PRIVATE, "from": USER}
REACTION = {"chat": GROUP, "user": USER}


@pytest.mark.parametrize(
    ("update", "about"),
    [
        (
            {"message": {"chat": PRIVATE, "from": USER, "text": "hi"}},
            UpdateInfo("message", 5, 5, is_private=True),
        ),
        (
            {"message": {**WRITTEN, "text": "/go"}},
            UpdateInfo("command", 5, 5, is_private=True),
        ),
        ({"message": {"chat": GROUP, "from": USER}}, UpdateInfo("message", 5, -100, is_private=False)),
        (
            {"edited_message": {"chat": GROUP, "from": USER}},
            UpdateInfo("edited_message", 5, -100, is_private=False),
        ),
        ({"channel_post": {"chat": GROUP}}, UpdateInfo("channel_post", None, -100, is_private=False)),
        (
            {"callback_query": {"id": "1", "from": USER, "message": {"chat": GROUP}}},
            UpdateInfo("callback_query", 5, -100, is_private=False),
        ),
        ({"inline_query": {"id": "1", "from": USER}}, UpdateInfo("inline_query", 5, None, is_private=False)),
        ({"pre_checkout_query": {"id": "1", "from": USER}}, UpdateInfo("payment", 5, None, is_private=False)),
        (
            {"message": {"chat": PRIVATE, "from": USER, "successful_payment": {}}},
            UpdateInfo("payment", 5, 5, is_private=True),
        ),
        (
            {"message_reaction": REACTION},
            UpdateInfo("message_reaction", 5, -100, is_private=False),
        ),
        ({"poll": {"id": "1"}}, UpdateInfo("poll", None, None, is_private=False)),
        ({"something_new": 1}, UpdateInfo("unknown", None, None, is_private=False)),
    ],
)
def test_what_an_update_is_about(update: dict[str, object], about: UpdateInfo) -> None:
    assert describe_update({"update_id": 1, **update}) == about


@pytest.mark.parametrize(("order", "in_group"), [("user", "-100 5"), ("chat", "-100")])
def test_updates_of_one_user_in_a_chat_or_of_a_whole_chat_share_a_lane(order: Order, in_group: str) -> None:
    def lane(update: dict[str, object]) -> str:
        return parse_update(42, msgspec.json.encode(update), order).lane

    home = {"id": 5, "type": "private"}
    message = lane({"update_id": 1, "message": {"chat": GROUP, "from": USER}})
    click = lane({"update_id": 2, "callback_query": {"from": USER, "message": {"chat": GROUP}}})
    query = lane({"update_id": 3, "inline_query": {"from": USER}})
    polls = {lane({"update_id": number, "poll": {"id": "1"}}) for number in (4, 5)}

    assert message == click == in_group
    assert lane({"update_id": 6, "message": {"chat": home, "from": USER}}) == query == "5"
    assert lane({"update_id": 7, "channel_post": {"chat": GROUP}}) == "-100"
    assert len(polls) == 2


def test_without_an_order_no_update_waits_for_another() -> None:
    body = msgspec.json.encode({"update_id": 1, "message": {"chat": GROUP, "from": USER}})
    assert parse_update(42, body, "none").lane == "update 1"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"update_id": "1"}', b'{"update_id": true}', b'{"update_id": -1}', b"\xff"],
)
def test_what_is_no_update_is_told(body: bytes) -> None:
    with pytest.raises(BadInputError):
        parse_update(42, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["chat", "from", "message", "id", "text", "type"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["message", "callback_query", "poll", "new"]), JSON, max_size=2))
def test_whatever_telegram_adds_is_held(update: dict[str, object]) -> None:
    arrival = parse_update(42, msgspec.json.encode({"update_id": 9, **update}))

    assert arrival.key == "9"
    assert isinstance(arrival.lane, str)
