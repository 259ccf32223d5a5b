"""The session while one event changes it, and the effects that the change needs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

import msgspec

from tidegate.flows.effects import (
    AnswerPress,
    ClearTimer,
    Effect,
    EndSession,
    PendingEffect,
    SayText,
    SetTimer,
    ShownButton,
    Subscribe,
    Unsubscribe,
)
from tidegate.flows.events import ButtonPress, FlowEvent
from tidegate.flows.flow import DEFAULT_TEXTS, Flow
from tidegate.flows.model import Button, FlowError, Save, State, press_data
from tidegate.flows.session import MAX_RECENT_EVENTS, Session, tag_of
from tidegate.flows.upkeep import added_times, subscription, upkeep
from tidegate.flows.validation import MAX_ANSWER_LENGTH, MAX_BUTTON_LENGTH
from tidegate.templates import cut, escape, fill, fill_link, fill_message, unescape


def saved_fields(save: Save, value: object) -> dict[str, Any]:
    """Raises ValueError that says what is missing, or cannot be written as JSON."""
    if isinstance(save, str):
        return {save: json_value(save, value)}
    return {name: json_value(name, _field_of(value, name)) for name in save}


def json_value(name: str, value: object) -> Any:  # noqa: ANN401  (whatever it is)
    """Keeping a tuple and reading a list would make two sessions of one."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"{name} cannot be kept, since JSON has no such value: {error}") from error


def _field_of(value: object, name: str) -> object:
    if not isinstance(value, Mapping):
        raise ValueError(f"to keep {name} a table of fields was expected, not {type(value).__name__}")  # noqa: TRY004  (one kind for the caller)
    if name not in value:
        raise ValueError(
            f"{name} is to be kept, but not among what came: {', '.join(map(str, value)) or 'nothing'}"
        )
    return value[name]


def text_message(flow: Flow, session: Session, text: str) -> SayText | None:
    """None if it comes out empty: Telegram sends no empty messages. A flow's usual words are plain."""
    found = flow.text(text, session.language)
    if found in DEFAULT_TEXTS:
        return SayText(escape(found, flow.parse_mode))
    filled = fill_message(found, session.data, flow.parse_mode)
    return SayText(filled) if filled.strip() else None


def state_message(flow: Flow, session: Session, state: State) -> SayText | None:
    """What a state says, with its buttons."""
    said = text_message(flow, session, state.say or "")
    if said is None:
        return None
    rows = (tuple(_shown_buttons(flow, session, row)) for row in state.buttons)
    return SayText(said.text, tuple(row for row in rows if row))


def press_answer(flow: Flow, text: str, data: Mapping[str, Any], language: str | None) -> str:
    """For the answer to a press, which has no formatting."""
    return cut(fill(unescape(flow.text(text, language), flow.parse_mode), data), MAX_ANSWER_LENGTH)


def _shown_buttons(flow: Flow, session: Session, row: Iterable[Button]) -> Iterator[ShownButton]:
    """Telegram refuses a whole message for one button without a text or an address."""
    for button in row:
        text = fill(flow.text(button.text, session.language), session.data).strip() or "…"
        text = cut(text, MAX_BUTTON_LENGTH)
        if button.url is None:
            yield ShownButton(text, data=press_data(flow.name, session.visit, button.code))
        elif url := fill_link(flow.text(button.url, session.language), session.data):
            yield ShownButton(text, url=url)


P = ParamSpec("P")
T = TypeVar("T")


