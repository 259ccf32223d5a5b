"""The libraries' objects are described as the JSON of the same update is."""

from typing import Any

import aiogram.types
import pytest
import telegram

from tidegate.inbound.updates import UpdateInfo, album_of, describe_event, describe_update

Json = dict[str, Any]

ANN = {"id": 1001, "is_bot": False, "first_name": "Ann"}
HOME = {"id": 1001, "type": "private", "first_name": "Ann"}
GROUP = {"id": -100, "type": "supergroup", "title": "Harbour"}
CHANNEL = {"id": -200, "type": "channel", "title": "Tides"}
QUERY = {"id": "7", "from": ANN, "chat_instance": "1", "data": "x"}


def message(chat: Json = HOME, **fields: object) -> Json:
    return {"message_id": 1, "date": 1_767_603_600, "chat": chat, "from": ANN, **fields}


PAID = {
    "currency": "XTR",
    "total_amount": 5,
    "invoice_payload": "tea",
    "telegram_payment_charge_id": "1",
    "provider_payment_charge_id": "2",
}
MEMBER = {"status": "member", "user": ANN}
CHANGED = {
    "chat": GROUP,
    "from": ANN,
    "date": 1,
    "old_chat_member": {"status": "left", "user": ANN},
    "new_chat_member": MEMBER,
}
UPDATES: list[tuple[str, Json]] = [
    ("message", message(text="hello")),
    ("message", message(text="/start")),
    ("message", message(text="hello", **{"from": ANN | {"language_code": "pt-br"}})),
    (
        "message",
        message(text="hello", forward_origin={"type": "hidden_user", "date": 5, "sender_user_name": "Bob"}),
    ),
    ("message", message(GROUP, text="hello")),
    ("message", message(GROUP, caption="/start", photo=[])),
    ("message", message(successful_payment=PAID)),
    ("message", message(refunded_payment={k: PAID[k] for k in list(PAID)[:4]})),
    ("edited_message", message(text="/start", edit_date=2)),
    ("channel_post", {"message_id": 1, "date": 1, "chat": CHANNEL, "text": "news"}),
    ("inline_query", {"id": "7", "from": ANN, "query": "tea", "offset": ""}),
    ("chosen_inline_result", {"result_id": "1", "from": ANN, "query": "tea"}),
    ("callback_query", QUERY | {"message": message(GROUP, text="menu")}),
    ("callback_query", QUERY | {"message": {"message_id": 1, "date": 0, "chat": HOME}}),
    ("callback_query", QUERY | {"inline_message_id": "abc"}),
    (
        "pre_checkout_query",
        {"id": "7", "from": ANN, "currency": "XTR", "total_amount": 5, "invoice_payload": "tea"},
    ),
    ("poll_answer", {"poll_id": "7", "user": ANN, "option_ids": [0], "option_persistent_ids": ["a"]}),
    ("my_chat_member", CHANGED),
    ("chat_member", CHANGED),
    ("chat_join_request", {"chat": GROUP, "from": ANN, "user_chat_id": 1001, "date": 1}),
    (
        "message_reaction",
        {"chat": GROUP, "message_id": 1, "user": ANN, "date": 1, "old_reaction": [], "new_reaction": []},
    ),
    ("purchased_paid_media", {"from": ANN, "paid_media_payload": "tea"}),
    ("business_message", message(text="hello", business_connection_id="b")),
]


def by_aiogram(update: Json) -> tuple[str, object]:
    parsed = aiogram.types.Update.model_validate(update)
    return parsed.event_type, parsed.event


def by_ptb(update: Json) -> tuple[str, object]:
    parsed = telegram.Update.de_json(update, None)
    kind = next(kind for kind in telegram.Update.ALL_TYPES if getattr(parsed, kind) is not None)
    return str(kind), getattr(parsed, kind)


@pytest.fixture(params=[by_aiogram, by_ptb])
def parse(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401
    return request.param


@pytest.mark.parametrize(("kind", "content"), UPDATES)
def test_libraries_and_json_agree(parse: Any, kind: str, content: Json) -> None:  # noqa: ANN401
    update = {"update_id": 5, kind: content}
    assert describe_event(*parse(update)) == describe_update(update)


def test_a_forwarded_message_and_the_language_of_its_user_are_known() -> None:
    origin = {"type": "hidden_user", "date": 5, "sender_user_name": "Bob"}
    for field, value in (("forward_origin", origin), ("forward_date", 5)):
        told: Json = {"from": ANN | {"language_code": "de"}, field: value}
        content = message(text="hello", **told)
        about = describe_update({"update_id": 5, "message": content})
        assert (about.kind, about.language, about.is_forwarded) == ("message", "de", True)
    about = describe_update({"update_id": 5, "message": message(text="hello")})
    assert (about.language, about.is_forwarded) == (None, False)


@pytest.mark.parametrize(
    "fields", [{"new_chat_members": [ANN]}, {"left_chat_member": ANN}, {"migrate_to_chat_id": -9}]
)
def test_a_message_that_nobody_wrote_is_a_service(parse: Any, fields: Json) -> None:  # noqa: ANN401
    update = {"update_id": 5, "message": message(GROUP, **fields)}
    about = UpdateInfo("service", 1001, -100, is_private=False, sent_at=1_767_603_600)
    assert describe_event(*parse(update)) == describe_update(update) == about


def test_an_album_is_known_by_its_parts(parse: Any) -> None:  # noqa: ANN401
    _, event = parse({"update_id": 5, "message": message(media_group_id="77", photo=[])})
    assert album_of(event) == "77"
    _, event = parse({"update_id": 5, "message": message(text="hello")})
    assert album_of(event) is None
    _, event = parse({"update_id": 5, "callback_query": QUERY})
    assert album_of(event) is None
