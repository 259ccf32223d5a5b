"""Flows that call flows: the states of a called flow are put into the caller's, below the calling state.

If the state `where` of a flow calls the flow `address`, there are the states `where` and `where/street`.
So a session is always in one state of one flow, and everything that holds for a flow holds for a nested one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tidegate.errors import BadInputError
from tidegate.flows.model import OTHERWISE, FlowState, Guard, Transition
from tidegate.flows.texts import Texts

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow

T = TypeVar("T")
SEPARATOR = "/"


class InnerState(msgspec.Struct, frozen=True):
    """A state of a called flow. `state`: its name there; `depth`: how many calls it is in."""

    caller: str
    state: str
    final: bool
    depth: int = 1


class Nesting(msgspec.Struct, frozen=True):
    """The inner states by their full names, and the inner state that each calling state leads to."""

    inner: dict[str, InnerState] = {}
    entries: dict[str, str] = {}

    def depth(self, state: str) -> int:
        inner = self.inner.get(state)
        return 0 if inner is None else inner.depth

    def final_of(self, state: str) -> InnerState | None:
        """The inner state with this name, if its flow ends there."""
        inner = self.inner.get(state)
        return inner if inner is not None and inner.final else None


def flatten(flow: "Flow", callers: tuple[int, ...] = ()) -> "Flow":
    """Return the flow with the states of the flows that it calls; one that calls none as it is.

    Raises BadInputError for a flow that calls itself. A call of an unknown flow is left as it is.
    """
    if flow.nesting is not None or all(state.call is None for state in flow.states):
        return flow
    if id(flow) in callers:
        raise BadInputError(
            f"flow {flow.name} calls itself, which would never end: use a state to go back to"
        )
    states: list[FlowState] = []
    parts = _Parts(dict(flow.guards), _texts_of(flow), {}, {})
    for state in flow.states:
        called = None if state.call is None else flow.flows.get(state.call.flow)
        if called is None:
            states.append(state)
        else:
            called = flatten(called, (*callers, id(flow)))
            states += [_with_outcomes(state, called), *parts.take_in(state.name, called)]
    return msgspec.structs.replace(
        flow,
        states=tuple(states),
        guards=parts.guards,
        texts=parts.texts(flow),
        nesting=Nesting(parts.inner, parts.entries),
    )


def _with_outcomes(state: FlowState, called: "Flow") -> FlowState:
    """A calling state with a transition for each end of the called flow."""
    call = state.call
    assert call is not None  # noqa: S101  (by its callers)
    known = {transition.trigger for transition in state.on if transition.guard is None}
    ends = [f"ended:{inner.name}" for inner in called.states if inner.final]
    added = [Transition(end, to=call.to, save=call.save) for end in ends if end not in known]
    return msgspec.structs.replace(state, on=(*state.on, *added))


class _Parts(msgspec.Struct):
    """Parts of the flat flow."""

    guards: dict[str, Guard]
    languages: dict[str, dict[str, str]]
    inner: dict[str, InnerState]
    entries: dict[str, str]

    def texts(self, flow: "Flow") -> Texts | None:
        if not self.languages:
            return None
        return Texts(
            self.languages, flow.texts.default if flow.texts is not None else next(iter(self.languages))
        )

    def take_in(self, caller: str, called: "Flow") -> Iterable[FlowState]:
        prefix = caller + SEPARATOR
        self.guards |= {prefix + name: guard for name, guard in called.guards.items()}
        for language, texts in _texts_of(called).items():
            self.languages.setdefault(language, {}).update(
                {prefix + key: text for key, text in texts.items()}
            )
        self.entries[caller] = prefix + called.initial
        deeper = called.nesting or Nesting()
        self.entries |= {prefix + name: prefix + entry for name, entry in deeper.entries.items()}
        for state in called.states:
            known = deeper.inner.get(state.name)
            self.inner[prefix + state.name] = (
                InnerState(caller, state.name, state.final)
                if known is None
                else InnerState(prefix + known.caller, known.state, known.final, known.depth + 1)
            )
            yield _inner_state(state, called, prefix)


def _texts_of(flow: "Flow") -> dict[str, dict[str, str]]:
    return {} if flow.texts is None else {name: dict(texts) for name, texts in flow.texts.languages.items()}


def _inner_state(state: FlowState, flow: "Flow", prefix: str) -> FlowState:
    """A state with the names of its flow as they are in the caller's."""

    def to(name: str | None) -> str | None:
        return None if name is None else prefix + name

    def text(said: str | None) -> str | None:
        known = said is not None and flow.texts is not None and flow.texts.has(said)
        return f"{prefix}{said}" if known else said

    def renamed(part: T, **fields: Callable[[Any], Any]) -> T:
        changed = {name: change(getattr(part, name)) for name, change in fields.items()}
        return msgspec.structs.replace(part, **changed)  # type: ignore[type-var]

    def optional(part: T | None, **fields: Callable[[Any], Any]) -> T | None:
        return None if part is None else renamed(part, **fields)

    def pressed(part: Any) -> Any:  # noqa: ANN401  (a button or a key)
        """Return it so that the value it saves stays the same: by itself, that is its text."""
        kept = (
            msgspec.structs.replace(part, value=part.saved_value)
            if part.save and part.value is None
            else part
        )
        links = {"url": text} if hasattr(part, "url") else {}
        return renamed(kept, text=text, to=to, guard=to, **links)

    on = [*state.on, *_commands(state, flow)]
    return msgspec.structs.replace(
        state,
        name=prefix + state.name,
        say=text(state.say),
        otherwise=text(_own_otherwise(flow) if state.otherwise is None else state.otherwise),
        in_place=state.in_place if state.in_place is not None or not flow.in_place else True,
        final=False,
        buttons=tuple(tuple(map(pressed, row)) for row in state.buttons),
        keys=tuple(tuple(map(pressed, row)) for row in state.keys),
        on=tuple(renamed(transition, to=to, guard=to, say=text) for transition in on),
        choices=optional(state.choices, to=to, guard=to, text=text, empty=text),
        poll=optional(state.poll, met=to, gone=to, reversed=to),
        timeout=optional(state.timeout, to=to, say=text),
        run=optional(state.run, done=to, failed=to),
        call=optional(state.call, to=to),
    )


def _own_otherwise(flow: "Flow") -> str | None:
    """None: the caller's."""
    return None if flow.otherwise == OTHERWISE else flow.otherwise


def _commands(state: FlowState, flow: "Flow") -> list[Transition]:
    """Commands of a called flow work within it, but for those that would begin it anew."""
    known: set[str] = {transition.trigger for transition in state.on if transition.guard is None}
    commands: Mapping[str, str] = {} if state.final else flow.commands
    return [
        Transition(command, to=target, save=flow.arguments.get(command, ()))
        for command, target in commands.items()
        if target != flow.initial and command not in known
    ]