class SessionUpdate:
    """Mutable while one event is handled; nobody else sees it before it is over."""

    def __init__(self, flow: Flow, session: Session | None, event: FlowEvent) -> None:
        self.flow = flow
        self.event = event
        self.before = session
        self.session = session
        self.effects: list[Effect] = []
        self.comes_again = False  # the same event, with the same id: it is not to be known then

    @property
    def is_live(self) -> bool:
        return self.session is not None and not self.session.ended

    @property
    def live(self) -> Session:
        if self.session is None:
            raise self.error("there is no session")
        return self.session

    def begin(self, data: dict[str, Any]) -> None:
        """Anew, in the initial state. Visits go on: buttons of an earlier session stay stale, also of one
        that was forgotten, as the first visit is the millisecond in which it begins.
        """
        self.leave()
        before, event = self.session, self.event
        self.session = Session(
            flow=self.flow.name,
            state=self.flow.initial,
            visit=max(int(event.at * 1_000), before.visit if before else 0),
            tag=tag_of(event.id),
            data={name: self._try(json_value, name, value) for name, value in data.items()},
            language=event.language or (before.language if before else None),
            recent=before.recent if before else (),
            pending=before.pending if before else (),
        )
        self.enter(self.flow.initial)

    def enter(self, name: str) -> None:
        state, at, lifetime = self._declared(name), self.event.at, self.flow.lifetime
        self._change(
            state=name,
            visit=self.live.visit + 1,
            entered_at=at,
            expires_at=None if lifetime is None or state.final else at + lifetime,
            due=None if state.timeout is None or state.final else at + state.timeout.seconds,
            timed=state.timeout is not None,
            nudged=0,
            ended=state.final,
        )
        self._change(held=subscription(self.flow, self.live))
        self._do(state_message(self.flow, self.live, state))
        self.effects += [EndSession(name)] if state.final else upkeep(self.flow, self.live)
        if self.live.timer is not None:  # setting it takes the place of the one before
            self.effects = [effect for effect in self.effects if not isinstance(effect, ClearTimer)]

    def leave(self) -> None:
        """What the state held is let go of."""
        if not self.is_live:
            return
        if (held := self.live.held) is not None:
            self._do(Unsubscribe(held.poll, held.key))
            self._change(held=None)
        if self.live.timer is not None:
            self._do(ClearTimer())

    def keep_up(self) -> None:
        """What the state needs by now: its data may have changed, or since it was entered the flow."""
        session, wanted = self.live, subscription(self.flow, self.live)
        if wanted != session.held and (wanted is not None or not self._polls_on(session.held)):
            if session.held is not None:
                self._do(Unsubscribe(session.held.poll, session.held.key))
            self._do(wanted)
            self._change(held=wanted)
        if (missing := added_times(self.flow, self.live, self.event.at)) is not None:
            self._change(**missing)
            self.set_timer()

    def _polls_on(self, held: Subscribe | None) -> bool:
        """The poll has another key now, which this session does not know: it goes on with the old one."""
        poll = self.flow.by_name[self.live.state].poll
        return held is not None and poll is not None and poll.name == held.poll

    def expire(self) -> None:
        self.leave()
        self.say(self.flow.expired)
        self._do(EndSession(self.live.state, expired=True))
        self._change(ended=True, due=None, expires_at=None)

    def nudge(self, text: str, *, due: float | None) -> None:
        """It stays where it is; `due` is when its timeout is next."""
        self._change(nudged=self.live.nudged + 1)
        self.say(text)
        self.wait_until(due)

    def wait_until(self, due: float | None) -> None:
        self._change(due=due)
        self.set_timer()

    def set_timer(self) -> None:
        if (at := self.live.timer) is not None:
            self._do(SetTimer(at, self.live.visit))

    def save(self, save: Save | None, value: object) -> None:
        if save:
            self._change(data={**self.live.data, **self._try(saved_fields, save, value)})

    def say(self, text: str) -> None:
        self._do(text_message(self.flow, self.live, text))

    def answer(self, text: str = "") -> None:
        """Telegram waits for one on every press, even if there is nothing to say."""
        if isinstance(self.event, ButtonPress):
            session, language = self.session, self.event.language
            data, language = (session.data, session.language) if session else ({}, language)
            self._do(AnswerPress(self.event.query, press_answer(self.flow, text, data, language)))

    def over(self) -> Session | None:
        """As it is to be written; the very same, if the event meant nothing to it."""
        if self.session is None or (self.session is self.before and not self.effects):
            return self.session
        decided = (PendingEffect(self.event.id, place, effect) for place, effect in enumerate(self.effects))
        known = () if self.comes_again else (self.event.id,)
        self._change(
            recent=(*self.session.recent, *known)[-MAX_RECENT_EVENTS:],
            pending=(*self.session.pending, *decided),
        )
        return self.session

    def error(self, text: str) -> FlowError:
        state = self.session.state if self.session else self.flow.initial
        return FlowError(text, flow=self.flow.name, state=state)

    def _do(self, effect: Effect | None) -> None:
        if effect is not None:
            self.effects.append(effect)

    def _change(self, **fields: Any) -> None:  # noqa: ANN401  (those of a session)
        self.session = msgspec.structs.replace(self.live, **fields)

    def _declared(self, name: str) -> State:
        if name not in self.flow.by_name:
            raise self.error(f"there is no state {name} to go to: flow.check() finds such mistakes")
        return self.flow.by_name[name]

    def _try(self, act: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        try:
            return act(*args, **options)
        except ValueError as error:
            raise self.error(str(error)) from error
