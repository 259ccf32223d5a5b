"""Finds what is wrong with states that call other flows."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from tidegate.flows.graph import Graph, saved_names
from tidegate.flows.model import FlowState, trigger_kind, trigger_name
from tidegate.flows.problem import Problem, known_names

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow


def check_call(flow: "Flow", state: FlowState, saved: Collection[str]) -> Iterator[Problem]:
    if (call := state.call) is None:
        return
    parts = (state.buttons, state.keys, state.choices, state.poll, state.run, state.timeout, state.final)
    if any(parts) or any(trigger_kind(one.trigger) != "ended" for one in state.on):
        text = "it calls a flow, so it can say something and do nothing else: use a state before or after it"
        yield Problem("bad_call", state.name, text)
    if (called := flow.flows.get(call.flow)) is None:
        text = f"there is no flow {call.flow} to call: {known_names(flow.flows)}"
        yield Problem("unknown_flow", state.name, text)
        return
    yield from _check_called(flow, state, called)
    for field in called.given:
        if field not in saved:
            text = f"the flow {called.name} needs {field}, which is never saved: save it, or list it in given"
            yield Problem("missing_field", state.name, text)
    for field in saved_names(call.save) if not isinstance(call.save, str) else ():
        if field not in Graph(called).saved_anywhere():
            text = f"the flow {called.name} never saves {field}: correct the name, or leave it out"
            yield Problem("missing_field", state.name, text)


def _check_called(flow: "Flow", state: FlowState, called: "Flow") -> Iterator[Problem]:
    finals = {one.name for one in called.states if one.final}
    for transition in state.on:
        if trigger_kind(transition.trigger) == "ended" and trigger_name(transition.trigger) not in finals:
            ends = ", ".join(sorted(finals))
            text = f"{transition.trigger} never comes: the flow {called.name} ends in {ends}"
            yield Problem("bad_trigger", state.name, text)
    if called.parse_mode != flow.parse_mode:
        text = f"the flow {called.name} has another parse_mode: {called.parse_mode}, not {flow.parse_mode}"
        yield Problem("bad_call", state.name, text)
    if called.initial in finals:
        text = f"the flow {called.name} ends in its initial state, so it does nothing: remove the call"
        yield Problem("bad_call", state.name, text)
