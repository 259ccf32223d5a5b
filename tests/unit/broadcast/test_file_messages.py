"""From any file to letters that can be sent and lines that cannot, each with its number and reason."""

import csv
import io
import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.broadcast.audience_file import AudienceFile, BadLine, Mailing
from tidegate.broadcast.message import BroadcastMessage
from tidegate.errors import BadInputError
from tidegate.model import BotId
from tidegate.templates import ParseMode

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip)
CHATS = st.integers(1, 10**13) | st.integers(-(10**13), -1)
PEOPLE = st.lists(st.tuples(CHATS, TEXTS), min_size=1, unique_by=lambda person: person[0])
BOT = BotId(42)


def mailing(
    content: bytes | str,
    name: str = "list.csv",
    *,
    template: str | None = None,
    parse_mode: ParseMode | None = None,
    duplicates: bool = False,
) -> Mailing:
    data = content.encode() if isinstance(content, str) else content
    source = AudienceFile(name, io.BytesIO(data), size=len(data))
    return Mailing(source, template=template, parse_mode=parse_mode, duplicates=duplicates)


def sent(letters: Mailing) -> list[tuple[object, object]]:
    return [
        (each.fields["chat_id"], each.fields["text"])
        for each in letters.messages()
        if isinstance(each, BroadcastMessage)
    ]


def bad(letters: Mailing) -> list[str]:
    return [f"{each.number}: {each.reason}" for each in letters.messages() if isinstance(each, BadLine)]


@given(
    PEOPLE, st.sampled_from(",;\t"), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["utf-8", "utf-8-sig"])
)
def test_csv_comes_back_as_it_was_written(
    people: list[tuple[int, str]], delimiter: str, end: str, encoding: str
) -> None:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(("chat_id", "text"))
    writer.writerows(people)
    content = file.getvalue().encode(encoding)

    letters = mailing(content)

    assert sent(letters) == sent(letters) == people
    assert not bad(letters)


@given(
    people=PEOPLE,
    ascii_only=st.booleans(),
    name=st.sampled_from(["list.jsonl", "list.NDJSON", "list.json", "stdin"]),
)
def test_json_lines_come_back_as_they_were_written(
    *, people: list[tuple[int, str]], ascii_only: bool, name: str
) -> None:
    rows = [{"chat_id": chat, "text": text} for chat, text in people]
    letters = mailing("\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows), name)
    assert sent(letters) == people
    assert not bad(letters)


@given(
    st.binary() | st.text().map(lambda text: f"chat_id,text\n{text}".encode()),
    st.sampled_from(["list.csv", "list.jsonl", "stdin"]),
    st.sampled_from([None, "Hi {name}", "Hi {text}"]),
)
@example(b'chat_id,text\n1,"never closed\n2,x\n', "list.csv", None)
@example(b"chat_id,text\r1,old Macintosh\r", "list.csv", None)
@example(b"[" * 100_000, "list.jsonl", None)
@example(b'{"a":' * 100_000, "list.jsonl", None)
@example(b'{"chat_id": 1, "text": "\\ud800"}', "list.jsonl", None)
@example(b"chat_id,text\n" + b"9" * 5_000 + b",x", "list.csv", None)
@example(b'{"chat_id": 1e400, "text": "x"}', "list.jsonl", None)
def test_any_bytes_are_letters_bad_lines_or_bad_input(
    content: bytes, name: str, template: str | None
) -> None:
    with suppress(BadInputError):
        letters = list(mailing(content, name, template=template).messages())
        assert len(letters) <= content.count(b"\n") + 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "list.csv is empty"),
        (" \n\n", "list.csv is empty"),
        (
            "name,text\nAnn,Hi",
            "line 1: there is no column 'chat_id' but name, text: the first line",
        ),
        ("1001,Hi\n", "there is no column 'chat_id' but 1001, Hi: the first line must name the columns"),
        ("chat_id,name\n1,Ann", "there is no column 'text' but chat_id, name: add it, or give a template"),
        ("chat_id,text,text\n1,a,b", "two columns are called 'text'"),
        ('"chat_id,text\n1,a\n', "line 1: a quote is not closed"),
        ("chat_id,text\r1,a\r", "line 1: a carriage return stands alone"),
    ],
)
def test_a_file_that_is_useless_as_a_whole_is_refused(content: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        list(mailing(content).messages())


def test_a_template_with_an_unknown_column_is_refused_before_any_row() -> None:
    with pytest.raises(BadInputError, match=r"'nmae' but chat_id, name: the template asks for \{nmae\}"):
        next(mailing("chat_id,name\n1,Ann", template="Hi {nmae}").messages())


def test_a_json_array_is_told_from_json_lines() -> None:
    with pytest.raises(BadInputError, match="is a JSON array: write one object in each line"):
        list(mailing('[{"chat_id": 1, "text": "a"}]', "list.json").messages())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("12x,Hi", "2: chat_id '12x' is no chat: give a number other than 0, or an @name"),
        ("0,Hi", "2: chat_id 0 is no chat"),
        (f"{2**63},Hi", "2: chat_id '9223372036854775808' is no chat"),
        (f"{'9' * 5000},Hi", "2: chat_id '9999999999999999999999999999999999999999…' is not a chat"),
        (",Hi", "2: chat_id is empty"),
        ("5", "2: text is empty"),
        ("5, ", "2: text is empty"),
        (f"5,{'x' * 4097}", "2: text has 4097 characters"),
        ("5,Hi, you", "2: has 3 values for 2 columns: quote what holds a delimiter"),
        ('5,"Hi" you', '2: a quote inside of quotes must be written twice: ""'),
        ('5,"Hi', "2: a quote is not closed"),
        ("5,\udce9t\udce9", "2: is not written in UTF-8"),
    ],
)
def test_what_is_wrong_with_a_line_of_csv(line: str, reason: str) -> None:
    content = f"chat_id,text\n{line}\n".encode("utf-8", "surrogateescape")
    (found,) = bad(mailing(content))
    assert found.startswith(reason)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "1: is no JSON: Input data was truncated"),
        ("5", '1: is no JSON object: write {"chat_id": …}'),
        ('{"text": "Hi"}', "1: there is no field 'chat_id': the fields are text"),
        ('{"chat_id": 5}', "1: there is no field 'text': the fields are chat_id"),
        ('{"chat_id": null, "text": "Hi"}', "1: chat_id is empty"),
        ('{"chat_id": 5.5, "text": "Hi"}', "1: chat_id '5.5' is no chat"),
        ('{"chat_id": 5, "text": {"a": 1}}', "1: text is neither text nor a number"),
    ],
)
def test_what_is_wrong_with_a_line_of_json(line: str, reason: str) -> None:
    (found,) = bad(mailing(f"{line}\n", "list.jsonl"))
    assert found.startswith(reason)


