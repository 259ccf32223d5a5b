"""A flow calls another one, and goes on when it has ended."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.flows import Flow, FlowBuilder, load_flow, read_session, step, texts_of, upkeep
from tidegate.flows.declaration import flow_of, plain_of
from tidegate.flows.effects import EndSession, SayText, SetTimer
from tidegate.flows.events import ButtonPress, Text
from unit.flows.talk import Talk, only, words


def address(**options: object) -> FlowBuilder:
    """Asks for a street and a city."""
    flow = FlowBuilder("address", given=("name",), **options)  # type: ignore[arg-type]
    flow.command("/address", to="street").command("/back", to="aborted")
    flow.state("street", say="{name}, your street?", otherwise="A street, please.").on(
        "text", to="city", guard="is_long", save="street"
    )
    flow.state("city", say="And the city?").button("The same", to="given", save="city", value="Bonn").on(
        "text", to="given", save="city"
    )
    flow.final("given", say="Noted.")
    flow.final("aborted")
    flow.guard(is_long)
    return flow


def is_long(data: object, event: object) -> bool:  # noqa: ARG001  (a guard)
    return isinstance(event, Text) and len(event.text) > 3


def order(called: Flow | None = None) -> Flow:
    flow = FlowBuilder("order", lifetime=600, given=("name",))
    flow.command("/start", to="start").command("/cancel", to="cancelled")
    flow.state("start", say="Hello {name}").button("Deliver", to="where").button("Fetch", to="end")
    asking = flow.state("where", say="Where to?")
    asking.call(called or address().build(), to="end", save=("street", "city"))
    asking.on("ended:aborted", to="start", say="Then not.")
    flow.final("end", say="To {street}, {city}.")
    flow.final("cancelled", say="Cancelled.")
    return flow.build_unchecked()


def asked(flow: Flow | None = None) -> Talk:
    talk = Talk(flow or order())
    talk.begin(name="Ann")
    talk.press("Deliver")
    return talk


def test_the_called_flow_runs_and_its_fields_come_back() -> None:
    assert order().validate() == []
    talk = Talk(order())
    talk.begin(name="Ann")
    assert words(talk.press("Deliver")) == ["Where to?", "Ann, your street?"]
    assert (talk.live.state, talk.live.frames) == ("where/street", ({"name": "Ann"},))
    assert words(talk.write("Elm")) == ["A street, please."]
    assert words(talk.write("Elm street")) == ["And the city?"]
    effects = talk.press("The same")
    assert words(effects) == ["Noted.", "To Elm street, Bonn."]
    assert only(effects, EndSession) == [EndSession("end")]
    assert talk.session is not None
    assert talk.session.data == {"name": "Ann", "street": "Elm street", "city": "Bonn"}
    assert talk.session.frames == ()


def test_what_is_not_asked_for_is_gone_when_the_called_flow_ends() -> None:
    talk = asked()
    talk.write("Elm street")
    assert words(talk.command("/back")) == ["Then not.", "Hello Ann"]
    assert (talk.live.state, talk.live.data, talk.live.frames) == ("start", {"name": "Ann"}, ())


def test_a_field_that_was_not_saved_on_the_way_is_empty() -> None:
    flow = FlowBuilder("order")
    flow.state("start", say="Hi").button("Go", to="ask")
    flow.state("ask").call(address(initial="street").build(), to="end", save=("street", "city"))
    flow.final("end", say="To {street}.")
    talk = Talk(flow.build_unchecked())
    talk.begin()
    talk.press("Go")
    assert words(talk.command("/back")) == ["To ."]
    assert talk.session is not None
    assert talk.session.data == {"street": None, "city": None}


def test_commands_of_the_caller_leave_the_called_flow() -> None:
    talk = asked()
    talk.write("Elm street")
    assert words(talk.command("/cancel")) == ["Cancelled."]
    assert talk.session is not None
    assert (talk.session.data, talk.session.frames) == ({"name": "Ann"}, ())


def test_the_command_that_begins_the_called_flow_alone_does_not_begin_it_within_another() -> None:
    assert words(asked().command("/address")) == ["A street, please."]


def test_the_called_flow_is_resumed_after_a_restart() -> None:
    talk = asked()
    talk.session = read_session(talk.live.to_json())
    assert words(talk.write("Elm street")) == ["And the city?"]
    assert [type(effect) for effect in upkeep(order(), talk.live)] == [SetTimer]


def test_a_flow_is_called_twice_and_calls_others() -> None:
    both = FlowBuilder("both", given=("name",))
    both.state("from", say="From:").call(address().build(), to="to", save=("city",))
    both.state("to").call(address().build(), to="both", save=("street",))
    both.final("both")
    flow = FlowBuilder("move", given=("name",))
    flow.state("ask", say="Moving?").button("Yes", to="places")
    flow.state("places").call(both.build(), to="end", save=("city", "street"))
    flow.final("end", say="From {city} to {street}.")
    talk = Talk(flow.build())
    talk.begin(name="Ann")
    assert words(talk.press("Yes")) == ["From:", "Ann, your street?"]
    assert (talk.live.state, len(talk.live.frames)) == ("places/from/street", 2)
    talk.write("Elm street")
    assert words(talk.write("Ulm")) == ["Noted.", "Ann, your street?"]
    assert talk.live.state == "places/to/street"
    talk.write("Oak street")
    assert words(talk.write("Kiel")) == ["Noted.", "From Ulm to Oak street."]


def test_each_flow_has_its_own_texts_and_guards() -> None:
    inner = FlowBuilder(
        "inner", texts=texts_of({"en": {"hi": "Inner?"}, "de": {"hi": "Innen?"}}), otherwise="hi"
    )
    inner.state("ask", say="hi").button("hi", to="end", save="chosen", guard="yes")
    inner.final("end")
    inner.guard(yes)
    flow = FlowBuilder("outer", texts=texts_of({"en": {"hi": "Outer!"}, "de": {"hi": "Außen!"}}))
    flow.state("start", say="hi").on("text", to="ask")
    flow.state("ask").call(inner.build(), to="end", save=("chosen",))
    flow.final("end", say="{chosen}")

    @flow.guard
    def no(data: object, event: object) -> bool:  # noqa: ARG001  (a guard)
        return False

    talk = Talk(flow.build())
    talk.language = "de"
    talk.begin()
    assert words(talk.write("Go")) == ["Innen?"]
    assert words(talk.write("What?")) == ["Innen?"]
    assert words(talk.press("Innen?")) == ["hi"]  # the key, as in a flow that is not called


def yes(data: object, event: object) -> bool:  # noqa: ARG001  (a guard)
    return True


def test_mistakes_of_calls_are_found() -> None:
    inner = address(parse_mode="HTML").build()
    flow = FlowBuilder("order")
    flow.state("a", say="A").button("Go", to="b").call(inner, to="b", save=("street", "zip")).timeout(
        5, to="b"
    )
    flow.state("b").call(inner, to="nowhere").on("ended:lost", to="a")
    done = FlowBuilder("done")
    done.final("end")
    flow.state("c").call(done.build(), to="d")
    flow.state("d").on("ended:x", to="end")
    flow.final("end")
    built = flow.build_unchecked()
    missing = flow_of({**plain_of(built), "flows": {"address": plain_of(inner)}}, guards=inner.guards)
    told = {(problem.kind, problem.state, problem.text.split(":")[0]) for problem in missing.validate()}
    assert told >= {
        ("bad_call", "a", "it calls a flow, so it can say something and do nothing else"),
        ("bad_call", "a", "the flow address has another parse_mode"),
        ("missing_field", "a", "the flow address needs name, which is never saved"),
        ("missing_field", "a", "the flow address never saves zip"),
        ("missing_target", "b", "a transition leads to nowhere, which is no state"),
        ("bad_trigger", "b", "ended"),
        ("unknown_flow", "c", "there is no flow done to call"),
        ("bad_trigger", "d", "ended"),
    }
    assert ("bad_call", "c", "the flow done ends in its initial state, so it does nothing") in {
        (problem.kind, problem.state, problem.text.split(":")[0]) for problem in built.validate()
    }


def test_mistakes_within_a_called_flow_are_named_by_their_place() -> None:
    inner = FlowBuilder("inner")
    inner.state("ask", say="{unknown}").button("Go", to="end").button(
        "Lost", to="lost", url="https://x.example"
    )
    inner.final("end")
    flow = FlowBuilder("outer")
    flow.state("call").call(inner.build_unchecked(), to="end")
    flow.final("end")
    told = [(problem.kind, problem.state) for problem in flow.build_unchecked().validate()]
    assert told == [("missing_target", "call/ask"), ("bad_button", "call/ask"), ("missing_field", "call/ask")]


def test_a_poll_key_that_the_called_flow_saves_is_not_there_after_it() -> None:
    inner = FlowBuilder("inner")
    inner.state("ask", say="?").on("text", to="wait", save="key")
    inner.state("wait", say="…").poll("p", key="key", met="end")
    inner.final("end")

    def outer(*save: str) -> list[str]:
        flow = FlowBuilder("outer")
        flow.state("call").call(inner.build(), to="wait", save=save)
        flow.state("wait", say="…").poll("p", key="key", met="end")
        flow.final("end")
        return [f"{problem.state}: {problem.kind}" for problem in flow.build_unchecked().validate()]

    assert outer() == ["wait: poll_key"]
    assert outer("key") == []


def test_flows_are_declared_in_files_beside_each_other(tmp_path: Path) -> None:
    inner = plain_of(address().build())
    outer = {**plain_of(order()), "flows": {"address": "address.json"}}
    (tmp_path / "address.json").write_text(json.dumps(inner))
    (tmp_path / "order.json").write_text(json.dumps(outer))
    flow = load_flow(tmp_path / "order.json", guards={"is_long": is_long})
    assert flow.validate() == []
    assert flow_of(plain_of(order()), guards={"is_long": is_long}).flows == flow.flows
    talk = asked(flow)
    assert words(talk.write("Elm street")) == ["And the city?"]


def test_a_flow_that_calls_itself_is_refused(tmp_path: Path) -> None:
    flows: dict[str, Flow] = {}
    declared = {
        "name": "loop",
        "initial": "a",
        "states": {"a": {"call": {"flow": "loop", "to": "b"}}, "b": {"final": True}},
    }
    flow = flows["loop"] = msgspec.structs.replace(flow_of(declared), flows=flows)
    assert [problem.kind for problem in flow.validate()] == ["bad_call"]
    (tmp_path / "loop.json").write_text(json.dumps({**declared, "flows": {"loop": "loop.json"}}))
    with pytest.raises(BadInputError, match="calls itself"):
        load_flow(tmp_path / "loop.json")
    with pytest.raises(BadInputError, match="a file can be named in a file only"):
        flow_of({**declared, "flows": {"loop": "loop.json"}})
    with pytest.raises(BadInputError, match=r"flows\.loop: states: is missing"):
        flow_of({**declared, "flows": {"loop": {"name": "x", "initial": "a"}}})


def test_pictures_show_the_called_flow() -> None:
    picture, svg = order().diagram(), order().svg({"where/street": 3})
    names = {
        line.split('"')[1]: line.split()[-1] for line in picture.splitlines() if line.startswith("    state ")
    }
    assert f"{names['where']} --> {names['where/street']} : calls address" in picture
    assert f"{names['where/given']} --> {names['end']} : ends" in picture
    assert f"{names['where/aborted']} --> {names['start']} : ends" in picture
    assert "where/street" in svg
    assert "3 here" in svg


def test_a_text_on_the_way_through_is_not_replaced_at_once() -> None:
    inner = FlowBuilder("inner", in_place=True)
    inner.state("ask", say="Sure?").button("Yes", to="end")
    inner.final("end", say="Thanks!")
    flow = FlowBuilder("outer", in_place=True)
    flow.state("start", say="Hi").button("Go", to="call")
    flow.state("call", say="One question:").call(inner.build(), to="end")
    flow.final("end", say="Bye")
    talk = Talk(flow.build())
    talk.begin()
    data = talk.buttons[-1].data or ""
    said = only(talk.take(ButtonPress(data, "q", 5, **talk.cause())), SayText)
    assert [(one.text, one.edits) for one in said] == [("One question:", 5), ("Sure?", None)]


ORDER = order()
WRITTEN = st.lists(
    st.sampled_from(["Elm street", "no", "/back", "/cancel", "/start", "Deliver", "The same", "Fetch"]),
    max_size=12,
)


@given(WRITTEN)
def test_frames_are_as_deep_as_the_state_and_the_callers_data_stay(lines: list[str]) -> None:
    talk = Talk(ORDER)
    talk.begin(name="Ann")
    for line in lines:
        known = [button for button in talk.buttons if button.text == line]
        if line.startswith("/"):
            talk.command(line)
        elif known:
            talk.press(line)
        else:
            talk.write(line)
        session = talk.live
        assert len(session.frames) == session.state.count("/")
        assert all(frame.keys() <= {"name"} for frame in session.frames)  # nothing of the called flow
        assert session.state in ORDER.flat.by_name
        assert session.ended or ORDER.flat.by_name[session.state].call is None
        again = step(talk.flow, read_session(session.to_json()), Text("x", id="other", at=talk.now))
        assert again == step(talk.flow, session, Text("x", id="other", at=talk.now))
