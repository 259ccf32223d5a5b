"""A flow: a declared conversation with its states, commands, texts and limits."""

from collections.abc import Collection, Mapping
from functools import cached_property

import msgspec

from tidegate.errors import BadInputError
from tidegate.flows.diagram import draw
from tidegate.flows.drawing import draw_svg
from tidegate.flows.model import OTHERWISE, FlowState, Guard, Transition, transitions_of
from tidegate.flows.nesting import Nesting, flatten
from tidegate.flows.problem import Problem
from tidegate.flows.texts import Texts
from tidegate.flows.validation import problems_of
from tidegate.templates import ParseMode

EXPIRED = "This conversation has expired. Please start again."
STALE = "That button is no longer in use."
DEFAULT_TEXTS = frozenset((OTHERWISE, EXPIRED, STALE))


class Flow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Immutable. Everything that it says is a key of its texts, or a literal text.

    `commands` work in every state; one that leads to the initial state begins a session where there is none.
    `arguments` maps commands to the fields in which their arguments are saved. A session ends `lifetime`
    seconds after it last entered a state. `in_place`: a state that a button leads to changes the message with
    the button, unless it says otherwise. `given`: the fields that a session has from the beginning.
    `flows`: those that states call, by name; `nesting`: how the states of a flat flow belong together.
    """

    name: str
    initial: str
    states: tuple[FlowState, ...]
    commands: dict[str, str] = {}
    arguments: dict[str, str] = {}
    lifetime: float | None = None
    otherwise: str = OTHERWISE
    expired: str = EXPIRED
    stale: str = STALE
    parse_mode: ParseMode | None = None
    in_place: bool = False
    given: tuple[str, ...] = ()
    guards: Mapping[str, Guard] = {}
    texts: Texts | None = None
    flows: Mapping[str, "Flow"] = {}
    nesting: Nesting | None = None

    @cached_property
    def flat(self) -> "Flow":
        """This flow with the states of the flows that it calls. Raises BadInputError if it calls itself."""
        return flatten(self)

    @cached_property
    def by_name(self) -> Mapping[str, FlowState]:
        return {state.name: state for state in self.states}

    @cached_property
    def transitions(self) -> Mapping[str, Mapping[str, tuple[Transition, ...]]]:
        """By state and trigger, in the order of trial. The flow's commands are not among them."""
        return {state.name: _by_trigger(transitions_of(state)) for state in self.states}

    def begins_with(self, command: str) -> bool:
        """Return whether this command begins a session where there is none."""
        return self.commands.get(command) == self.initial

    def text(self, key: str, language: str | None = None) -> str:
        """Return the text of a key in a language. A text that is no key is returned as it is."""
        found = self.texts.find(key, language) if self.texts is not None else None
        return key if found is None else found

    def validate(
        self,
        *,
        works: Collection[str] | None = None,
        polls: Collection[str] | None = None,
        files: bool = True,
    ) -> list[Problem]:
        """Return everything that is wrong. `works`, `polls`: the names that exist; None: not checked.

        `files`: whether to look for the files that states show.
        """
        return problems_of(self, works=works, polls=polls, files=files)

    def check(
        self,
        *,
        works: Collection[str] | None = None,
        polls: Collection[str] | None = None,
        files: bool = True,
    ) -> None:
        """Raises BadInputError that lists every problem."""
        problems = self.validate(works=works, polls=polls, files=files)
        if problems:
            listed = "".join(f"\n- {problem}" for problem in problems)
            raise BadInputError(f"flow {self.name} cannot be used:{listed}")

    def diagram(self) -> str:
        """Return the flow as a Mermaid state diagram."""
        return draw(self)

    def svg(self, counts: Mapping[str, int] | None = None) -> str:
        """Return the flow as an SVG picture; `counts`: how many people are in each state."""
        return draw_svg(self, counts)


def _by_trigger(transitions: list[Transition]) -> Mapping[str, tuple[Transition, ...]]:
    grouped: dict[str, list[Transition]] = {}
    for transition in transitions:
        grouped.setdefault(transition.trigger, []).append(transition)
    return {trigger: tuple(among) for trigger, among in grouped.items()}
