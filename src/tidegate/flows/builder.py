"""A flow in Python, state by state.

flow = FlowBuilder("payment", lifetime=86_400)
flow.command("/cancel", to="cancelled")
flow.state("start", say="Welcome!").button("Buy", to="ordering")
flow.state("ordering").run("create_order", done="waiting", failed="sorry", save="order_id")
…
payment = flow.build()
"""

from collections.abc import Callable
from os import PathLike, fspath
from typing import Any, Self, TypeVar

import msgspec

from tidegate.errors import BadInputError
from tidegate.flows.declaration import check_types
from tidegate.flows.flow import EXPIRED, STALE, Flow
from tidegate.flows.model import (
    OTHERWISE,
    Button,
    Call,
    Choices,
    FlowState,
    Guard,
    Key,
    KeyRequest,
    Media,
    MediaKind,
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

    def __init__(self, state: FlowState, flows: dict[str, Flow]) -> None:
        self.state = state
        self._flows = flows

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

    def choose(
        self,
        field: str,
        to: str | None = None,
        *,
        text: str = "{item}",
        guard: str | None = None,
        save: Save = (),
        page: int = 8,
        columns: int = 1,
        empty: str | None = None,
    ) -> Self:
        """Show a button for each item of the list that is saved as `field`, `page` of them at a time."""
        return self._once(choices=Choices(field, to, text, guard, save, page, columns, empty))

    def key(
        self,
        text: str,
        to: str | None = None,
        *,
        request: KeyRequest | None = None,
        guard: str | None = None,
        save: Save = (),
        value: str | None = None,
        beside: bool = False,
    ) -> Self:
        """Add a key to the keyboard below the chat, in a new row or `beside` the one before. It writes its
        text for the user, or shares the user's own contact or location.
        """
        key = Key(text, to, request, guard, save, value)
        rows = self.state.keys
        last = rows[-1] if beside and rows else ()
        return self._with(keys=(*(rows[:-1] if last else rows), (*last, key)))

    def photo(self, file: str | PathLike[str] | None = None, *, id: str | None = None) -> Self:  # noqa: A002
        """Show a photo with the text: a file on disk, or one that Telegram has or fetches by its address."""
        return self.media("photo", file, id=id)

    def document(self, file: str | PathLike[str] | None = None, *, id: str | None = None) -> Self:  # noqa: A002
        return self.media("document", file, id=id)

    def media(
        self,
        kind: MediaKind,
        file: str | PathLike[str] | None = None,
        *,
        id: str | None = None,  # noqa: A002  (Telegram's word)
    ) -> Self:
        """Show a photo, document, video, audio or animation. Two and more are an album."""
        if not isinstance(file, str | PathLike | None):
            raise BadInputError(
                f"state {self.state.name}: a {kind} is shown from a file on disk: give its path, not"
                f" {type(file).__name__}"
            )
        media = Media(kind, None if file is None else fspath(file), id)
        return self._with(media=(*self.state.media, media))

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
        return self._once(poll=Poll(name, key, met, gone, reversed))

    def timeout(
        self, seconds: float, *, to: str | None = None, say: str | None = None, times: int = 1
    ) -> Self:
        return self._once(timeout=Timeout(seconds, to, say, times))

    def run(self, name: str, *, done: str, failed: str, save: Save = ()) -> Self:
        return self._once(run=Work(name, done, failed, save))

    def call(self, flow: Flow, *, to: str, save: Save = ()) -> Self:
        """Run another flow, and go on to `to` when it has ended. `save`: the fields of it to save."""
        if not isinstance(flow, Flow):
            raise BadInputError(
                f"state {self.state.name} calls no flow: give what build() or load_flow() returns"
            )
        self._flows[flow.name] = flow
        return self._once(call=Call(flow.name, to, save))

    def _once(self, **fields: Any) -> Self:  # noqa: ANN401  (likewise)
        for name in fields:
            if getattr(self.state, name) is not None:
                raise BadInputError(
                    f"state {self.state.name} has {name} twice: a state takes one, so add a state"
                )
        return self._with(**fields)

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
        in_place: bool = False,
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
            in_place=in_place,
            given=given,
            texts=texts,
        )
        self._states: list[StateBuilder] = []
        self._commands: dict[str, str] = {}
        self._arguments: dict[str, str] = {}
        self._guards: dict[str, Guard] = {}
        self._flows: dict[str, Flow] = {}

    def command(self, name: str, *, to: str, save: str | None = None) -> Self:
        """Add a command for every state that has no transition of its own for it. `save`: the field for its
        argument, such as that of a link `t.me/bot?start=promo7`.
        """
        self._commands[name] = to
        if save is not None:
            self._arguments[name] = save
        return self

    def state(
        self,
        name: str,
        *,
        say: str | None = None,
        otherwise: str | None = None,
        in_place: bool | None = None,
    ) -> StateBuilder:
        return self._add(FlowState(name, say, otherwise=otherwise, in_place=in_place))

    def final(self, name: str, *, say: str | None = None, in_place: bool | None = None) -> StateBuilder:
        return self._add(FlowState(name, say, final=True, in_place=in_place))

    def _add(self, state: FlowState) -> StateBuilder:
        self._states.append(StateBuilder(state, self._flows))
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
        flow = msgspec.structs.replace(
            self._flow,
            initial=self._flow.initial or states[0].name,
            states=states,
            commands=dict(self._commands),
            arguments=dict(self._arguments),
            guards=dict(self._guards),
            flows=dict(self._flows),
        )
        try:
            check_types(flow)
        except BadInputError as error:
            raise BadInputError(f"flow {flow.name}: {error}") from error
        return flow
