"""A flow as a picture."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tidegate.flows import Button, Flow, State, Transition
from unit.flows.talk import shop

LABEL = r'[^:;"\n]*(#\d+;[^:;"\n]*)*'
PLACE = r"(\[\*\]|s\d+)"
LINE = re.compile(rf'stateDiagram-v2| {{4}}(%% .*|state "[^"\n]*" as s\d+|{PLACE} --> {PLACE}( : {LABEL})?)')


def test_the_shop_is_drawn_with_its_guards_timeouts_polls_and_ends() -> None:
    assert (
        shop().build().diagram()
        == """\
stateDiagram-v2
    %% shop
    state "start" as s0
    state "email" as s1
    state "ordering, runs create_order" as s2
    state "waiting, polls payment by order_id" as s3
    state "paid" as s4
    state "sorry" as s5
    state "cancelled" as s6
    [*] --> s0
    s0 --> s0 : button help
    s0 --> s1 : contact
    s0 --> s1 : [Tea]
    s0 --> s1 : [Coffee] if is_open
    s1 --> s2 : text if has_at
    s1 --> s2 : /skip
    s2 --> s3 : done create_order
    s2 --> s5 : failed create_order
    s3 --> s5 : signal refused
    s3 --> s6 : [Cancel]
    s3 --> s4 : met payment
    s3 --> s5 : gone payment
    s3 --> s6 : after 2700 s
    s3 --> s3 : nudge after 900 s, 2 times
    s4 --> [*]
    s5 --> [*]
    s6 --> [*]
    note right of s0
        everywhere: /start leads to start, /cancel leads to cancelled, ends after 86400 s
    end note
"""
    )


@given(st.text(), st.text(), st.text())
def test_no_name_can_break_the_picture(name: str, button: str, guard: str) -> None:
    state = State(name, "Hi", ((Button(button, to="b"),),), (Transition("signal:" + name, "b", guard=guard),))
    drawn = Flow(name="f", initial=name, states=(state, State("b", final=True))).diagram()
    assert all(LINE.fullmatch(line) for line in drawn.split("\n") if line), drawn


def test_a_way_to_nowhere_is_left_out() -> None:
    drawn = Flow(name="f", initial="z", states=(State("a", on=(Transition("text", "z"),)),)).diagram()
    assert "-->" not in drawn
