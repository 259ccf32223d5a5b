"""The same flow from Python and from a file; a mistake in a file is named by its place."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from tidegate.adapters.flow_bot import FlowBot
from tidegate.errors import BadInputError
from tidegate.flows import Button, FlowBuilder, flow_of, load_flow, plain_of, texts_of
from unit.flows.talk import has_at, is_open, shop

GUARDS = {"is_open": is_open, "has_at": has_at}

SMALL = """
name = "small"
initial = "start"
lifetime = 3600
given = ["name"]
texts = "texts.toml"

[commands]
"/start" = "start"

[states.start]
say = "hello"
buttons = [
    {text = "yes", to = "waiting", save = "key"},
    [{text = "no", to = "end"}, {text = "help", trigger = "help"}],
]
on = [{trigger = "button:help", say = "hello"}, {trigger = "text", to = "end", guard = "g"}]

[states.waiting]
say = "hello"
poll = {name = "payment", key = "key", met = "end"}
timeout = {seconds = 60, say = "hello", times = 2}

[states.end]
final = true
"""
TEXTS = '[en]\nhello = "Hi {name}"\nyes = "Yes"\nno = "No"\nhelp = "Help"\n'


def small() -> FlowBuilder:
    texts = texts_of({"en": {"hello": "Hi {name}", "yes": "Yes", "no": "No", "help": "Help"}})
    flow = FlowBuilder("small", lifetime=3_600, given=("name",), texts=texts)
    flow.command("/start", to="start")
    (
        flow.state("start", say="hello")
        .button("yes", to="waiting", save="key")
        .button("no", to="end")
        .button("help", trigger="help", beside=True)
        .on("button:help", say="hello")
        .on("text", to="end", guard="g")
    )
    flow.state("waiting", say="hello").poll("payment", key="key", met="end").timeout(60, say="hello", times=2)
    flow.final("end")

    @flow.guard
    def g(data: object, event: object) -> bool:
        return data is not event

    return flow


def test_a_file_and_the_builder_make_the_same_flow(tmp_path: Path) -> None:
    (tmp_path / "flow.toml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "texts.toml").write_text(TEXTS, encoding="utf-8")
    built = small().build()
    assert load_flow(str(tmp_path / "flow.toml"), guards=built.guards) == built


def test_a_flow_goes_through_json_and_comes_back(tmp_path: Path) -> None:
    for built in (shop().build(), small().build()):
        (tmp_path / "flow.json").write_text(json.dumps(plain_of(built)), encoding="utf-8")
        assert load_flow(tmp_path / "flow.json", guards=built.guards) == built


def good() -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(plain_of(shop().build())))
    return plain


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("states", "waiting", "poll", "mett"), "paid", "states.waiting.poll.mett: there is no such key"),
        (("states", "waiting", "poll", "met"), None, "states.waiting.poll.met: expected `str`, got `null`"),
        (("states", "waiting", "poll"), {"name": "p"}, "states.waiting.poll.key: is missing"),
        (
            ("states", "waiting", "timeout", "seconds"),
            "9",
            "states.waiting.timeout.seconds: expected `float`",
        ),
        (("states", "start", "buttons"), [{"to": "end"}], "states.start.buttons[0][0].text: is missing"),
        (("states", "start", "on"), [{"trigger": 1}], "states.start.on[0].trigger: expected `str`"),
        (("states", "start", "name"), "x", "states.start.name: there is no such key"),
        (("states", "start"), 5, "states.start: a state is a table"),
        (("nonsense",), 1, "nonsense: there is no such key"),
        (("initial",), 1, "initial: expected `str`, got `int`"),
        (("parse_mode",), "BBCode", "parse_mode: 'BBCode' is none of HTML, MarkdownV2"),
        (("texts",), "file.toml", "texts: a file can be named in a file only"),
        (("texts",), {"en": {"a": 1}}, "texts: en.a is no text"),
    ],
)
def test_a_mistake_is_named_by_its_place(place: tuple[str, ...], value: object, told: str) -> None:
    data = good()
    at = data
    for part in place[:-1]:
        at = at[part]
    at[place[-1]] = value
    with pytest.raises(BadInputError) as error:
        flow_of(data, guards=GUARDS)
    assert str(error.value).startswith(told)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("f.toml", "name = ", "it cannot be read"),
        ("f.json", "{", "it cannot be read"),
        ("f.json", "[]", "the flow: expected `object`, got `array`"),
        ("f.yaml", "", "a .toml or .json file, not .yaml"),
        ("f.toml", 'texts = "f.toml"', "f.toml: texts is no table"),
    ],
)
def test_a_file_that_is_no_flow_is_named(tmp_path: Path, name: str, content: str, told: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(BadInputError) as error:
        load_flow(tmp_path / name)
    assert name in str(error.value)
    assert told in str(error.value)


def test_the_builder_begins_with_its_first_state_unless_told_otherwise() -> None:
    flow = FlowBuilder("f", initial="b")
    flow.final("a")
    flow.final("b")
    assert flow.build_unchecked().initial == "b"
    assert small().build().initial == "start"
    with pytest.raises(BadInputError, match="has no states"):
        FlowBuilder("f").build()


def test_a_builder_that_is_added_to_later_does_not_change_what_it_built() -> None:
    flow = small()
    built = flow.build()
    flow.final("more")
    flow.command("/more", to="more")
    assert "more" not in built.by_name
    assert built.commands == {"/start": "start"}


def test_a_button_keeps_its_code_when_only_its_text_changes_and_not_when_its_meaning_does() -> None:
    """Messages with buttons stay in chats for longer than a version of the bot."""
    assert Button("Pay", to="paid").code == Button("Pay now", to="paid").code
    codes = {
        Button("Pay", to="paid").code,
        Button("Pay", to="sorry").code,
        Button("Pay", trigger="paid").code,
        Button("Pay", to="paid", guard="g").code,
        Button("Pay", to="paid", save="x").code,
        Button("Cash", to="paid", save="x").code,
    }
    assert len(codes) == 6


def test_a_state_that_is_no_table_is_named() -> None:
    with pytest.raises(BadInputError, match=r"^states\.start: a state is a table, such as .*: got str$"):
        flow_of({"name": "shop", "initial": "start", "states": {"start": "Hello"}})


WRONG: Final[Any] = SimpleNamespace(say=5, seconds="15m", kind="gif", mode="Markdown", guard=is_open)
ODD: Final[Sequence[tuple[Callable[[FlowBuilder], object], str]]] = [
    (lambda flow: flow.state("a", say=WRONG.say), r"states\.a\.say: expected `str | null`, got `int`"),
    (
        lambda flow: flow.state("a").button("Go", to=cast("Any", flow.state("b"))),
        r"states\.a\.buttons\[0\]\[0\]\.to: .*: give its name, not the StateBuilder",
    ),
    (
        lambda flow: flow.state("a").on("text", to="end", guard=WRONG.guard),
        r"states\.a\.on\[0\]\.guard: .*: give its name, not the function",
    ),
    (
        lambda flow: flow.state("a").timeout(WRONG.seconds, say="Still there?"),
        r"states\.a\.timeout\.seconds: expected `float`, got `str`",
    ),
    (
        lambda flow: flow.state("a").media(WRONG.kind, id="A-1"),
        r"states\.a\.media\[0\]\.kind: 'gif' is none of photo, document, video, audio, animation",
    ),
]


@pytest.mark.parametrize(("declare", "told"), ODD)
def test_a_value_of_a_wrong_type_is_named_by_its_place_in_the_builder_too(
    declare: Callable[[FlowBuilder], object], told: str
) -> None:
    flow = FlowBuilder("odd")
    declare(flow)
    with pytest.raises(BadInputError, match=f"flow odd: {told}"):
        flow.build()


def test_an_unknown_parse_mode_is_refused_before_somebody_writes() -> None:
    flow = FlowBuilder("odd", parse_mode=WRONG.mode)
    flow.final("end")
    with pytest.raises(BadInputError, match="flow odd: parse_mode: 'Markdown' is none of HTML, MarkdownV2"):
        flow.build()


def test_a_second_poll_of_a_state_does_not_silently_replace_the_first() -> None:
    state = FlowBuilder("small").state("a").poll("payment", key="order", met="end")
    with pytest.raises(BadInputError, match="state a has poll twice"):
        state.poll("refund", key="order", met="end")


@pytest.mark.parametrize("gate", ["tidegate.db", 42, {}])
def test_a_flow_runs_on_a_gate_and_on_nothing_else(gate: Any) -> None:  # noqa: ANN401  (anything)
    flow = FlowBuilder("one")
    flow.final("end", say="Bye")
    flow.command("/start", to="end")
    with pytest.raises(BadInputError, match=r"^gate is of type \w+: give a Tidegate, or leave it out$"):
        FlowBot(flow.build(), gate=gate)


def test_only_a_built_flow_can_be_called_or_run() -> None:
    unbuilt: Any = FlowBuilder("unbuilt")
    with pytest.raises(BadInputError, match="state a calls no flow: give what build"):
        FlowBuilder("caller").state("a").call(unbuilt, to="end")
    with pytest.raises(BadInputError, match="a FlowBuilder cannot be run: give what build"):
        FlowBot(unbuilt, gate=None)
