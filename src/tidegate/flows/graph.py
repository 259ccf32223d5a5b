"""The graph of a flow's states: reachability, and saved fields. All linear in the number of transitions."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidegate.flows.model import FlowState, Transition, press_trigger, transitions_of

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow


class Edge(NamedTuple):
    source: str
    target: str
    saves: frozenset[str]
    anew: bool = False  # a command that also begins sessions
    moves: bool = True  # a session can go this way, in one step
    keeps: bool = True  # the data that the source has are there in the target, too


class Graph:
    """The states that exist; a transition to a missing state is left out."""

    def __init__(self, flow: "Flow") -> None:
        self._flow = flow
        self._out: dict[str, list[Edge]] = defaultdict(list)
        self._into: dict[str, list[Edge]] = defaultdict(list)
        for edge in _edges(flow):
            self._out[edge.source].append(edge)
            self._into[edge.target].append(edge)

    def has_exit(self, state: str) -> bool:
        """A command that begins anew is no exit."""
        return any(edge.target != state and edge.moves and not edge.anew for edge in self._out[state])

    def reachable(self) -> set[str]:
        return self._spread([self._flow.initial], self._out, forward=True)

    def can_end(self) -> set[str]:
        """The states from which a final one can be reached."""
        finals = [state.name for state in self._flow.states if state.final]
        return self._spread(finals, self._into, forward=False)

    def saved_anywhere(self) -> set[str]:
        stays = (saved_names(transition.save) for state in self._flow.states for transition in state.on)
        calls = (saved_names(state.call.save) for state in self._flow.states if state.call is not None)
        moves = (edge.saves for edges in self._out.values() for edge in edges)
        return set(self._flow.given).union(*stays, *calls, *moves)

    def reached_without(self, needs: Mapping[str, str]) -> list[str]:
        """Return the states, among these, that can be reached without the field that they need."""
        bits = {field: 1 << place for place, field in enumerate(dict.fromkeys(needs.values()))}
        known = {self._flow.initial: _mask(bits, self._flow.given)}
        waiting = deque(known)
        while waiting:
            state = waiting.popleft()
            for edge in (edge for edge in self._out[state] if edge.keeps):
                saved = known[state] | _mask(bits, edge.saves)
                # A state is visited again only if this path has saved less than all paths before.
                if (now := known.get(edge.target, saved) & saved) != known.get(edge.target):
                    known[edge.target] = now
                    waiting.append(edge.target)
        return [state for state, field in needs.items() if state in known and not known[state] & bits[field]]

    @staticmethod
    def _spread(start: Iterable[str], edges: Mapping[str, list[Edge]], *, forward: bool) -> set[str]:
        found = set(start)
        waiting = list(found)
        while waiting:
            for edge in (edge for edge in edges.get(waiting.pop(), ()) if edge.moves):
                beyond = edge.target if forward else edge.source
                if beyond not in found:
                    found.add(beyond)
                    waiting.append(beyond)
        return found


def saved_names(save: str | tuple[str, ...] | None) -> frozenset[str]:
    return frozenset((save,) if isinstance(save, str) else save or ())


def _edges(flow: "Flow") -> Iterable[Edge]:
    yield from _nested_edges(flow)
    for state in flow.states:
        for transition in transitions_of(state):
            if transition.to is not None and transition.to in flow.by_name:
                saved = saved_names(transition.save) | _saved_by_buttons(state, transition)
                yield Edge(state.name, transition.to, saved, moves=state.call is None)
        if not state.final:
            for command, target in flow.commands.items():
                if target in flow.by_name:
                    saves = saved_names(flow.arguments.get(command))
                    yield Edge(state.name, target, saves, flow.begins_with(command))


def _nested_edges(flow: "Flow") -> Iterable[Edge]:
    """From a calling state into the flow that it calls, and from its ends to what follows the call there."""
    nesting = flow.nesting
    if nesting is None:
        return
    for caller, entry in nesting.entries.items():
        yield Edge(caller, entry, frozenset())
    for name, inner in nesting.inner.items():
        followers = flow.transitions[inner.caller].get(f"ended:{inner.state}", ()) if inner.final else ()
        for transition in followers:
            if transition.to in flow.by_name:
                yield Edge(name, str(transition.to), frozenset(), keeps=False)


def _saved_by_buttons(state: FlowState, transition: Transition) -> frozenset[str]:
    if not transition.trigger.startswith("button:"):
        return frozenset()
    savers = [
        saved_names(button.save)
        for button in state.all_buttons()
        if press_trigger(button) == transition.trigger
    ]
    return frozenset.intersection(*savers) if savers else frozenset()


def _mask(bits: Mapping[str, int], fields: Iterable[str]) -> int:
    return sum(bits[field] for field in set(fields) if field in bits)
