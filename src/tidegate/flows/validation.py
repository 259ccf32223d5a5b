"""Finds everything that is wrong with a flow before it runs."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from tidegate.errors import BadInputError
from tidegate.flows.call_validation import check_call
from tidegate.flows.graph import Graph
from tidegate.flows.message_validation import check_flow_texts, check_messages
from tidegate.flows.model import (
    CONTENTS,
    OUTCOMES,
    FlowState,
    Transition,
    transitions_of,
    trigger_kind,
    trigger_name,
)
from tidegate.flows.nesting import SEPARATOR
from tidegate.flows.problem import Problem, known_names

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow

_FLOW_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


def problems_of(
    flow: "Flow",
    *,
    works: Collection[str] | None = None,
    polls: Collection[str] | None = None,
    files: bool = True,
) -> list[Problem]:
    """Return all problems, in the order of the states. Linear in the number of transitions."""
    try:
        flat = flow.flat
    except BadInputError as error:
        return [Problem("bad_call", None, str(error))]
    saved = Graph(flow).saved_anywhere()
    found = [*_check_flow(flat, Graph(flat)), *check_flow_texts(flow, saved)]
    for place, of_flow, state, fields in _all_states(flow, "", saved):
        problems = [
            *check_triggers(state),
            *check_times(state),
            *check_outcomes(of_flow, state, works=works, polls=polls),
            *check_call(of_flow, state, fields),
            *check_messages(of_flow, state, fields, files=files),
        ]
        found += [Problem(one.kind, place + state.name, one.text) for one in problems]
    return found


def _all_states(
    flow: "Flow", place: str, saved: Collection[str]
) -> Iterator[tuple[str, "Flow", FlowState, Collection[str]]]:
    """The states of a flow and of those that it calls, as they are declared, with the fields they can use."""
    for state in flow.states:
        yield place, flow, state, saved
        called = None if state.call is None else flow.flows.get(state.call.flow)
        if called is not None:
            known = Graph(called).saved_anywhere().union(saved)
            yield from _all_states(called, f"{place}{state.name}{SEPARATOR}", known)


def _check_flow(flow: "Flow", graph: Graph) -> Iterator[Problem]:
    yield from check_names(flow)
    yield from _check_targets(flow)
    if flow.initial not in flow.by_name:
        text = f"the initial state {flow.initial} is not among the states: add it, or name another"
        yield Problem("no_initial", None, text)
        return
    reachable = graph.reachable()
    for state in flow.states:
        if state.name not in reachable:
            text = "nothing leads here: add a transition to it, or remove it"
            yield Problem("unreachable", state.name, text)
    yield from _check_ends(flow, graph)
    yield from _check_poll_keys(flow, graph)


def _check_targets(flow: "Flow") -> Iterator[Problem]:
    for command, target in flow.commands.items():
        if target not in flow.by_name:
            text = f"the command {command} leads to {target}, which is no state: add it, or name another"
            yield Problem("missing_target", None, text)
    for state in flow.states:
        targets = dict.fromkeys(
            transition.to for transition in transitions_of(state) if transition.to is not None
        )
        for target in (name for name in targets if name not in flow.by_name):
            text = f"a transition leads to {target}, which is no state: add it, or name another"
            yield Problem("missing_target", state.name, text)


def _check_ends(flow: "Flow", graph: Graph) -> Iterator[Problem]:
    can_end = graph.can_end()
    # An endless flow with a lifetime was meant so.
    endless = flow.lifetime is not None and not any(state.final for state in flow.states)
    anew = ", except to begin anew" if any(map(flow.begins_with, flow.commands)) else ""
    for state in flow.states:
        if state.call is not None and state.call.flow not in flow.flows:
            continue  # it is not known where it leads
        if flow.lifetime is not None and state.otherwise == "":
            continue  # silent until its lifetime is over: somebody else has taken over
        if not state.final and not graph.has_exit(state.name):
            text = f"no transition leads out of it{anew}: add one, or make it final"
            yield Problem("dead_end", state.name, text)
        elif state.name not in can_end and not endless:
            text = "no final state can be reached from here: add a transition to one, or a lifetime"
            yield Problem("never_ends", state.name, text)


def _check_poll_keys(flow: "Flow", graph: Graph) -> Iterator[Problem]:
    keys = {state.name: state.poll.key for state in flow.states if state.poll is not None}
    for name in graph.reached_without(keys):
        text = (
            f"it polls for {keys[name]}, which is not saved on every path to it:"
            " save it on each, or list it in given if a session has it from the beginning"
        )
        yield Problem("poll_key", name, text)


def check_names(flow: "Flow") -> Iterator[Problem]:
    """Check the names of a flat flow. Its name is in the data of each button, which has room for 64 bytes."""
    if not _FLOW_NAME.fullmatch(flow.name):
        text = f"the name {flow.name!r} cannot be used: take up to 32 letters, digits, _ and -"
        yield Problem("bad_name", None, text)
    for name, times in Counter(state.name for state in flow.states).items():
        if times > 1:
            yield Problem("bad_name", name, f"{times} states have this name: give each its own")
        if not name.strip():
            yield Problem("bad_name", name, "a state has no name: give it one")
    for command in flow.commands:
        if trigger_kind(command) != "command":
            text = f"{command!r} is no command: write a slash, then letters, digits and _, such as /cancel"
            yield Problem("bad_trigger", None, text)
    for command in flow.arguments:
        if command not in flow.commands:
            text = f"{command} is none of the commands, so its argument is never kept: add it to them"
            yield Problem("bad_trigger", None, text)
    if flow.lifetime is not None and not _is_time(flow.lifetime):
        text = f"the lifetime is {flow.lifetime}: give seconds above 0, or None"
        yield Problem("bad_time", None, text)


def check_triggers(state: FlowState) -> Iterator[Problem]:
    if state.final and (state.on or state.poll or state.timeout or state.run or _has_target_buttons(state)):
        text = "a session ends here, so nothing can follow: remove what does, or final"
        yield Problem("final_goes_on", state.name, text)
    for transition in state.on:
        if (wrong := _trigger_problem(state, transition)) is not None:
            yield Problem("bad_trigger", state.name, wrong)
    unguarded: set[str] = set()
    for transition in transitions_of(state):
        if transition.trigger in unguarded:
            label = _trigger_label(transition)
            text = (
                f"{label} has a transition after one without a guard, so it is never taken: guard the first"
            )
            yield Problem("ambiguous", state.name, text)
        elif transition.guard is None:
            unguarded.add(transition.trigger)


def check_times(state: FlowState) -> Iterator[Problem]:
    timeout = state.timeout
    if timeout is None:
        return
    if not _is_time(timeout.seconds):
        yield Problem("bad_time", state.name, f"its timeout is {timeout.seconds}: give seconds above 0")
    if timeout.say is not None and timeout.times < 1:
        text = f"its timeout speaks {timeout.times} times: give 1 or more"
        yield Problem("bad_time", state.name, text)
    if timeout.say is None and not any(
        transition.trigger == "timeout" for transition in transitions_of(state)
    ):
        text = "its timeout does nothing: give it say, or a state to go to"
        yield Problem("bad_time", state.name, text)


def check_outcomes(
    flow: "Flow", state: FlowState, *, works: Collection[str] | None, polls: Collection[str] | None
) -> Iterator[Problem]:
    """Check the names of guards, works and polls."""
    for guard in state.guards():
        if guard not in flow.guards:
            text = f"there is no guard {guard}: give the flow a function of this name"
            yield Problem("unknown_guard", state.name, text)
    if state.run is not None and works is not None and state.run.name not in works:
        yield Problem("unknown_work", state.name, f"there is no work {state.run.name}: {known_names(works)}")
    if state.poll is not None and polls is not None and state.poll.name not in polls:
        yield Problem("unknown_poll", state.name, f"there is no poll {state.poll.name}: {known_names(polls)}")


def _trigger_problem(state: FlowState, transition: Transition) -> str | None:
    kind, name = trigger_kind(transition.trigger), trigger_name(transition.trigger)
    if kind is None:
        outcomes, contents = ", ".join(f"{word}:NAME" for word in OUTCOMES), ", ".join(sorted(CONTENTS))
        sources = f"button:NAME, item:FIELD, signal:NAME, timeout, {outcomes}"
        known = f"text, a /command, {sources}, or one of {contents}"
        return f"{transition.trigger!r} is no trigger: write {known}"
    if not _can_come(state, kind, name):
        return f"{transition.trigger} never comes in this state: give it a source, or remove it"
    if kind in {"text", "command", "button"} and not isinstance(transition.save, str) and transition.save:
        return f"{transition.trigger} brings one value, and save names fields of a table: give one name"
    return None


def _can_come(state: FlowState, kind: str, name: str) -> bool:
    poll = state.poll.name if state.poll is not None else None
    run = state.run.name if state.run is not None else None
    listed = state.choices.field if state.choices is not None else None
    match kind:
        case "button":
            comes = any(button.trigger == name for button in state.all_buttons())
        case "met" | "gone" | "reversed":
            comes = poll == name
        case "done" | "failed":
            comes = run == name
        case "item":
            comes = listed == name
        case "ended":
            comes = state.call is not None
        case "timeout":
            comes = state.timeout is not None
        case _:
            comes = True
    return comes


def _has_target_buttons(state: FlowState) -> bool:
    leads = state.choices is not None or bool(state.all_keys())
    return leads or any(button.url is None for button in state.all_buttons())


def _trigger_label(transition: Transition) -> str:
    kind, _, code = transition.trigger.partition("#")
    return f"a {kind}" if code else transition.trigger


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds > 0
