"""Bodies and results that cannot be encoded or decoded: reading and keeping them never raises."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model import BotId, File, Message, Priority, TicketId
from tidegate.stores import message_codec
from tidegate.stores.message_codec import (
    UnreadableBody,
    decode_result,
    encode_result,
    pack,
    read_body,
    report_unreadable,
    stand_in,
    storable_text,
)

MESSAGE = Message(
    id=TicketId("m1"),
    bot=BotId(42),
    chat_id=1001,
    method="sendDocument",
    params={"document": File(content=b"x"), "reply_markup": {"inline_keyboard": [[{"text": "a"}]]}},
)


def test_a_body_is_read_back() -> None:
    assert read_body(pack(MESSAGE), MESSAGE.id, MESSAGE.bot, MESSAGE.chat_id) == MESSAGE


@given(st.lists(st.tuples(st.integers(0, len(pack(MESSAGE)) - 1), st.integers(1, 255)), max_size=8))
def test_no_flipped_byte_raises(flips: list[tuple[int, int]]) -> None:
    body = bytearray(pack(MESSAGE))
    for at, bits in flips:
        body[at] ^= bits

    read = read_body(bytes(body), MESSAGE.id, MESSAGE.bot, MESSAGE.chat_id)

    if isinstance(read, Message):
        assert (read.id, read.bot, read.chat_id) == (MESSAGE.id, MESSAGE.bot, MESSAGE.chat_id)
    else:
        assert read.size == len(body)
        assert read.cause


@given(st.binary(max_size=200))
def test_no_bytes_raise(body: bytes) -> None:
    read_body(body)
    decode_result(body)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"id": "m2"}, "its id"),
        ({"bot": 43}, "its bot"),
        ({"chat_id": 1002}, "its chat_id"),
        ({"method": "send/../Message"}, "not a Bot API method"),
        ({"not_before": float("nan")}, "not_before"),
        ({"params": {5: 1}}, "str"),
        ({"params": 5}, "object"),
    ],
)
def test_a_body_that_is_not_that_of_its_row_is_unreadable(changes: dict[str, Any], cause: str) -> None:
    body = msgspec.msgpack.encode(msgspec.to_builtins(MESSAGE) | {"params": {}} | changes)

    read = read_body(body, MESSAGE.id, MESSAGE.bot, MESSAGE.chat_id)

    assert isinstance(read, UnreadableBody)
    assert cause in read.description
    assert f"{len(body)} bytes" in read.description


def test_a_body_nested_beyond_measure_is_unreadable() -> None:
    head = msgspec.msgpack.encode({"id": "m1", "bot": 42, "chat_id": 1, "method": "sendMessage"})
    body = b"\x85" + head[1:] + msgspec.msgpack.encode("params") + b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0"

    assert isinstance(read_body(body), UnreadableBody)


def test_a_stand_in_has_what_its_row_knows() -> None:
    message = stand_in(TicketId("m1"), BotId(42), "@channel", Priority.LOW)

    assert (message.id, message.bot, message.chat_id, message.priority, message.method, message.params) == (
        TicketId("m1"),
        BotId(42),
        "@channel",
        Priority.LOW,
        "",
        {},
    )


def test_an_unreadable_message_is_logged_with_its_id_bot_and_chat(caplog: pytest.LogCaptureFixture) -> None:
    report_unreadable(MESSAGE.id, MESSAGE.bot, MESSAGE.chat_id, UnreadableBody(7, "truncated"))

    [line] = caplog.messages
    assert all(word in line for word in ("m1", "42", "1001", "unreadable", "7 bytes", "truncated"))


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("result", [{"id": 2**70}, "\ud800", _nested(100_000), {"a": object()}])
def test_a_result_that_cannot_be_kept_is_null(result: object) -> None:
    assert encode_result(result) is None


def test_results_that_cannot_be_kept_are_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_codec, "_said", set())

    for number in range(30):
        encode_result({"message_id": 2**70 + number})

    [line] = caplog.messages
    assert "kept as null" in line


def test_a_result_is_read_back() -> None:
    assert decode_result(encode_result({"message_id": 2**62})) == {"message_id": 2**62}
    assert encode_result(None) is None
    assert decode_result(None) is None
    assert decode_result(b"\xc1") is None


@given(st.text(st.characters()))
def test_any_text_can_be_stored(text: str) -> None:
    stored = storable_text(text)

    assert stored is not None
    assert len(stored.encode()) >= len(stored)
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert stored == text
    assert storable_text("a\udc80b") == "a?b"
