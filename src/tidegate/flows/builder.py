"""A flow in Python, state by state.

flow = FlowBuilder("payment", lifetime=86_400)
flow.command("/cancel", to="cancelled")
flow.state("start", say="Welcome!").button("Buy", to="ordering")
flow.state("ordering").run("create_order", done="waiting", failed="sorry", save="order_id")
…
payment = flow.build()
"""

from collections.abc import Callable
from typing import Any, Self, TypeVar

import msgspec

from tidegate.errors import BadInputError
from tidegate.flows.flow import EXPIRED, OTHERWISE, STALE, Flow
from tidegate.flows.model import (
    Button,
    FlowState,
    Guard,
    Poll,
    Save,
    Timeout,
    Transition,
    Work,
)
from tidegate.flows.texts import Texts
from tidegate.templates import ParseMode

G = TypeVar("G", bound=Callable[..., bool])


class StateBuilder:
    """Each method adds to the state and returns the builder."""

    def __init__(self, state: FlowState) -> None:
        self.state = state

    def button(
        self,
        text: str,
        to: str | None = None,
        *,
        trigger: str | None = None,
        url: str | None = None,
        guard: str | None = None,
        save: str | None = None,
        value: str | None = None,
        beside: bool = False,
    ) -> Self:
        """Add a button in a new row, or `beside` the one before."""
        button = Button(text, to, trigger, url, guard, save, value)
        rows = self.state.buttons
        last = rows[-1] if beside and rows else ()
        return self._with(buttons=(*(rows[:-1] if last else rows), (*last, button)))

    def on(
        self,
        trigger: str,
        to: str | None = None,
        *,
        guard: str | None = None,
        save: Save = (),
        say: str | None = None,
    ) -> Self:
        """Add a transition. Without `to` the session stays in the state."""
        return self._with(on=(*self.state.on, Transition(trigger, to, guard, save, say)))

    def poll(
        self,
        name: str,
        *,
        key: str,
        met: str,
        gone: str | None = None,
        reversed: str | None = None,  # noqa: A002
    ) -> Self:
        return self._with(poll=Poll(name, key, met, gone, reversed))

    def timeout(
        self, seconds: float, *, to: str | None = None, say: str | None = None, times: int = 1
    ) -> Self:
        return self._with(timeout=Timeout(seconds, to, say, times))

    def run(self, name: str, *, done: str, failed: str, save: Save = ()) -> Self:
        return self._with(run=Work(name, done, failed, save))

    def _with(self, **fields: Any) -> Self:  # noqa: ANN401  (those of a state)
        self.state = msgspec.structs.replace(self.state, **fields)
        return self


class FlowBuilder:
    """The first state is the initial one, unless `initial` names another."""

    def __init__(
        self,
        name: str,
        *,
        initial: str | None = None,
        lifetime: float | None = None,
        otherwise: str = OTHERWISE,
        expired: str = EXPIRED,
        stale: str = STALE,
        parse_mode: ParseMode | None = None,
        given: tuple[str, ...] = (),
        texts: Texts | None = None,
    ) -> None:
        self._flow = Flow(
            name=name,
            initial=initial or "",
            states=(),
            lifetime=lifetime,
            otherwise=otherwise,
            expired=expired,
            stale=stale,
            parse_mode=parse_mode,
            given=given,
            texts=texts,
        )
        self._states: list[StateBuilder] = []
        self._commands: dict[str, str] = {}
        self._arguments: dict[str, str] = {}
        self._guards: dict[str, Guard] = {}

    def command(self, name: str, *, to: str, save: str | None = None) -> Self:
        """Add a command for every state that has no transition of its own for it. `save`: the field for its
        argument, such as that of a link `t.me/bot?start=promo7`.
        """
        self._commands[name] = to
        if save is not None:
            self._arguments[name] = save
        return self

    def state(self, name: str, *, say: str | None = None, otherwise: str | None = None) -> StateBuilder:
        self._states.append(StateBuilder(FlowState(name, say, otherwise=otherwise)))
        return self._states[-1]

    def final(self, name: str, *, say: str | None = None) -> StateBuilder:
        self._states.append(StateBuilder(FlowState(name, say, final=True)))
        return self._states[-1]

    def guard(self, function: G) -> G:
        """Add a guard, as a decorator. It has the function's name."""
        self._guards[function.__name__] = function
        return function

    def build(self) -> Flow:
        """Raises BadInputError that lists everything that is wrong with the flow."""
        flow = self.build_unchecked()
        flow.check()
        return flow

    def build_unchecked(self) -> Flow:
        states = tuple(builder.state for builder in self._states)
        if not states:
            raise BadInputError(f"flow {self._flow.name} has no states: add one with .state(name)")
        return msgspec.structs.replace(
            self._flow,
            initial=self._flow.initial or states[0].name,
            states=states,
            commands=dict(self._commands),
            arguments=dict(self._arguments),
            guards=dict(self._guards),
        )
