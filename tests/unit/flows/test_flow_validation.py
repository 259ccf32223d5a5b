"""Each kind of mistake is found, with the state it is in and what to do about it."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tidegate.errors import BadInputError
from tidegate.flows import Button, Flow, Poll, State, Timeout, Transition, Work, texts_of
from unit.flows.talk import shop

END = State("end", say="Bye", final=True)
TO_END = (Transition("/end", "end"),)


def flow(*states: State, **fields: Any) -> Flow:  # noqa: ANN401  (those of a flow)
    return Flow(**{"name": "f", "initial": "a", "states": (*states, END), **fields})


def a(**fields: Any) -> State:  # noqa: ANN401  (those of a state)
    return State("a", **{"say": "Hi", "on": TO_END, **fields})


def buttons(*some: Button) -> tuple[tuple[Button, ...], ...]:
    return tuple((button,) for button in some)


def found(declared: Flow, **known: Any) -> list[tuple[str, str | None]]:  # noqa: ANN401  (names, or none)
    return [(problem.kind, problem.state) for problem in declared.validate(**known)]


def test_the_shop_is_sound() -> None:
    sound = shop().build()
    assert sound.validate(works={"create_order"}, polls={"payment"}) == []


WRONG: Sequence[tuple[Flow, str, str | None, str]] = [
    (flow(a(), initial="z"), "no_initial", None, "initial state z is not among"),
    (flow(a(), State("b", say="B", on=TO_END)), "unreachable", "b", "nothing leads here"),
    (flow(a(on=(*TO_END, Transition("text", "z")))), "missing_target", "a", "leads to z"),
    (flow(a(buttons=buttons(Button("Z", to="z")))), "missing_target", "a", "leads to z"),
    (flow(a(), commands={"/z": "z"}), "missing_target", None, "/z leads to z"),
    (
        flow(a(on=(*TO_END, Transition("text", "b"))), State("b", say="B")),
        "dead_end",
        "b",
        "no transition leads out",
    ),
    (
        flow(a(on=(*TO_END, Transition("text", "b"))), State("b", say="B", on=(Transition("text"),))),
        "dead_end",
        "b",
        "make it final",
    ),
    (
        flow(
            a(on=(*TO_END, Transition("text", "b"))),
            State("b", say="B", on=(Transition("text", "c"),)),
            State("c", say="C", on=(Transition("text", "b"),)),
        ),
        "never_ends",
        "b",
        "no final state can be reached",
    ),
    (flow(a(on=(*TO_END, Transition("text"), Transition("text", "end")))), "ambiguous", "a", "never taken"),
    (
        flow(a(buttons=buttons(Button("Go", to="end"), Button("Go", to="a")))),
        "ambiguous",
        "a",
        "2 buttons read 'Go'",
    ),
    (flow(a(on=(*TO_END, Transition("texts", "end")))), "bad_trigger", "a", "'texts' is no trigger"),
    (flow(a(on=(*TO_END, Transition("button:x", "end")))), "bad_trigger", "a", "button:x never comes"),
    (flow(a(on=(*TO_END, Transition("met:p", "end")))), "bad_trigger", "a", "met:p never comes"),
    (flow(a(on=(*TO_END, Transition("done:w", "end")))), "bad_trigger", "a", "done:w never comes"),
    (flow(a(on=(*TO_END, Transition("timeout", "end")))), "bad_trigger", "a", "timeout never comes"),
    (flow(a(on=(*TO_END, Transition("text", save=("x",))))), "bad_trigger", "a", "give one name"),
    (flow(a(), commands={"cancel": "end"}), "bad_trigger", None, "'cancel' is no command"),
    (flow(a(buttons=buttons(Button("Go")))), "bad_button", "a", "needs one of to, trigger and url"),
    (flow(a(buttons=buttons(Button("Go", "end", url="u")))), "bad_button", "a", "needs one of"),
    (flow(a(buttons=buttons(Button("Go", trigger="x")))), "bad_button", "a", "button:x: add one"),
    (flow(a(buttons=buttons(Button(" ", to="end")))), "bad_button", "a", "has no text"),
    (flow(a(say=None, buttons=buttons(Button("Go", to="end")))), "bad_button", "a", "says nothing"),
    (flow(a(say=" ", buttons=buttons(Button("Go", to="end")))), "bad_button", "a", "says nothing"),
    (flow(a(buttons=buttons(Button("Go", url="pay.example")))), "bad_button", "a", "begins with https://"),
    (flow(a(), otherwise="{nobody}?"), "missing_field", None, "{nobody} is never saved"),
    (flow(a(), expired="x" * 4_097), "too_long", None, "4,097 characters"),
    (flow(a(), stale="x" * 201), "too_long", None, "Telegram takes 200"),
    (flow(a(), arguments={"/z": "z"}), "bad_trigger", None, "/z is none of the commands"),
    (
        flow(a(on=(*TO_END, Transition("text", "b"))), State("b", say="B"), commands={"/start": "a"}),
        "dead_end",
        "b",
        "except to begin anew",
    ),
    (flow(a(), name="bücher"), "bad_name", None, "up to 32 letters"),
    (flow(a(), name="f" * 33), "bad_name", None, "up to 32 letters"),
    (flow(a(), a()), "bad_name", "a", "2 states have this name"),
    (flow(a(), lifetime=0), "bad_time", None, "lifetime is 0"),
    (flow(a(timeout=Timeout(0, to="end"))), "bad_time", "a", "timeout is 0"),
    (flow(a(timeout=Timeout(float("nan"), to="end"))), "bad_time", "a", "timeout is nan"),
    (flow(a(timeout=Timeout(5, say="Hm?", times=0))), "bad_time", "a", "0 times"),
    (flow(a(timeout=Timeout(5))), "bad_time", "a", "does nothing"),
    (
        flow(a(on=(Transition("text", "b"),)), State("b", final=True, on=TO_END)),
        "final_goes_on",
        "b",
        "ends here",
    ),
    (flow(a(say="Hi {nobody}")), "missing_field", "a", "{nobody} is never saved"),
    (flow(a(poll=Poll("p", "key", "end"))), "poll_key", "a", "not saved on every path"),
    (flow(a(on=(Transition("text", "end", guard="g"),))), "unknown_guard", "a", "no guard g"),
    (flow(a(buttons=buttons(Button("Go", to="end", guard="g")))), "unknown_guard", "a", "no guard g"),
    (flow(a(say="x" * 4_097)), "too_long", "a", "4,097 characters"),
    (flow(a(buttons=buttons(Button("x" * 65, to="end")))), "too_long", "a", "65 characters"),
    (
        flow(a(buttons=(tuple(Button(f"{n}", to="end") for n in range(9)),))),
        "too_long",
        "a",
        "a row has at most 8",
    ),
]


@pytest.mark.parametrize(("declared", "kind", "state", "told"), WRONG)
def test_a_mistake_is_found_and_named(declared: Flow, kind: str, state: str | None, told: str) -> None:
    problems = [problem for problem in declared.validate() if (problem.kind, problem.state) == (kind, state)]
    assert any(told in problem.text for problem in problems), declared.validate()


def test_names_of_works_and_polls_are_looked_at_where_they_are_known() -> None:
    declared = flow(a(run=Work("w", "end", "end"), poll=Poll("p", "key", "end")), given=("key",))
    assert found(declared) == []
    assert found(declared, works=["v"], polls=[]) == [("unknown_work", "a"), ("unknown_poll", "a")]
    assert "there are v" in declared.validate(works=["v"])[0].text


def test_a_poll_key_must_be_saved_on_every_way_not_only_on_one() -> None:
    ways = (Transition("text", "b", save="key"), Transition("/skip", "b"), *TO_END)
    polling = State("b", say="B", poll=Poll("p", "key", "end"))
    assert found(flow(a(on=ways), polling)) == [("poll_key", "b")]
    assert found(flow(a(on=ways[:1]), polling)) == []


def test_polls_may_have_keys_of_their_own() -> None:
    first = a(on=(Transition("text", "b", save="one"),))
    last = State("c", say="C", poll=Poll("q", "two", "end"))

    def second(**fields: Any) -> State:  # noqa: ANN401  (those of a transition)
        return State("b", say="B", poll=Poll("p", "one", "end"), on=(Transition("text", "c", **fields),))

    assert "poll_key" not in dict(found(flow(first, second(save="two"), last)))
    assert ("poll_key", "c") in found(flow(first, second(), last))


def test_a_field_saved_without_leaving_the_state_is_saved() -> None:
    note = Transition("text", save="note", say="Noted: {note}.")
    assert "missing_field" not in dict(found(flow(a(on=(note, *TO_END)))))


def test_the_argument_of_a_command_is_saved() -> None:
    commands = {"/go": "end"}
    assert "missing_field" in dict(found(flow(a(say="Code: {code}"), commands=commands)))
    saved = flow(a(say="Code: {code}"), commands=commands, arguments={"/go": "code"})
    assert "missing_field" not in dict(found(saved))


def test_a_poll_key_may_be_saved_by_a_button_with_a_trigger() -> None:
    pressed = a(buttons=buttons(Button("Go", trigger="go", save="key")), on=(Transition("button:go", "b"),))
    assert found(flow(pressed, State("b", say="B", poll=Poll("p", "key", "end")))) == []


def test_a_key_saved_in_a_loop_is_not_there_the_first_time() -> None:
    polling = a(poll=Poll("p", "key", "end"), on=(Transition("text", "a", save="key"),))
    assert found(flow(polling)) == [("poll_key", "a")]


def test_what_only_a_command_leads_to_is_reachable_and_can_be_left_by_one() -> None:
    assert found(flow(a(), State("help", say="Help"), commands={"/help": "help", "/bye": "end"})) == []


def test_an_endless_flow_is_sound_if_it_has_a_lifetime_and_no_end() -> None:
    loop = (
        State("a", say="A", on=(Transition("text", "b"),)),
        State("b", say="B", on=(Transition("text", "a"),)),
    )
    endless = Flow(name="f", initial="a", states=loop, lifetime=60)
    assert found(endless) == []
    assert found(Flow(name="f", initial="a", states=loop)) == [("never_ends", "a"), ("never_ends", "b")]


def test_a_silent_state_may_last_until_the_lifetime_is_over() -> None:
    human = State("human", say="A colleague reads this.", otherwise="")
    declared = flow(a(on=(*TO_END, Transition("text", "human"))), human, lifetime=60)
    assert found(declared) == []
    assert found(msgspec.structs.replace(declared, lifetime=None)) == [("dead_end", "human")]


@pytest.mark.parametrize("trigger", ["met:p", "done:w", "failed:w", "timeout"])
def test_a_states_own_way_for_an_outcome_is_not_ambiguous(trigger: str) -> None:
    outcomes = {
        "poll": Poll("p", "key", "end"),
        "run": Work("w", "end", "end"),
        "timeout": Timeout(5, to="end"),
    }
    declared = flow(a(on=(Transition(trigger, "end"),), **outcomes), given=("key",))
    assert found(declared) == []


def test_buttons_that_read_alike_in_one_language_are_ambiguous() -> None:
    texts = texts_of({"en": {"yes": "Yes", "sure": "Sure"}, "de": {"yes": "Ja", "sure": "Ja"}})
    two = buttons(Button("yes", to="end"), Button("sure", to="a"))
    declared = flow(a(buttons=two), texts=texts)
    assert [str(problem) for problem in declared.validate()] == [
        "a: 2 buttons read 'Ja': give each a text of its own"
    ]


@pytest.mark.parametrize(
    ("said", "is_key"), [("Welcome_text", True), ("Buttons.Buy", True), ("Hello", False)]
)
def test_a_key_that_is_in_no_language_is_found_also_with_capitals(said: str, *, is_key: bool) -> None:
    declared = flow(a(say=said), texts=texts_of({"en": {"hi": "Hi"}}))
    assert found(declared) == ([("missing_text", "a")] if is_key else [])


def test_a_first_way_with_a_guard_is_not_ambiguous() -> None:
    ways = (Transition("text", "end", guard="g"), Transition("text"))
    assert found(flow(a(on=ways), guards={"g": lambda *_: True})) == []


def test_two_buttons_that_do_the_same_are_not_ambiguous() -> None:
    assert found(flow(a(buttons=buttons(Button("Yes", to="end"), Button("Sure", to="end"))))) == []


def test_texts_are_looked_for_in_each_language() -> None:
    texts = texts_of({"en": {"hi": "Hi", "go": "Go"}, "de": {"hi": "Hallo {nobody}"}})
    declared = flow(a(say="hi", otherwise="not_there", buttons=buttons(Button("go", to="end"))), texts=texts)
    told = [str(problem) for problem in declared.validate()]
    assert told == [
        "a: {nobody} is never saved: save it on a transition, or list it in given ({{ is a brace)",
        "a: not_there is in no language of the texts: add it",
        "a: go has no text in de: add it to [de] of the texts",
    ]


def test_check_raises_one_error_that_lists_everything() -> None:
    with pytest.raises(BadInputError) as told:
        flow(a(on=()), State("b", say="B", on=TO_END)).check()
    assert str(told.value) == (
        "flow f cannot be used:"
        "\n- b: nothing leads here: add a transition to it, or remove it"
        "\n- end: nothing leads here: add a transition to it, or remove it"
        "\n- a: no transition leads out of it: add one, or make it final"
    )


def test_a_thousand_states_are_found_sound() -> None:
    states = [
        State(
            f"s{n}", say="{key}", on=(Transition("text", f"s{n + 1}", save="key"), Transition("/back", "s0"))
        )
        for n in range(1_000)
    ]
    last = State("s1000", final=True)
    assert found(Flow(name="f", initial="s0", states=(*states, last))) == []
