"""What each row gets, and what a row is."""

import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from sqlalchemy import create_engine, text

from tidegate.broadcast.audience import check_audience, row_of, size_of
from tidegate.broadcast.message import MessageWriter
from tidegate.errors import BadInputError

ROW = {"chat_id": "1001", "name": "<Bob>"}


async def written(letter: object, row: Mapping[str, object] | None = None, **shared: Any) -> object:  # noqa: ANN401
    return await MessageWriter(letter, shared).write(row or ROW)


async def test_a_template_is_filled_in_and_escaped() -> None:
    assert await written("Hi {name}", parse_mode="HTML") == {"text": "Hi &lt;Bob&gt;", "chat_id": 1001}
    assert await written("Hi {name}") == {"text": "Hi <Bob>", "chat_id": 1001}


async def test_the_text_of_a_photo_is_its_caption() -> None:
    fields = await written("Hi {name}", method="sendPhoto", photo="AgAD")
    assert fields == {"caption": "Hi <Bob>", "chat_id": 1001}


async def test_fields_may_be_the_same_for_all() -> None:
    forward = {"method": "copyMessage", "from_chat_id": -100, "message_id": 7}
    assert await written(forward) == {**forward, "chat_id": 1001}


async def test_an_object_of_a_bot_library_is_converted() -> None:
    class Call:
        def __await__(self) -> Any:  # noqa: ANN401
            pytest.fail("it was made, not queued")

    async def convert(call: object) -> Mapping[str, Any]:
        assert isinstance(call, Call)
        return {"method": "sendDice", "chat_id": 1001}

    letters = MessageWriter(lambda _: Call(), {}, convert)
    assert await letters.write(ROW) == {"method": "sendDice", "chat_id": 1001}


async def test_a_letter_for_somebody_else_is_refused() -> None:
    assert await written(lambda row: {"chat_id": int(row["chat_id"]), "text": "x"}) is not None
    with pytest.raises(BadInputError, match="the letter is for chat_id 7, and the row for 1001"):
        await written(lambda _: {"chat_id": 7, "text": "x"})


@pytest.mark.parametrize(
    ("letter", "shared", "complaint"),
    [
        ("Hi {name", {}, "the template has a single {"),
        ("Hi", {"text": "Hello"}, "text is made from the template"),
        ("Hi", {"method": "sendPhoto", "caption": "Hello"}, "caption is made from the template"),
        ("Hi", {"method": "sendDice"}, "neither text nor caption"),
        ("Hi {name}", {"parse_mode": "Markdown"}, "choose HTML or MarkdownV2"),
        ("Hi", {"chat_id": 7}, "chat_id cannot be given for all"),
        ("Hi", {"dedup_key": "x"}, "dedup_key cannot be given for all"),
        ("Hi", {"dedup_for": 60}, "use remember"),
        (7, {}, "give a template, a mapping of fields, or a function of a row: got int"),
    ],
)
def test_what_cannot_be_meant_is_refused(letter: object, shared: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        MessageWriter(letter, shared)


class Chat(NamedTuple):
    id: int


class Person(NamedTuple):
    chat_id: int
    name: str


def test_a_row_is_a_chat_or_has_names() -> None:
    assert row_of(7) == row_of((7,)) == {"chat_id": 7}
    assert row_of("@harbour") == {"chat_id": "@harbour"}
    assert row_of(ROW) is ROW
    assert row_of(Person(7, "Ann")) == {"chat_id": 7, "name": "Ann"}
    assert row_of(Chat(7)) == {"id": 7}


def test_rows_of_databases_are_rows() -> None:
    query = "SELECT 7 AS chat_id, 'Ann' AS name"
    wanted = {"chat_id": 7, "name": "Ann"}
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    assert row_of(connection.execute(query).fetchone()) == wanted
    connection.close()
    engine = create_engine("sqlite://")
    with engine.connect() as session:
        assert dict(row_of(session.execute(text(query)).one())) == wanted
    engine.dispose()


@pytest.mark.parametrize("one", [None, 3.5, (7, "Ann"), [7], object()])
def test_what_has_no_names_is_no_row(one: object) -> None:
    with pytest.raises(BadInputError, match="a row is a chat, or a mapping"):
        row_of(one)


@pytest.mark.parametrize("audience", ["people.csv", b"1", {"chat_id": 1}, 7, None])
def test_what_is_no_audience_is_refused(audience: object) -> None:
    with pytest.raises(BadInputError, match="an audience is an iterable of chats or rows"):
        check_audience(audience)


def test_the_size_of_an_audience_is_known_if_it_says_so() -> None:
    assert size_of([1, 2, 3]) == size_of(iter([1, 2, 3])) == size_of({1, 2, 3}) == 3
    assert size_of(chat for chat in (1, 2)) is None
