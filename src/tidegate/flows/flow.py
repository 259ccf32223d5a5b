"""A declared conversation: its states, and what holds in all of them."""

from collections.abc import Collection, Mapping
from functools import cached_property

import msgspec

from tidegate.errors import BadInputError
from tidegate.flows.diagram import draw
from tidegate.flows.model import Guard, State, Transition, transitions_of
from tidegate.flows.texts import Texts
from tidegate.flows.validation import Problem, problems_of
from tidegate.templates import ParseMode

OTHERWISE = "Please use the buttons."
EXPIRED = "This conversation has expired. Please start again."
STALE = "That button is no longer in use."
DEFAULT_TEXTS = frozenset((OTHERWISE, EXPIRED, STALE))


class Flow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Immutable. Whatever it says is a key of its texts, or a text.

    `commands` work in every state; one that leads to the initial state begins a session where there is none.
    `arguments`: of these commands, the fields that what is written behind them is kept in.
    `lifetime`: seconds after it last entered a state at which a session ends. `given`: fields of the data
    that a session has from the beginning.
    """

    name: str
    initial: str
    states: tuple[State, ...]
    commands: dict[str, str] = {}
    arguments: dict[str, str] = {}
    lifetime: float | None = None
    otherwise: str = OTHERWISE
    expired: str = EXPIRED
    stale: str = STALE
    parse_mode: ParseMode | None = None
    given: tuple[str, ...] = ()
    guards: Mapping[str, Guard] = {}
    texts: Texts | None = None

    @cached_property
    def by_name(self) -> Mapping[str, State]:
        return {state.name: state for state in self.states}

    @cached_property
    def ways(self) -> Mapping[str, Mapping[str, tuple[Transition, ...]]]:
        """By state and trigger, in the order they are tried. The flow's own commands are not among them."""
        return {state.name: _by_trigger(transitions_of(state)) for state in self.states}

    def begins_with(self, command: str) -> bool:
        """Whether it begins a session where there is none."""
        return self.commands.get(command) == self.initial

    def text(self, said: str, language: str | None = None) -> str:
        """What a key means in a language; a text means itself."""
        found = self.texts.find(said, language) if self.texts is not None else None
        return said if found is None else found

    def validate(
        self, *, works: Collection[str] | None = None, polls: Collection[str] | None = None
    ) -> list[Problem]:
        """Everything that is wrong with it. `works`, `polls`: the names there are; None: not known here."""
        return problems_of(self, works=works, polls=polls)

    def check(self, *, works: Collection[str] | None = None, polls: Collection[str] | None = None) -> None:
        """Raises BadInputError that lists every problem."""
        problems = self.validate(works=works, polls=polls)
        if problems:
            listed = "".join(f"\n- {problem}" for problem in problems)
            raise BadInputError(f"flow {self.name} cannot be used:{listed}")

    def diagram(self) -> str:
        """As a Mermaid state diagram."""
        return draw(self)


def _by_trigger(ways: list[Transition]) -> Mapping[str, tuple[Transition, ...]]:
    alike: dict[str, list[Transition]] = {}
    for way in ways:
        alike.setdefault(way.trigger, []).append(way)
    return {trigger: tuple(among) for trigger, among in alike.items()}
