"""The machine: a session and an event give the session that it becomes, and what is to be done. Pure.

step(flow, session, event)
  │  known already (its id)? ─────────────────────────▶ the same session, nothing to do
  │  begins? ─────────▶ leave, enter the initial state
  │  outlived its lifetime, or its state is no more? ─▶ leave, say so, end
  ▼
what it needs by now: another subscription, a timer
  ▼
the first way of the state that fits and whose guard holds, else the flow's own commands
  leave: unsubscribe, clear the timer ─▶ save ─▶ say on the way
  ─▶ enter: say, subscribe, set the timer, begin work; or end
none? a person is told that it is out of place; the rest comes too late and means nothing
"""

from types import MappingProxyType
from typing import assert_never

import msgspec

from tidegate.flows.effects import Effect, Subscribe
from tidegate.flows.events import (
    Begin,
    ButtonPress,
    Command,
    Content,
    Expired,
    FlowEvent,
    Polled,
    Signal,
    Text,
    TimedOut,
    WorkDone,
    WorkFailed,
    trigger_of,
    value_of,
)
from tidegate.flows.flow import Flow
from tidegate.flows.model import TIMEOUT, Button, FlowError, State, Transition, press_trigger, read_press
from tidegate.flows.session import Session
from tidegate.flows.session_update import SessionUpdate


class FlowStep(msgspec.Struct, frozen=True):
    """`effects` are those of this event; the session has them as `pending`, after any that it had before.

    The same object as before: the event meant nothing, and nothing need be written.
    """

    session: Session | None
    effects: tuple[Effect, ...] = ()


def step(flow: Flow, session: Session | None, event: FlowEvent) -> FlowStep:
    """The same arguments give the same result. An event that was handled before changes nothing.

    Raises FlowError if the flow's own parts fail (a guard that raises); the session stays as it was.
    """
    if session is not None and session.flow != flow.name:
        raise FlowError(f"the session is of flow {session.flow}", flow=flow.name, state=session.state)
    if session is not None and event.id in session.recent:
        return FlowStep(session)
    turn = SessionUpdate(flow, session, event)
    _take(turn)
    return FlowStep(turn.over(), tuple(turn.effects))


def _take(turn: SessionUpdate) -> None:
    event, over = turn.event, _is_over(turn)
    if isinstance(event, Begin) or (
        over and isinstance(event, Command) and turn.flow.begins_with(event.name)
    ):
        turn.begin({**event.data, **_argument(turn)})
    elif over:
        turn.answer(turn.flow.stale)
        if turn.is_live:
            turn.expire()
    else:
        if not _is_awaited_poll(turn):  # they are told once, and what is held may not be so after
            turn.keep_up()
        _move(turn, turn.flow.by_name[turn.live.state])


def _argument(turn: SessionUpdate) -> dict[str, str]:
    """Of a command that begins, as it is to be kept."""
    event = turn.event
    field = turn.flow.arguments.get(event.name) if isinstance(event, Command) else None
    return {} if field is None else {field: value_of(event)}


def _is_over(turn: SessionUpdate) -> bool:
    """Ended, or about to: its time has come, or it is where the flow has no state any more."""
    session = turn.session
    if session is None or session.ended or session.state not in turn.flow.by_name:
        return True
    return session.expires_at is not None and turn.event.at >= session.expires_at


def _move(turn: SessionUpdate, state: State) -> None:
    match event := turn.event:
        case Text() | Content() | Command():
            if not _follow(turn, trigger_of(event)):
                turn.say(_otherwise(turn, state))
        case ButtonPress():
            _press(turn, state, event)
        case TimedOut():
            _time_out(turn, state, event)
        case Signal() | Polled() | WorkDone() | WorkFailed():
            if not (_is_awaited(turn, event) and _follow(turn, trigger_of(event))):
                turn.keep_up()
        case Begin() | Expired():
            pass  # it began before this; it is not yet time
        case _:
            assert_never(event)


def _is_awaited_poll(turn: SessionUpdate) -> bool:
    return isinstance(turn.event, Polled) and _is_awaited(turn, turn.event)


def _is_awaited(turn: SessionUpdate, event: Signal | Polled | WorkDone | WorkFailed) -> bool:
    """What comes too late is about an earlier visit, or something else that was subscribed to."""
    if isinstance(event, WorkDone | WorkFailed):
        return event.visit == turn.live.visit
    return isinstance(event, Signal) or turn.live.held == Subscribe(event.poll, event.key)


def _press(turn: SessionUpdate, state: State, press: ButtonPress) -> None:
    button = _pressed(turn, state, press)
    if button is None:
        turn.answer(turn.flow.stale)
        return
    way = _find(turn, press_trigger(button)) if _holds(turn, button.guard) else None
    if way is None:
        turn.answer(_otherwise(turn, state))
        return
    turn.answer()
    _go(turn, way, button.worth, also=button.save)


def _pressed(turn: SessionUpdate, state: State, press: ButtonPress) -> Button | None:
    """None: of another visit or flow, or not there any more."""
    read = read_press(press.data)
    if read is None or (read.flow, read.visit) != (turn.flow.name, turn.live.visit):
        return None
    return next((button for button in state.all_buttons() if button.code == read.button), None)


def _time_out(turn: SessionUpdate, state: State, event: TimedOut) -> None:
    session, timeout, at = turn.live, state.timeout, event.at
    if event.visit != session.visit or session.timer is None:
        return
    if at < session.timer:
        turn.set_timer()
        turn.comes_again = True  # it rang too early
    elif timeout is None:
        turn.wait_until(None)  # the state had one when it was entered
    elif timeout.say is not None and session.nudged < timeout.times:
        is_last = session.nudged + 1 == timeout.times and TIMEOUT not in turn.flow.ways[state.name]
        turn.nudge(timeout.say, due=None if is_last else at + timeout.seconds)
    else:
        _follow(turn, TIMEOUT)
        if turn.live.visit == session.visit:  # it rings once, wherever that leads
            turn.wait_until(None)


def _follow(turn: SessionUpdate, trigger: str) -> bool:
    way = _find(turn, trigger)
    if way is not None:
        _go(turn, way, value_of(turn.event))
    return way is not None


def _find(turn: SessionUpdate, trigger: str) -> Transition | None:
    for way in turn.flow.ways[turn.live.state].get(trigger, ()):
        if _holds(turn, way.guard):
            return way
    target = turn.flow.commands.get(trigger)
    return (
        None if target is None else Transition(trigger, to=target, save=turn.flow.arguments.get(trigger, ()))
    )


def _go(turn: SessionUpdate, way: Transition, value: object, also: str | None = None) -> None:
    if way.to is not None:
        turn.leave()  # before anything is saved: it lets go of what it took hold of
    turn.save(also, value)
    turn.save(way.save, value)
    if way.say is not None:
        turn.say(way.say)
    if way.to is not None:
        turn.enter(way.to)
    else:
        turn.keep_up()


def _holds(turn: SessionUpdate, name: str | None) -> bool:
    if name is None:
        return True
    guard = turn.flow.guards.get(name)
    if guard is None:
        raise turn.error(f"there is no guard {name}: give it to the flow, or take it out")
    try:
        return bool(guard(MappingProxyType(turn.live.data), turn.event))
    except Exception as error:
        raise turn.error(f"the guard {name} raised {type(error).__name__}: {error}") from error


def _otherwise(turn: SessionUpdate, state: State) -> str:
    return turn.flow.otherwise if state.otherwise is None else state.otherwise
