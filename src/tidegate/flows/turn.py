"""One event's turn: the session as it becomes, and what is to be done for it. Knows how, not when."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import msgspec

from tidegate.flows.effects import Answer, ClearTimer, Effect, End, Pending, SetTimer, Subscribe, Unsubscribe
from tidegate.flows.events import Event, Press
from tidegate.flows.flow import Flow
from tidegate.flows.model import FlowError, Save, State
from tidegate.flows.saving import as_json_has_it, kept
from tidegate.flows.session import RECENT, Session, tag_of
from tidegate.flows.speaking import answered, shown, spoken
from tidegate.flows.upkeep import missing_times, subscription, upkeep

P = ParamSpec("P")
T = TypeVar("T")


class Turn:
    """Mutable while one event is handled; nobody else sees it before it is over."""

    def __init__(self, flow: Flow, session: Session | None, event: Event) -> None:
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
            data={name: self._try(as_json_has_it, name, value) for name, value in data.items()},
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
        self._do(shown(self.flow, self.live, state))
        self.effects += [End(name)] if state.final else upkeep(self.flow, self.live)
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
        if (missing := missing_times(self.flow, self.live, self.event.at)) is not None:
            self._change(**missing)
            self.set_timer()

    def _polls_on(self, held: Subscribe | None) -> bool:
        """The poll has another key now, which this session does not know: it goes on with the old one."""
        poll = self.flow.by_name[self.live.state].poll
        return held is not None and poll is not None and poll.name == held.poll

    def expire(self) -> None:
        self.leave()
        self.say(self.flow.expired)
        self._do(End(self.live.state, expired=True))
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
            self._change(data={**self.live.data, **self._try(kept, save, value)})

    def say(self, text: str) -> None:
        self._do(spoken(self.flow, self.live, text))

    def answer(self, text: str = "") -> None:
        """Telegram waits for one on every press, even if there is nothing to say."""
        if isinstance(self.event, Press):
            session, language = self.session, self.event.language
            data, language = (session.data, session.language) if session else ({}, language)
            self._do(Answer(self.event.query, answered(self.flow, text, data, language)))

    def over(self) -> Session | None:
        """As it is to be written; the very same, if the event meant nothing to it."""
        if self.session is None or (self.session is self.before and not self.effects):
            return self.session
        decided = (Pending(self.event.id, place, effect) for place, effect in enumerate(self.effects))
        known = () if self.comes_again else (self.event.id,)
        self._change(
            recent=(*self.session.recent, *known)[-RECENT:],
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
