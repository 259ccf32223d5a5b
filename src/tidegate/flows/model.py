"""The parts of a flow: states, the transitions that lead out of them, and their triggers."""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.flows.events import FlowEvent


Guard = Callable[[Mapping[str, Any], "FlowEvent"], bool]
"""Pure: of the session's data and the event, whether this way is open."""
Save = str | tuple[str, ...]
"""A name: the event's value is kept under it. Several: these fields of the value are kept."""


class FlowError(TidegateError):
    """A flow cannot go on as it is declared: a guard raised, a field is missing. The session did not move."""

    def __init__(self, text: str, *, flow: str, state: str) -> None:
        super().__init__(f"flow {flow}, state {state}: {text}")
        self.flow = flow
        self.state = state


class _Declared(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Can be written as plain data and read again."""


class Transition(_Declared, frozen=True):
    """A way: on this trigger (see `triggers`), if the guard holds, to that state. Without `to` it stays."""

    trigger: str
    to: str | None = None
    guard: str | None = None
    save: Save = ()
    say: str | None = None  # on the way, before what the next state says


class Button(_Declared, frozen=True, dict=True):
    """Has one of `to` (a state), `trigger` (of the state's own transitions) and `url`.

    Its value is `value`, or else its text as it is declared; `save` is the name to keep it under.
    """

    text: str
    to: str | None = None
    trigger: str | None = None
    url: str | None = None
    guard: str | None = None
    save: str | None = None
    value: str | None = None

    @cached_property
    def code(self) -> str:
        """Names it in what Telegram sends back: the same after a restart, as long as it means the same."""
        kept = None if self.save is None else self.worth
        meaning = msgspec.json.encode((self.to, self.trigger, self.guard, self.save, kept))
        return hashlib.blake2b(meaning, digest_size=6).hexdigest()

    @property
    def worth(self) -> str:
        return self.text if self.value is None else self.value


class Poll(_Declared, frozen=True):
    """While in the state, `data[key]` is subscribed to. The others are states to go to."""

    name: str
    key: str
    met: str
    gone: str | None = None
    reversed: str | None = None


class Timeout(_Declared, frozen=True):
    """Every so many seconds in the state it says something, up to `times`; one more, and it goes to `to`."""

    seconds: float
    to: str | None = None
    say: str | None = None
    times: int = 1


class Work(_Declared, frozen=True):
    """Begun on entering. `save`: the fields of the result that are kept."""

    name: str
    done: str
    failed: str
    save: Save = ()


class State(_Declared, frozen=True):
    """`say` and the texts of buttons are keys of the flow's texts, or texts; `{field}` is one of the data."""

    name: str
    say: str | None = None
    buttons: tuple[tuple[Button, ...], ...] = ()  # in rows
    on: tuple[Transition, ...] = ()  # the first that fits is taken
    poll: Poll | None = None
    timeout: Timeout | None = None
    run: Work | None = None
    final: bool = False
    otherwise: str | None = None  # said to what is out of place; "" is silence, None the flow's own

    def all_buttons(self) -> list[Button]:
        return [button for row in self.buttons for button in row]

    def guards(self) -> list[str]:
        """The names of all that it asks, each once."""
        asked = [way.guard for way in self.on] + [button.guard for button in self.all_buttons()]
        return [guard for guard in dict.fromkeys(asked) if guard is not None]


CONTENTS: Final = frozenset(
    ("animation", "audio", "contact", "document", "location", "photo", "sticker", "video", "voice", "other")
)
TEXT: Final = "text"
TIMEOUT: Final = "timeout"
OUTCOMES: Final = ("met", "gone", "reversed", "done", "failed")
_NAMED = re.compile(r"(button|signal|met|gone|reversed|done|failed):(.+)", re.DOTALL)
_COMMAND = re.compile(r"/[A-Za-z0-9_]{1,32}")  # as Telegram has them


def trigger_kind(trigger: str) -> str | None:
    """`command`, `text`, `content`, `timeout`, or the word before the colon. None: no such trigger."""
    if is_command(trigger):
        return "command"
    if trigger in {TEXT, TIMEOUT}:
        return trigger
    if trigger in CONTENTS:
        return "content"
    named = _NAMED.fullmatch(trigger)
    return named[1] if named else None


def trigger_name(trigger: str) -> str:
    """What stands after the colon."""
    return trigger.partition(":")[2]


def is_command(trigger: str) -> bool:
    return _COMMAND.fullmatch(trigger) is not None


def press_trigger(button: Button) -> str:
    """What a press of it triggers."""
    return f"button#{button.code}" if button.trigger is None else f"button:{button.trigger}"


def transitions_of(state: State) -> list[Transition]:
    """Every way out of a state, in the order they are tried: its own first, then those it has by itself,
    unless one of its own is always taken instead.
    """
    if state.final:
        return []
    certain = {way.trigger for way in state.on if way.guard is None}
    outcomes = (way for way in _outcome_transitions(state) if way.trigger not in certain)
    return [*state.on, *_button_transitions(state), *outcomes]


def _button_transitions(state: State) -> list[Transition]:
    """The guard of a button is its own: it is asked before any way is looked for. Two that mean the same
    are one.
    """
    plain = {button.code: button for button in state.all_buttons() if button.to is not None}
    return [
        Transition(press_trigger(button), to=button.to, save=button.save or ()) for button in plain.values()
    ]


def _outcome_transitions(state: State) -> list[Transition]:
    ways: list[Transition] = []
    if (poll := state.poll) is not None:
        ends = (("met", poll.met), ("gone", poll.gone), ("reversed", poll.reversed))
        ways += [Transition(f"{kind}:{poll.name}", to=to) for kind, to in ends if to is not None]
    if (work := state.run) is not None:
        ways += [
            Transition(f"done:{work.name}", to=work.done, save=work.save),
            Transition(f"failed:{work.name}", to=work.failed),
        ]
    if state.timeout is not None and state.timeout.to is not None:
        ways.append(Transition(TIMEOUT, to=state.timeout.to))
    return ways


MAX_PRESS_DATA: Final = 64  # bytes, https://core.telegram.org/bots/api#inlinekeyboardbutton
_PREFIX: Final = "f"


class PressData(NamedTuple):
    flow: str
    visit: int
    button: str


def press_data(flow: str, visit: int, button: str) -> str:
    return f"{_PREFIX}:{flow}:{visit}:{button}"


def read_press(data: str) -> PressData | None:
    """None: no flow has written this."""
    match data.split(":"):
        case [prefix, flow, visit, button] if prefix == _PREFIX and visit.isdecimal() and visit.isascii():
            return PressData(flow, int(visit), button)
        case _:
            return None
