"""What a template makes of a row, and what it refuses to be."""

import re
import string
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.row_template import Template
from tidegate.templates import ParseMode

NAMES = st.text(string.ascii_letters + "_ é", min_size=1).filter(str.strip).map(str.strip)
VALUES = st.text(min_size=1).filter(str.strip)


def plain(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@given(st.lists(st.tuples(st.text(), NAMES, VALUES), min_size=1), st.text())
def test_fields_are_filled_in_and_everything_else_stands_for_itself(
    pieces: list[tuple[str, str, str]], end: str
) -> None:
    row = {name: value for _, name, value in pieces}

    template = Template("".join(f"{plain(text)}{{{name}}}" for text, name, _ in pieces) + plain(end))

    assert template.render(row) == "".join(text + row[name] for text, name, _ in pieces) + end
    assert template.fields == tuple(row)


@given(st.text(), st.dictionaries(st.text(), st.none() | st.text() | st.integers() | st.lists(st.text())))
def test_any_text_is_a_template_or_bad_input(text: str, row: dict[str, object]) -> None:
    with suppress(BadInputError):
        assert isinstance(Template(text).render(row), str)


@given(VALUES)
def test_a_value_cannot_break_html(value: str) -> None:
    text = Template("<b>{name}</b>", "HTML").render({"name": value})
    inside = text.removeprefix("<b>").removesuffix("</b>")
    assert not re.search(r"[<>\"]|&(?!amp;|lt;|gt;|quot;|#x27;)", inside)


@given(VALUES)
def test_a_value_cannot_break_markdown(value: str) -> None:
    text = Template("*{name}*", "MarkdownV2").render({"name": value})
    escaped = re.sub(r"\\[_*\[\]()~`>#+\-=|{}.!\\]", "", text[1:-1])
    assert not re.search(r"[_*\[\]()~`>#+\-=|{}.!\\]", escaped)


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        (None, "<b>Hi *<Bob>*</b>"),
        ("HTML", "<b>Hi *&lt;Bob&gt;*</b>"),
        ("MarkdownV2", r"<b>Hi *<Bob\>*</b>"),
    ],
)
def test_only_values_are_escaped(mode: ParseMode | None, text: str) -> None:
    assert Template("<b>Hi *{name}*</b>", mode).render({"name": "<Bob>"}) == text


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("Hi {name", "a single { in line 1, column 4: write {{"),
        ("Hi\nyou} there", "a single } in line 2, column 4: write }}"),
        ("Hi {}", "'{}' in line 1, column 4: write a field's plain name"),
        ("Hi {name.__class__}", "plain name"),
        ("Hi {name[0]}", "plain name"),
        ("Hi {name!r}", "plain name"),
        ("Hi {name:>9}", "plain name"),
        (" \n", "the template is empty"),
    ],
)
def test_what_is_no_template_is_said_with_its_place(template: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(complaint)):
        Template(template)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"nmae": "Ann", "town": "Rye"}, "there is no field 'name': the fields are nmae, town"),
        ({"name": ""}, "name is empty"),
        ({"name": " \t"}, "name is empty"),
        ({"name": None}, "name is empty"),
        ({"name": ["Ann"]}, "name is neither text nor a number"),
        ({"name": True}, "name is neither text nor a number"),
    ],
)
def test_a_row_without_the_value_is_refused(row: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        Template("Hi {name}").render(row)
