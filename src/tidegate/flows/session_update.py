"""The session while one event changes it, and the effects that the change needs."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, ParamSpec, TypeVar

import msgspec

from tidegate.flows.effects import (
    AnswerPress,
    ClearTimer,
    DeleteMessage,
    Effect,
    EndSession,
    PendingEffect,
    RunWork,
    SayText,
    SetTimer,
    Subscribe,
    Unsubscribe,
)
from tidegate.flows.events import ButtonPress, Command, Content, FlowEvent, Text
from tidegate.flows.flow import Flow
from tidegate.flows.messages import items_of, press_answer, state_messages, text_message
from tidegate.flows.model import FlowError, FlowState, Save
from tidegate.flows.nesting import Nesting
from tidegate.flows.session import MAX_RECENT_EVENTS, Screen, Session, tag_of

P = ParamSpec("P")
T = TypeVar("T")


class SessionUpdate:
    """A mutable copy of a session while the machine handles one event."""

    def __init__(self, flow: Flow, session: Session | None, event: FlowEvent) -> None:
        self.flow = flow
        self.event = event
        self.before = session
        self.session = session
        self.effects: list[Effect] = []
        self.comes_again = False  # an event with this id must be handled again
        self._has_left = False  # the state that the session was in

    @property
    def is_live(self) -> bool:
        return self.session is not None and not self.session.ended

    @property
    def live(self) -> Session:
        if self.session is None:
            raise self.error("there is no session")
        return self.session

    def begin(self, data: dict[str, Any]) -> None:
        """Begin anew, before the initial state. Visits go on counting, from the time in milliseconds at
        least: so buttons of earlier sessions stay stale, even if those sessions were forgotten.
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
            has_keys=before is not None and before.has_keys,
            recent=before.recent if before else (),
            pending=before.pending if before else (),
        )

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
        self._show(state)
        self.effects += [EndSession(name)] if state.final else upkeep(self.flow, self.live)
        if self.live.timer is not None:  # setting a timer replaces the one before
            self.effects = [effect for effect in self.effects if not isinstance(effect, ClearTimer)]

    def go_in(self) -> None:
        """Let the flow that the state calls have data of its own, which begin as a copy."""
        self._change(frames=(*self.live.frames, self.live.data))

    def come_out(self, state: str) -> None:
        """Drop the data of called flows that the state is not in."""
        depth, frames = self._nesting.depth(state), self.live.frames
        if depth < len(frames):
            self._change(data=frames[depth], frames=frames[:depth])

    def come_back(self, caller: str) -> dict[str, Any]:
        """Return to the state that called the flow, silently. Returns the data of the flow that has ended."""
        result = self.live.data
        self._change(state=caller)
        self.come_out(caller)
        return result

    @property
    def _nesting(self) -> Nesting:
        return self.flow.nesting or Nesting()

    def leave(self) -> None:
        """End the subscription and the timer of the state."""
        self._has_left = True
        if not self.is_live:
            return
        if (held := self.live.held) is not None:
            self._add(Unsubscribe(held.poll, held.key))
            self._change(held=None)
        if self.live.timer is not None:
            self._add(ClearTimer())

    def keep_up(self) -> None:
        """Bring subscription and timer in line with the data and the flow, which may have changed."""
        session, wanted = self.live, subscription(self.flow, self.live)
        if wanted != session.held and (wanted is not None or not self._polls_on(session.held)):
            if session.held is not None:
                self._add(Unsubscribe(session.held.poll, session.held.key))
            self._add(wanted)
            self._change(held=wanted)
        if (missing := added_times(self.flow, self.live, self.event.at)) is not None:
            self._change(**missing)
            self.set_timer()

    def _polls_on(self, held: Subscribe | None) -> bool:
        """The poll has a new key, which this session lacks: it goes on with the old one."""
        poll = self.flow.by_name[self.live.state].poll
        return held is not None and poll is not None and poll.name == held.poll

    def expire(self) -> None:
        self.leave()
        self.say(self.flow.expired)
        self._add(EndSession(self.live.state, expired=True))
        self._change(ended=True, due=None, expires_at=None)

    def nudge(self, text: str, *, due: float | None) -> None:
        """Say the text of the timeout and stay. `due` is the time of the next timeout."""
        self._change(nudged=self.live.nudged + 1)
        self.say(text)
        self.wait_until(due)

    def wait_until(self, due: float | None) -> None:
        self._change(due=due)
        self.set_timer()

    def set_timer(self) -> None:
        if (at := self.live.timer) is not None:
            self._add(SetTimer(at, self.live.visit))

    def save(self, save: Save | None, value: object) -> None:
        if save:
            fields = self._try(saved_fields, save, value)
            self._change(data={**self.live.data, **fields})
            self._turn_back(fields)

    def _turn_back(self, saved: Collection[str]) -> None:
        """A list that is new begins with its first page."""
        pages = {
            name: page
            for name, page in self.live.pages.items()
            if (state := self.flow.by_name.get(name)) is not None
            and state.choices is not None
            and state.choices.field not in saved
        }
        if pages != self.live.pages:
            self._change(pages=pages)

    def say(self, text: str) -> None:
        if (said := text_message(self.flow, self.live, text)) is not None:
            self._send(said)

    def note_screen(self) -> None:
        """Remember the message with the pressed button: the next state may be shown in its place."""
        if isinstance(self.event, ButtonPress) and self.event.message is not None:
            self._change(screen=Screen(self.event.message, self.event.has_media))

    def answer(self, text: str = "") -> None:
        """Answer a press: Telegram waits for an answer even if there is nothing to say."""
        if isinstance(self.event, ButtonPress):
            session, language = self.session, self.event.language
            data, language = (session.data, session.language) if session else ({}, language)
            self._add(AnswerPress(self.event.query, press_answer(self.flow, text, data, language)))

    def result(self) -> Session | None:
        """The session to write; the same object if the event meant nothing."""
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

    def items(self, state: FlowState) -> list[Any]:
        """The list that the state lets the user choose from."""
        return self._try(items_of, self.live, state)

    def turn(self, page: int) -> None:
        """Show another page of the state's list, in the same message."""
        state = self._declared(self.live.state)
        self._change(pages={**self.live.pages, state.name: page})
        *_, said = self._try(state_messages, self.flow, self.live, state)
        self._replace_screen(said)

    def _show(self, state: FlowState) -> None:
        in_place = self.flow.in_place if state.in_place is None else state.in_place
        messages = self._try(state_messages, self.flow, self.live, state)
        for said in messages:
            if in_place and not said.keys and len(said.media) <= 1:
                self._replace_screen(said)
            else:
                self._send(said)
        if messages and (state.call is not None or self._nesting.final_of(state.name) is not None):
            self._change(screen=None)  # another state follows at once, and must not take its place

    def _replace_screen(self, said: SayText) -> None:
        """Change the message of the pressed button, if it is still the last one in the chat."""
        screen = self.live.screen
        if screen is None or isinstance(self.event, Text | Content | Command):
            self._send(said)
        elif screen.has_media and not said.media:  # Telegram cannot take the file away
            self._send(said)
            self._add(DeleteMessage(screen.message))
        else:
            self._add(msgspec.structs.replace(said, edits=screen.message))
            self._change(screen=Screen(screen.message, bool(said.media)))

    def _send(self, said: SayText) -> None:
        """Send a new message. It takes away the keys of a state that was left, unless it has buttons:
        Telegram takes one or the other with a message, and none with an album.
        """
        removes = self.live.has_keys and self._has_left
        removes = removes and not (said.keys or said.buttons or len(said.media) > 1)
        self._add(msgspec.structs.replace(said, removes_keys=True) if removes else said)
        has_keys = bool(said.keys) or (self.live.has_keys and not removes)
        if self.live.screen is not None or has_keys != self.live.has_keys:
            self._change(screen=None, has_keys=has_keys)

    def _add(self, effect: Effect | None) -> None:
        if effect is not None:
            self.effects.append(effect)

    def _change(self, **fields: Any) -> None:  # noqa: ANN401  (those of a session)
        self.session = msgspec.structs.replace(self.live, **fields)

    def _declared(self, name: str) -> FlowState:
        if name not in self.flow.by_name:
            raise self.error(f"there is no state {name} to go to: flow.check() finds such mistakes")
        return self.flow.by_name[name]

    def _try(self, act: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        try:
            return act(*args, **options)
        except ValueError as error:
            raise self.error(str(error)) from error


def upkeep(flow: Flow, session: Session) -> list[Effect]:
    """The effects that a session needs in its state: subscription, timer, work. None if it has ended.

    Raises FlowError if its data lacks the key to subscribe to.
    """
    flow = flow.flat
    state = flow.by_name.get(session.state)
    if state is None or session.ended:
        return []
    needed: list[Effect] = []
    if (subscribed := subscription(flow, session)) is not None:
        needed.append(subscribed)
    elif state.poll is not None:
        text = f"{state.poll.key} is not in the data: the poll {state.poll.name} needs it, so save it before"
        raise FlowError(text, flow=flow.name, state=state.name)
    if (at := session.timer) is not None:
        needed.append(SetTimer(at, session.visit))
    if state.run is not None:
        needed.append(RunWork(state.run.name, session.visit))
    return needed


def subscription(flow: Flow, session: Session) -> Subscribe | None:
    """The subscription that the session needs in its state, if its data has the key."""
    state = flow.by_name.get(session.state)
    if state is None or state.poll is None or session.ended:
        return None
    key = session.data.get(state.poll.key)
    return None if key is None or key == "" else Subscribe(state.poll.name, str(key))


def added_times(flow: Flow, session: Session, at: float) -> dict[str, Any] | None:
    """The times of a timeout or a lifetime that the flow got after the session entered the state."""
    state, missing = flow.by_name[session.state], dict[str, Any]()
    if session.expires_at is None and flow.lifetime is not None:
        missing["expires_at"] = session.entered_at + flow.lifetime
    if state.timeout is not None and not session.timed:
        missing |= {"due": at + state.timeout.seconds, "timed": True}
    return missing or None


def saved_fields(save: Save, value: object) -> dict[str, Any]:
    """Raises ValueError for a field that is missing, or that JSON cannot hold."""
    if isinstance(save, str):
        return {save: json_value(save, value)}
    return {name: json_value(name, _field_of(value, name)) for name in save}


def json_value(name: str, value: object) -> Any:  # noqa: ANN401  (whatever it is)
    """Return the value as JSON reads it back, so that a restart changes nothing: a tuple is a list."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"{name} cannot be saved, since JSON has no such value: {error}") from error


def _field_of(value: object, name: str) -> object:
    if not isinstance(value, Mapping):
        raise ValueError(f"to save {name} a table of fields was expected, not {type(value).__name__}")  # noqa: TRY004  (one kind for the caller)
    if name not in value:
        raise ValueError(
            f"{name} is to be saved, but not among what came: {', '.join(map(str, value)) or 'nothing'}"
        )
    return value[name]
