"""What is recorded of a message that ended, of a direct call and of an update."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.events import Attempted, CallAttempted
from tidegate.history import AttemptRow, HistoryRow
from tidegate.model import (
    BotId,
    Claim,
    Dead,
    Delivered,
    Message,
    Migrated,
    NotSent,
    Outcome,
    Priority,
    Record,
    Refused,
    Retry,
    State,
    TicketId,
    Unknown,
    Unreachable,
)
from tidegate.ops.history_rows import (
    LONGEST_DESCRIPTION,
    LONGEST_TEXT,
    row_of_attempt,
    row_of_update,
    rows_of_call,
    rows_of_end,
)

BOT = BotId(42)
CHAT = {"id": 1001, "type": "private"}


def ended(method: str = "sendMessage", *, result: object = None, **fields: Any) -> list[HistoryRow]:  # noqa: ANN401
    usual: dict[str, Any] = {"state": State.DELIVERED, "chat_id": 1001, "texts": True}
    known = usual | {"params": {"text": "Hi"}} | fields
    message = Message(
        id=TicketId("ab-1"),
        bot=BOT,
        chat_id=known["chat_id"],
        method=method,
        params=known["params"],
        priority=Priority.HIGH,
    )
    record = Record(
        message=message,
        state=known["state"],
        created_at=10.0,
        settled_at=12.5,
        attempts=2,
        reason=known.get("reason"),
        description=known.get("description"),
        result=result,
    )
    return rows_of_end(record, texts=known["texts"])


def called(
    method: str = "sendMessage",
    content: dict[str, Any] | None = None,
    *,
    result: object = None,
    outcome: Outcome | None = None,
    chat_id: int | None = 1001,
) -> list[HistoryRow]:
    event = CallAttempted(
        BOT, method, chat_id, outcome or Delivered(None), 0.5, lambda: content or {}, lambda: result
    )
    return rows_of_call(event, "call", 20.0, texts=True)


def received(kind: str, content: dict[str, Any], *, texts: bool = True) -> HistoryRow | None:
    return row_of_update(BOT, {"update_id": 5, kind: content}, 30.0, texts=texts)


def test_a_delivered_message_is_recorded_with_its_id_and_what_it_replies_to() -> None:
    result = {"message_id": 7, "chat": CHAT, "reply_to_message": {"message_id": 3}, "text": "Hi"}
    [row] = ended(result=result)

    assert row == HistoryRow(
        key="ab-1/12500000",
        bot=BOT,
        direction="out",
        chat_id="1001",
        telegram_message_id=7,
        reply_to_message_id=3,
        user_id=None,
        kind="sendMessage",
        is_change=False,
        text="Hi",
        state="delivered",
        reason=None,
        description=None,
        ticket="ab-1",
        priority="high",
        attempts=2,
        created_at=10.0,
        ended_at=12.5,
    )


def test_a_dead_message_is_recorded_with_its_reason_and_what_it_would_have_replied_to() -> None:
    params = {"text": "Hi", "reply_parameters": {"message_id": 3}}
    [row] = ended(state=State.DEAD, params=params, reason="blocked", description="Forbidden: …")

    assert (row.state, row.reason, row.description) == ("dead", "blocked", "Forbidden: …")
    assert (row.telegram_message_id, row.reply_to_message_id, row.text) == (None, 3, "Hi")


def test_each_message_of_an_album_has_a_row_and_a_key_of_its_own() -> None:
    media = [{"type": "photo", "caption": "one"}, {"type": "photo"}]
    result = [{"message_id": 7, "chat": CHAT}, {"message_id": 8, "chat": CHAT}]
    rows = ended("sendMediaGroup", params={"media": media}, result=result)

    assert [(row.telegram_message_id, row.text) for row in rows] == [(7, "one"), (8, None)]
    assert len({row.key for row in rows}) == 2
    assert {row.ticket for row in rows} == {"ab-1"}


def test_a_dead_album_is_one_row_with_all_captions() -> None:
    media = [{"caption": "one"}, {}, {"caption": "three"}]
    [row] = ended("sendMediaGroup", params={"media": media}, state=State.DEAD)

    assert row.text == "one\nthree"


def test_a_message_to_a_name_is_recorded_under_the_number_that_telegram_gives() -> None:
    [delivered] = ended(chat_id="@channel", result={"message_id": 7, "chat": {"id": -100}})
    [dead] = ended(chat_id="@channel", state=State.DEAD)

    assert (delivered.chat_id, dead.chat_id) == ("-100", "@channel")


def test_an_edit_and_a_deletion_are_changes_of_the_message_that_they_name() -> None:
    [edit] = ended("editMessageText", params={"text": "new", "message_id": 7}, result=True)
    [caption] = ended("editMessageCaption", params={"caption": "new"}, result={"message_id": 7, "chat": CHAT})
    deletions = ended("deleteMessages", params={"message_ids": [7, 8]}, result=True)

    assert (edit.telegram_message_id, edit.is_change, edit.text) == (7, True, "new")
    assert (caption.telegram_message_id, caption.is_change, caption.text) == (7, True, "new")
    assert [(row.telegram_message_id, row.is_change) for row in deletions] == [(7, True), (8, True)]


def test_a_forwarded_message_has_the_text_of_the_answer() -> None:
    [row] = ended("forwardMessage", params={"from_chat_id": 5}, result={"message_id": 7, "text": "theirs"})

    assert row.text == "theirs"


def test_a_poll_is_found_by_its_question_and_a_photo_by_its_caption() -> None:
    [poll] = ended("sendPoll", params={"question": "Why?"})
    [photo] = ended("sendPhoto", params={"photo": "x", "caption": "Me"})

    assert (poll.text, photo.text) == ("Why?", "Me")


def test_without_texts_everything_else_is_recorded() -> None:
    [row] = ended(texts=False, result={"message_id": 7, "text": "Hi"})
    update = received("message", {"message_id": 1, "chat": CHAT, "text": "Hi"}, texts=False)

    assert (row.text, row.telegram_message_id) == (None, 7)
    assert update is not None
    assert update.text is None


def test_a_text_without_end_is_cut() -> None:
    [row] = ended(params={"text": "x" * 100_000})

    assert row.text == "x" * LONGEST_TEXT


def test_a_text_that_no_database_takes_is_made_one_that_it_does() -> None:
    [row] = ended(params={"text": "a\0b \ud83d ü"}, state=State.DEAD, description="\ud83d")

    assert (row.text, row.description) == ("ab ? ü", "?")


def test_a_direct_call_is_recorded_without_a_ticket() -> None:
    content = {"text": "now", "reply_parameters": {"message_id": 3}}
    [row] = called(content=content, result={"message_id": 7, "chat": CHAT})

    assert (row.key, row.ticket, row.state, row.text) == ("call/0", None, "delivered", "now")
    assert (row.telegram_message_id, row.reply_to_message_id) == (7, 3)
    assert (row.created_at, row.ended_at) == (19.5, 20.0)


def test_calls_that_failed_or_put_no_message_are_not_recorded() -> None:
    message = {"message_id": 7, "chat": CHAT}

    assert called(result=message, outcome=Dead("blocked", "")) == []
    assert called("sendChatAction", result=True) == []
    assert called("getChat", result={"id": 1001}) == []
    assert called("answerCallbackQuery", result=True, chat_id=None) == []
    assert called("pinChatMessage", {"message_id": 7}, result=True) == []
    assert called("editMessageText", {"text": "inline"}, result=True, chat_id=None) == []


def test_a_direct_edit_and_deletion_are_recorded_as_changes() -> None:
    [edit] = called("editMessageText", {"text": "new", "message_id": 7}, result=True)
    [deletion] = called("deleteMessage", {"message_id": 7}, result=True)

    assert [(row.telegram_message_id, row.is_change) for row in (edit, deletion)] == [(7, True), (7, True)]


def test_an_incoming_message_is_recorded_with_its_user_and_what_it_replies_to() -> None:
    content = {
        "message_id": 9,
        "from": {"id": 77},
        "chat": {"id": -100},
        "text": "Hello",
        "reply_to_message": {"message_id": 7},
    }
    row = received("message", content)

    assert row is not None
    assert (row.key, row.direction, row.state, row.kind) == ("42/u5", "in", "received", "message")
    assert (row.chat_id, row.telegram_message_id, row.reply_to_message_id) == ("-100", 9, 7)
    assert (row.user_id, row.text, row.created_at) == (77, "Hello", 30.0)


def test_a_message_in_a_topic_of_a_forum_replies_to_nothing() -> None:
    opened = {"message_id": 2, "forum_topic_created": {"name": "News"}}
    row = received("message", {"message_id": 9, "chat": CHAT, "reply_to_message": opened})

    assert row is not None
    assert row.reply_to_message_id is None


def test_an_edited_message_is_a_change() -> None:
    row = received("edited_message", {"message_id": 9, "chat": CHAT, "caption": "better"})

    assert row is not None
    assert (row.is_change, row.telegram_message_id, row.text) == (True, 9, "better")


def test_the_press_of_a_button_replies_to_the_message_that_has_it() -> None:
    row = received(
        "callback_query", {"from": {"id": 77}, "data": "buy:3", "message": {"message_id": 7, "chat": CHAT}}
    )

    assert row is not None
    assert (row.telegram_message_id, row.reply_to_message_id) == (None, 7)
    assert (row.user_id, row.text) == (77, "buy:3")


def test_updates_without_a_message_in_a_chat_are_not_recorded() -> None:
    assert received("inline_query", {"from": {"id": 77}, "query": "x"}) is None
    assert received("callback_query", {"from": {"id": 77}, "inline_message_id": "x"}) is None
    assert received("my_chat_member", {"chat": CHAT}) is None
    assert row_of_update(BOT, {"update_id": 5}, 30.0, texts=True) is None


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "message_id",
                    "chat",
                    "from",
                    "id",
                    "text",
                    "caption",
                    "reply_to_message",
                    "message",
                    "media",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_anything, st.sampled_from(["message", "callback_query", "edited_message"]))
def test_no_update_whatever_its_shape_is_an_error(content: Any, kind: str) -> None:  # noqa: ANN401
    row_of_update(BOT, {"update_id": 5, kind: content}, 30.0, texts=True)


@given(_anything, st.dictionaries(st.sampled_from(["text", "media", "reply_parameters"]), _anything))
def test_no_answer_whatever_its_shape_is_an_error(result: Any, params: dict[str, Any]) -> None:  # noqa: ANN401
    for method in ("sendMessage", "sendMediaGroup", "editMessageText", "deleteMessages"):
        ended(method, params=params, result=result)


def attempted(outcome: Outcome) -> AttemptRow | None:
    message = Message(
        id=TicketId("ab-1"), bot=BOT, chat_id="@news", method="sendMessage", params={"text": "Hi"}
    )
    return row_of_attempt(Attempted(Claim(message, 7, 2), outcome, 0.5), "key", 30.0)


def test_an_attempt_that_delivered_is_not_recorded() -> None:
    assert attempted(Delivered({"message_id": 1})) is None


def test_an_attempt_has_its_number_times_and_place() -> None:
    assert attempted(Refused(17.0)) == AttemptRow(
        "key", "ab-1", BOT, "@news", 2, 30.0, 0.5, "refused", None, None, 17.0
    )


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Retry(2.5, "server_error"), ("retry", "server_error", None, 2.5)),
        (Unknown("timeout", 8.0), ("unknown", "timeout", None, 8.0)),
        (
            Dead("blocked", "Forbidden: bot was blocked"),
            ("dead", "blocked", "Forbidden: bot was blocked", None),
        ),
        (Migrated(-100), ("migrated", None, "the group is now the supergroup -100", None)),
        (NotSent("late"), ("not_sent", "late", None, 0.0)),
        (Unreachable(4.0, "no connection"), ("unreachable", "no connection", None, 4.0)),
    ],
)
def test_each_outcome_but_a_delivery_is_recorded_in_words(
    outcome: Outcome, expected: tuple[object, ...]
) -> None:
    row = attempted(outcome)

    assert row is not None
    assert (row.outcome, row.reason, row.description, row.wait) == expected


def test_what_an_attempt_says_is_bounded_whole_and_without_secrets() -> None:
    token = "7000042:" + "a" * 35
    row = attempted(Dead("bad_request", f"\0no way \ud800 with {token} " + "x" * 2 * LONGEST_DESCRIPTION))

    assert row is not None
    assert row.description is not None
    assert row.description.startswith("no way ? with 7000042:… xxx")
    assert len(row.description) == LONGEST_DESCRIPTION
