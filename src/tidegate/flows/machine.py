"""The machine: a pure function of a session and an event to the changed session and the effects to do.

step(flow, session, event)
  │  event id known already? ──────────────────▶ the same session, no effects
  │  begins a session? ─▶ leave the state, enter the initial state
  │  lifetime over, or its state was removed? ─▶ leave the state, say so, end
  ▼
bring subscription and timer in line with the flow
  ▼
the first transition of the state whose guard holds, else the flow's own commands
  leave: unsubscribe, clear the timer ─▶ save ─▶ say the transition's text
  ─▶ enter: say, subscribe, set the timer, begin work; or end
none? unexpected input of a user is answered; other events come too late and mean nothing
"""

from types import MappingProxyType
from typing import NamedTuple, assert_never

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
from tidegate.flows.messages import key_text, page_count
from tidegate.flows.model import (
    TIMEOUT,
    Choices,
    FlowError,
    FlowState,
    Transition,
    page_of,
    press_trigger,
    read_press,
)
from tidegate.flows.session import Session
from tidegate.flows.session_update import SessionUpdate


class FlowStep(msgspec.Struct, frozen=True):
    """`effects` are those of this event; the session has them as `pending`, after earlier ones.

    If the session is the same object as before, the event meant nothing, and nothing need be written.
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
    update = SessionUpdate(flow.flat, session, event)
    _handle(update)
    return FlowStep(update.result(), tuple(update.effects))


def _handle(update: SessionUpdate) -> None:
    event, over = update.event, _is_over(update)
    if isinstance(event, Begin) or (
        over and isinstance(event, Command) and update.flow.begins_with(event.name)
    ):
        update.begin({**event.data, **_argument(update)})
        _enter(update, update.flow.initial)
    elif over:
        update.answer(update.flow.stale)
        if update.is_live:
            update.expire()
    else:
        if not _is_awaited_poll(update):  # news come once, and this might end their subscription
            update.keep_up()
        _move(update, update.flow.by_name[update.live.state])


def _argument(update: SessionUpdate) -> dict[str, str]:
    """The field with the argument of a command that begins a session."""
    event = update.event
    field = update.flow.arguments.get(event.name) if isinstance(event, Command) else None
    return {} if field is None else {field: value_of(event)}


def _is_over(update: SessionUpdate) -> bool:
    """Return whether the session has ended, has outlived its lifetime, or is in a state that was removed."""
    session = update.session
    if session is None or session.ended or session.state not in update.flow.by_name:
        return True
    return session.expires_at is not None and update.event.at >= session.expires_at


def _move(update: SessionUpdate, state: FlowState) -> None:
    match event := update.event:
        case Text() | Content() | Command():
            if not (_take_key(update, state) or _take_transition(update, trigger_of(event))):
                update.say(_otherwise(update, state))
        case ButtonPress():
            _press(update, state, event)
        case TimedOut():
            _time_out(update, state, event)
        case Signal() | Polled() | WorkDone() | WorkFailed():
            if not (_is_awaited(update, event) and _take_transition(update, trigger_of(event))):
                update.keep_up()
        case Begin() | Expired():
            pass  # handled before; or its lifetime is not over
        case _:
            assert_never(event)


def _is_awaited_poll(update: SessionUpdate) -> bool:
    return isinstance(update.event, Polled) and _is_awaited(update, update.event)


def _is_awaited(update: SessionUpdate, event: Signal | Polled | WorkDone | WorkFailed) -> bool:
    """A late event is of an earlier visit, or of another subscription."""
    if isinstance(event, WorkDone | WorkFailed):
        return event.visit == update.live.visit
    return isinstance(event, Signal) or update.live.held == Subscribe(event.poll, event.key)


def _take_key(update: SessionUpdate, state: FlowState) -> bool:
    """A key writes its text for the user."""
    if not isinstance(update.event, Text):
        return False
    written = update.event.text.strip()
    for key in state.all_keys():
        if key.request is None and key_text(update.flow, update.live, key) == written:
            transition = _find_transition(update, key.trigger)
            if transition is not None:
                _move_along(update, transition, key.saved_value)
                return True
    return False


def _press(update: SessionUpdate, state: FlowState, press: ButtonPress) -> None:
    read = read_press(press.data)
    pressed = None
    if read is not None and (read.flow, read.visit) == (update.flow.name, update.live.visit):
        page = page_of(read.button)
        if page is not None and state.choices is not None:
            _turn_page(update, state, state.choices, page)
            return
        pressed = _pressed_button(state, read.button) or _pressed_item(update, state, read.button)
    if pressed is None:  # of another visit or flow, or one that was removed
        update.answer(update.flow.stale)
        return
    update.event = msgspec.structs.replace(press, value=pressed.value)
    transition = _find_transition(update, pressed.trigger) if _guard_holds(update, pressed.guard) else None
    if transition is None:
        update.answer(_otherwise(update, state))
        return
    update.answer()
    update.note_screen()
    _move_along(update, transition, pressed.value, also=pressed.save)


class _Pressed(NamedTuple):
    trigger: str
    value: object
    guard: str | None = None  # beside that of the transition
    save: str | None = None


def _pressed_button(state: FlowState, code: str) -> _Pressed | None:
    button = next((button for button in state.all_buttons() if button.code == code), None)
    if button is None:
        return None
    return _Pressed(press_trigger(button), button.saved_value, button.guard, button.save)


def _pressed_item(update: SessionUpdate, state: FlowState, code: str) -> _Pressed | None:
    if (choices := state.choices) is None:
        return None
    items = update.items(state)
    return next((_Pressed(choices.trigger, item) for item in items if choices.code(item) == code), None)


def _turn_page(update: SessionUpdate, state: FlowState, choices: Choices, page: int) -> None:
    """Pressing the number of the page changes nothing, and neither does a page that is not there any more."""
    update.answer()
    if page != update.live.pages.get(state.name, 0) and page < page_count(choices, update.items(state)):
        update.note_screen()
        update.turn(page)


def _time_out(update: SessionUpdate, state: FlowState, event: TimedOut) -> None:
    session, timeout, at = update.live, state.timeout, event.at
    if event.visit != session.visit or session.timer is None:
        return
    if at < session.timer:
        update.set_timer()
        update.comes_again = True  # it rang too early
    elif timeout is None:
        update.wait_until(None)  # it was removed after the state was entered
    elif timeout.say is not None and session.nudged < timeout.times:
        is_last = session.nudged + 1 == timeout.times and TIMEOUT not in update.flow.transitions[state.name]
        update.nudge(timeout.say, due=None if is_last else at + timeout.seconds)
    else:
        _take_transition(update, TIMEOUT)
        if update.live.visit == session.visit:  # the guards let it stay: it rings once all the same
            update.wait_until(None)


def _take_transition(update: SessionUpdate, trigger: str) -> bool:
    transition = _find_transition(update, trigger)
    if transition is not None:
        _move_along(update, transition, value_of(update.event))
    return transition is not None


def _find_transition(update: SessionUpdate, trigger: str) -> Transition | None:
    for transition in update.flow.transitions[update.live.state].get(trigger, ()):
        if _guard_holds(update, transition.guard):
            return transition
    target = update.flow.commands.get(trigger)
    return (
        None
        if target is None
        else Transition(trigger, to=target, save=update.flow.arguments.get(trigger, ()))
    )


def _move_along(
    update: SessionUpdate, transition: Transition, value: object, also: str | None = None
) -> None:
    if transition.to is not None:
        update.leave()  # before the data changes, by which it subscribed
        update.come_out(transition.to)
    update.save(also, value)
    update.save(transition.save, value)
    if transition.say is not None:
        update.say(transition.say)
    if transition.to is not None:
        _enter(update, transition.to)
    else:
        update.keep_up()


def _enter(update: SessionUpdate, name: str) -> None:
    """Enter a state. One that calls a flow leads on to its first state, and its last one back."""
    update.enter(name)
    nesting = update.flow.nesting
    if nesting is None:
        return
    if (entry := nesting.entries.get(name)) is not None:
        update.go_in()
        _enter(update, entry)
    elif (ended := nesting.final_of(name)) is not None:
        result = update.come_back(ended.caller)
        transition = _find_transition(update, f"ended:{ended.state}")
        if transition is None:
            raise update.error(f"nothing follows the end {ended.state} of the flow that {ended.caller} calls")
        # The flow may have ended on a path on which it saved less.
        missing = {} if isinstance(transition.save, str) else dict.fromkeys(transition.save)
        _move_along(update, transition, {**missing, **result})


def _guard_holds(update: SessionUpdate, name: str | None) -> bool:
    if name is None:
        return True
    guard = update.flow.guards.get(name)
    if guard is None:
        raise update.error(f"there is no guard {name}: give it to the flow, or remove it")
    try:
        return bool(guard(MappingProxyType(update.live.data), update.event))
    except Exception as error:
        raise update.error(f"the guard {name} raised {type(error).__name__}: {error}") from error


def _otherwise(update: SessionUpdate, state: FlowState) -> str:
    return update.flow.otherwise if state.otherwise is None else state.otherwise