def test_good_lines_stand_beside_bad_ones_under_the_number_their_row_begins_in() -> None:
    letters = mailing('chat_id,text\n1,"two\nlines"\n\nx,bad\n,\n2,good\ny,"bad\ntoo"\n3,last')
    assert sent(letters) == [(1, "two\nlines"), (2, "good"), (3, "last")]
    assert [line.split(":")[0] for line in bad(letters)] == ["5", "8"]


def test_a_chat_gets_one_message_unless_it_may_get_more() -> None:
    content = "chat_id,text\n5,a\n@Harbour,b\n 5,c\n@harbour,d\n5,e"
    once, often = mailing(content), mailing(content, duplicates=True)
    assert sent(once) == [(5, "a"), ("@Harbour", "b")]
    assert bad(once)[0] == "4: chat_id 5 was in an earlier line: one message for each chat is allowed"
    keys = [each.key for each in often.messages() if isinstance(each, BroadcastMessage)]
    assert keys == ["5", "@harbour", "5+2", "@harbour+2", "5+3"]


def test_a_chat_of_a_bad_line_may_come_again() -> None:
    assert sent(mailing("chat_id,text\n5,\n5,good")) == [(5, "good")]


def test_what_all_letters_have_in_common() -> None:
    data = b"chat_id,name\n5,<Ann>"
    source = AudienceFile("list.csv", io.BytesIO(data), size=len(data))
    letters = Mailing(source, template="Hi {name}", parse_mode="HTML", params={"protect_content": True})
    (letter,) = letters.messages()
    assert isinstance(letter, BroadcastMessage)
    assert letter.fields == {
        "chat_id": 5,
        "text": "Hi &lt;Ann&gt;",
        "parse_mode": "HTML",
        "protect_content": True,
    }


def test_a_mailing_is_told_from_others_by_file_text_and_bot() -> None:
    content = "chat_id,text\n5,a"
    first = mailing(content).identity(BOT)
    others = {
        mailing(content + "\n").identity(BOT),
        mailing(content, template="Hi").identity(BOT),
        mailing(content).identity(BotId(43)),
    }
    assert len(others | {first}) == 4
    assert mailing(content).identity(BOT) == first


def test_a_mailing_is_still_the_same_with_other_parameters() -> None:
    """It was another one then, and everybody would have got it twice."""
    data = b"chat_id,text\n5,a"
    others = (
        mailing(data, parse_mode="HTML"),
        mailing(data, duplicates=True),
        Mailing(AudienceFile("list.csv", io.BytesIO(data), size=len(data)), params={"protect_content": True}),
    )
    assert {other.identity(BOT) for other in others} == {mailing(data).identity(BOT)}


def test_a_mended_line_leaves_the_keys_of_the_others_alone() -> None:
    spoilt, mended = "chat_id,text\n5,\n5,second", "chat_id,text\n5,first\n5,second"
    keys = [
        {each.fields["text"]: each.key for each in letters.messages() if isinstance(each, BroadcastMessage)}
        for letters in (mailing(spoilt, duplicates=True), mailing(mended, duplicates=True))
    ]
    assert keys == [{"second": "5+2"}, {"first": "5", "second": "5+2"}]
