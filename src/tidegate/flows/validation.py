"""Everything that is wrong with a flow, found before it runs."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from tidegate.flows.graph import Graph
from tidegate.flows.problems import Problem
from tidegate.flows.state_checks import check_names, check_outcomes, check_times, check_triggers
from tidegate.flows.text_checks import check_buttons, check_flow_texts, check_texts
from tidegate.flows.triggers import ways_of

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow


def problems_of(
    flow: "Flow", *, works: Collection[str] | None = None, polls: Collection[str] | None = None
) -> list[Problem]:
    """In the order of the states; linear in the number of ways."""
    graph = Graph(flow)
    saved = graph.saved_anywhere()
    found = [*_of_the_whole(flow, graph), *check_flow_texts(flow, saved)]
    for state in flow.states:
        found += check_triggers(state)
        found += check_times(state)
        found += check_outcomes(flow, state, works=works, polls=polls)
        found += check_buttons(flow, state)
        found += check_texts(flow, state, saved)
    return found


def _of_the_whole(flow: "Flow", graph: Graph) -> Iterator[Problem]:
    yield from check_names(flow)
    yield from _targets(flow)
    if flow.initial not in flow.by_name:
        text = f"the initial state {flow.initial} is not among the states: add it, or name another"
        yield Problem("no_initial", None, text)
        return
    reachable = graph.reachable()
    for state in flow.states:
        if state.name not in reachable:
            text = "nothing leads here: add a way to it, or take it out"
            yield Problem("unreachable", state.name, text)
    yield from _ends(flow, graph)
    yield from _poll_keys(flow, graph)


def _targets(flow: "Flow") -> Iterator[Problem]:
    for command, target in flow.commands.items():
        if target not in flow.by_name:
            text = f"the command {command} leads to {target}, which is no state: add it, or name another"
            yield Problem("missing_target", None, text)
    for state in flow.states:
        targets = dict.fromkeys(way.to for way in ways_of(state) if way.to is not None)
        for target in (name for name in targets if name not in flow.by_name):
            text = f"a way leads to {target}, which is no state: add it, or name another"
            yield Problem("missing_target", state.name, text)


def _ends(flow: "Flow", graph: Graph) -> Iterator[Problem]:
    can_end = graph.can_end()
    # One that has no end and says after which time it is forgotten was meant so.
    endless = flow.lifetime is not None and not any(state.final for state in flow.states)
    anew = ", but to begin anew" if any(map(flow.begins_with, flow.commands)) else ""
    for state in flow.states:
        if flow.lifetime is not None and state.otherwise == "":
            continue  # it is silent until its time is over: somebody else has taken over
        if not state.final and not graph.has_way_out(state.name):
            text = f"no way leads out of it{anew}: add one, or make it final"
            yield Problem("dead_end", state.name, text)
        elif state.name not in can_end and not endless:
            text = (
                "no final state can be reached from here: add a way to one, or a lifetime to an endless flow"
            )
            yield Problem("never_ends", state.name, text)


def _poll_keys(flow: "Flow", graph: Graph) -> Iterator[Problem]:
    keys = {state.name: state.poll.key for state in flow.states if state.poll is not None}
    for name in graph.unsure_of(keys):
        text = (
            f"it polls for {keys[name]}, which is not saved on every way here:"
            " save it on the way, or list it in given if a session has it from the beginning"
        )
        yield Problem("poll_key", name, text)
