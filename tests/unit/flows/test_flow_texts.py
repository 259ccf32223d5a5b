"""What a person reads: the language, the fields, the braces."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.flows import Button, Flow, State, Texts, Transition, read_texts, texts_of
from tidegate.flows.effects import SayText
from tidegate.flows.events import Begin, ButtonPress
from tidegate.templates import MAX_TEXT_LENGTH, MAX_VALUE_LENGTH, ParseMode, fields_in, fill, utf16_length
from unit.flows.talk import Talk, words

TEXTS = texts_of({"default": "en", "de": {"hi": "Hallo"}, "en": {"hi": "Hello", "buttons": {"go": "Go"}}})


@pytest.mark.parametrize(
    ("language", "said"),
    [("de", "Hallo"), ("de-AT", "Hallo"), ("DE", "Hallo"), ("fr", "Hello"), (None, "Hello")],
)
def test_a_language_falls_back_to_the_one_it_is_of_and_then_to_the_default(
    language: str | None, said: str
) -> None:
    assert TEXTS.find("hi", language) == said


def test_a_key_that_a_language_lacks_is_said_in_the_default_one() -> None:
    assert TEXTS.find("buttons.go", "de") == "Go"
    assert TEXTS.find("nothing", "de") is None
    assert TEXTS.lacking("buttons.go") == ["de"]


def test_a_session_speaks_the_language_it_began_in() -> None:
    ways = (Transition("text", "b"),)
    button = ((Button("buttons.go", to="b"),),)
    states = (State("a", "hi", buttons=button, on=ways), State("b", "hi", final=True))
    flow = Flow(name="f", initial="a", states=states, texts=TEXTS, stale="hi")
    talk = Talk(flow)

    began = talk.take(Begin(language="de", **talk.cause()))
    assert isinstance(began[0], SayText)
    assert (began[0].text, began[0].buttons[0][0].text) == ("Hallo", "Go")
    assert words(talk.take(ButtonPress("x", language="en", **talk.cause()))) == ["Hallo"]
    assert words(talk.write("x")) == ["Hallo"]


def test_texts_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "texts.toml"
    path.write_text('default = "de"\n[en]\nhi = "Hello"\n[de]\nhi = "Grüß Gott"\n', encoding="utf-8")
    assert read_texts(path) == Texts({"en": {"hi": "Hello"}, "de": {"hi": "Grüß Gott"}}, "de")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "there are no texts"),
        ("hi = 'Hello'", "hi is no table"),
        ("[en]\nhi = 5", "en.hi is no text"),
        ("[en.a]\nb = [1]", "en.a.b is no text"),
        ("default = 'fr'\n[en]\nhi = 'Hello'", "the default language fr has no texts: there are en"),
        ("[en]\nhi =\n", "line 2"),
    ],
)
def test_a_file_with_a_mistake_is_named(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "texts.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadInputError) as error:
        read_texts(path)
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{name}!", "Ann {x}!"),
        ("{{name}}", "{name}"),
        ("{name.__class__}", "{name.__class__}"),
        ("{name[0]} {0} {} { }", "{name[0]} {0} {} { }"),
        ("{nobody}.", "."),
        ("{none}{number}", "7"),
        ("a } b {", "a } b {"),
    ],
)
def test_only_names_are_filled_in(text: str, filled: str) -> None:
    assert fill(text, {"name": "Ann {x}", "x": "no", "none": None, "number": 7}) == filled


@given(st.text(), st.dictionaries(st.text(min_size=1), st.text()))
def test_any_text_can_be_filled(text: str, data: dict[str, str]) -> None:
    assert isinstance(fill(text, data), str)
    assert set(fields_in(text)) <= set(text.replace("}", "{").split("{"))


@pytest.mark.parametrize(
    ("mode", "shown"),
    [(None, "<b>{name}_</b>"), ("HTML", "&lt;b&gt;{name}_&lt;/b&gt;"), ("MarkdownV2", None)],
)
def test_a_value_cannot_break_the_formatting(mode: ParseMode | None, shown: str | None) -> None:
    shown = shown or "<b\\>\\{name\\}\\_</b\\>"
    assert fill("*{value}*", {"value": "<b>{name}_</b>"}, mode) == f"*{shown}*"


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("https://pay.example/{id}?x=1", "https://pay.example/a%2Fb%20%26%3F?x=1"),
        ("{link}", "https://elsewhere.example/?a=1&b=2"),
        ("{nobody}", None),
    ],
)
def test_a_link_leads_where_it_says_and_one_that_leads_nowhere_is_left_out(
    address: str, link: str | None
) -> None:
    button = ((Button("Pay", url=address), Button("{nobody}", to="b")),)
    flow = Flow(name="f", initial="a", states=(State("a", "Hi", buttons=button), State("b", final=True)))
    (said,) = Talk(flow).begin(id="a/b &?", link="https://elsewhere.example/?a=1&b=2")
    assert isinstance(said, SayText)
    assert [button.url for button in said.buttons[0] if button.text == "Pay"] == ([link] if link else [])
    assert said.buttons[0][-1].text == "…"


def test_a_press_without_a_session_is_answered_in_the_persons_language() -> None:
    flow = Flow(name="f", initial="a", states=(State("a", final=True),), texts=TEXTS, stale="hi")
    talk = Talk(flow)
    assert words(talk.take(ButtonPress("x", language="de", **talk.cause()))) == ["Hallo"]


def test_a_value_of_any_length_leaves_a_message_that_can_be_sent() -> None:
    assert len(fill("{a}{b}", {"a": "x" * 9_999, "b": "y" * 9_999})) == 2 * MAX_VALUE_LENGTH


@pytest.mark.parametrize("mode", [None, "HTML", "MarkdownV2"])
def test_long_answers_are_shortened_so_that_the_message_and_its_buttons_appear(
    mode: ParseMode | None,
) -> None:
    say = "You said:" + "".join(f"\n{{a{number}}}" for number in range(6)) + "\nSend it?"
    button = ((Button("Yes, {a1}", to="b"),),)
    states = (State("a", say, buttons=button), State("b", final=True))
    talk = Talk(Flow(name="f", initial="a", states=states, parse_mode=mode))
    (said,) = talk.begin(**{f"a{number}": "<🌊>." * 999 for number in range(6)})
    assert isinstance(said, SayText)
    assert 2_000 < utf16_length(said.text) <= MAX_TEXT_LENGTH
    assert said.text.count("…") == 6
    assert said.text.endswith("Send it?")
    assert len(said.buttons[0][0].text) == 64


def test_the_usual_words_can_be_sent_with_any_formatting_and_answers_have_none() -> None:
    way = (Transition("text", "b", guard="no"),)
    button = ((Button("Go", to="b", guard="no"),),)
    states = (State("a", "*Hi*", buttons=button, on=way), State("b", final=True))
    flow = Flow(
        name="f", initial="a", states=states, parse_mode="MarkdownV2", guards={"no": lambda *_: False}
    )
    talk = Talk(flow)
    talk.begin()
    assert words(talk.write("x")) == ["Please use the buttons\\."]
    assert words(talk.press("Go")) == ["Please use the buttons."]
    assert words(talk.take(ButtonPress("x", **talk.cause()))) == ["That button is no longer in use."]


@pytest.mark.parametrize(
    ("mode", "text", "read"),
    [("MarkdownV2", "Not now\\.", "Not now."), ("HTML", "<b>1 &lt; 2</b>", "1 < 2"), (None, "a\\.", "a\\.")],
)
def test_an_answer_to_a_press_reads_without_its_formatting(
    mode: ParseMode | None, text: str, read: str
) -> None:
    flow = Flow(name="f", initial="a", states=(State("a", final=True),), parse_mode=mode, stale=text)
    talk = Talk(flow)
    assert words(talk.take(ButtonPress("x", **talk.cause()))) == [read]
