"""What passes admission can be sent as JSON, and is read back from every store as it was."""

import datetime as dt
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.model import BotId, File, Message, TicketId
from tidegate.outbox.admission import (
    BYTES_OF_CHARACTER,
    LONGEST_NUMBER,
    MAX_DEPTH,
    MAX_PARAMS,
    _is_surely_small,
    check_call,
    compose,
    plain_value,
)
from tidegate.stores.message_codec import pack, read_body

NESTED_TEXT = {"chat_id": 7, "text": "x"}
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.datetimes()
    | st.just(object())
    | st.builds(File, path=st.text(st.characters()), content=st.none() | st.binary(max_size=4))
)
KEYS = st.text(st.characters(), max_size=8) | st.integers() | st.floats() | st.binary(max_size=4) | st.none()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
FIELDS = st.dictionaries(KEYS | st.sampled_from(["entities", "reply_markup", "text"]), VALUES, max_size=4)


def composed(fields: dict[Any, Any]) -> Message:
    return compose(TicketId("m1"), BotId(42), {**NESTED_TEXT, **fields}, now=0.0)


@given(FIELDS | FIELDS.map(lambda fields: {"extra": fields}))
def test_any_fields_are_bad_input_or_a_message_that_every_store_reads_back(fields: dict[Any, Any]) -> None:
    try:
        message = composed(fields)
    except BadInputError as error:
        assert len(str(error)) < 1000  # noqa: PT017  (either is fine)
        return
    msgspec.json.encode(_without_files(message.params))
    read = read_body(pack(message), message.id, message.bot, message.chat_id)
    assert isinstance(read, Message)
    assert msgspec.json.encode(_without_files(read.params)) == msgspec.json.encode(
        _without_files(message.params)
    )


@given(FIELDS, FIELDS)
def test_any_parameters_of_a_call_are_bad_input_or_json(
    params: dict[Any, Any], extra: dict[Any, Any]
) -> None:
    try:
        plain = check_call("sendMessage", params, extra)
    except BadInputError:
        return
    msgspec.json.encode(_without_files(plain))


def nested(levels: int) -> object:
    value: object = "x"
    for _ in range(levels):
        value = [value]
    return value


def test_parameters_may_be_nested_and_not_without_end() -> None:
    assert plain_value(nested(MAX_DEPTH), "note") == nested(MAX_DEPTH)
    with pytest.raises(BadInputError, match=rf"^note\[0\].* more than {MAX_DEPTH} levels"):
        plain_value(nested(MAX_DEPTH + 1), "note")
    with pytest.raises(BadInputError, match=f"more than {MAX_DEPTH} levels"):
        plain_value(nested(100_000), "note")


class Endless:
    def to_dict(self) -> object:
        return {"more": self}


class Broken:
    def to_dict(self) -> object:
        raise AttributeError("no fields")


class Digits(Enum):
    HUGE = 2**70


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"entities": Endless()}, "or contains itself"),
        ({"entities": Broken()}, r"entities cannot be sent as JSON: Broken.to_dict failed: no fields"),
        ({"entities": Digits.HUGE}, "entities cannot be sent as JSON: the number has more than 64 bits"),
        ({"entities": dt.datetime.min}, "entities is no time"),  # noqa: DTZ901  (the earliest there is)
        ({"x" * 200: 1}, "its name has 200 characters"),
        ({"a\ud800": 1}, "a key of the message is no valid text"),
        ({"entities": {"a\ud800": 1}}, "a key of entities is no valid text"),
        ({"chat_id": 10**5_000}, "chat_id of type int is no chat"),
        ({"method": 10**5_000}, "of type int is not a Bot API method"),
        ({"priority": 10**5_000}, "priority of type int is not known"),
        ({"extra": {"document": File(path=5)}}, "document: the path and the name of a File are texts"),  # type: ignore[arg-type]
        ({"extra": {"document": File(path="")}}, "document: the path '' of a File names no file"),
        ({"extra": {"document": File(path=".")}}, "document: the path '.' of a File names no file"),
        ({"extra": {"document": File(path="\udc80")}}, "document is no valid text"),
        ({"text": b"x"}, "text: a bytes cannot be sent as JSON"),
        ({"text": ["x"]}, "text must be a string"),
    ],
)
def test_poison_is_named_with_its_field(fields: dict[Any, Any], reason: str) -> None:
    with pytest.raises(BadInputError, match=reason):
        composed(fields)


def test_files_are_stored_with_plain_values() -> None:
    path: Any = Path("a.txt")
    content: Any = bytearray(b"x")

    message = composed({"extra": {"a": File(path=path), "b": File(content=content)}})

    assert message.params["a"] == File(path="a.txt")
    assert type(message.params["b"].content) is bytes


def _without_files(value: object) -> object:
    if isinstance(value, File):
        return [value.path and Path(value.path).name, value.name]
    if isinstance(value, dict):
        return {key: _without_files(item) for key, item in value.items()}
    return [_without_files(item) for item in value] if isinstance(value, list) else value


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.text(st.characters(exclude_categories=["Cs"])) | st.integers() | st.floats() | st.booleans(),
    )
)
def test_parameters_that_are_surely_small_are_so_as_json(params: dict[str, Any]) -> None:
    sizes = {name: len(msgspec.json.encode({name: value})) for name, value in params.items()}
    bound = sum(
        BYTES_OF_CHARACTER * (_characters(value) + len(name) + LONGEST_NUMBER)
        for name, value in params.items()
    )
    assert sum(sizes.values()) <= bound
    assert _is_surely_small(params) == (bound < MAX_PARAMS)


def _characters(value: object) -> int:
    return len(value) if isinstance(value, str) else 0


def test_parameters_that_may_be_large_are_measured() -> None:
    assert not _is_surely_small({"text": "x" * (MAX_PARAMS // BYTES_OF_CHARACTER)})
    assert not _is_surely_small({"reply_markup": {}})
    assert composed({"text": "x" * (MAX_PARAMS - 100), "parse_mode": "HTML"}).params["parse_mode"] == "HTML"
    with pytest.raises(BadInputError, match="at most 1,048,576 are taken"):
        composed({"text": "x" * MAX_PARAMS, "parse_mode": "HTML"})


@pytest.mark.parametrize("method", ["logOut", "setWebhook", "getUpdates", "getManagedBotToken"])
def test_calls_that_take_a_bot_away_are_not_queued(method: str) -> None:
    """Whoever may put messages, such as an API token of an operator, could end the bot or get its updates."""
    with pytest.raises(BadInputError, match=f"{method} is about the bot itself"):
        compose(TicketId("m1"), BotId(42), {"chat_id": 7, "method": method}, now=0.0)
