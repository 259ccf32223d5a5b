"""The parts of a flow: states, the transitions that lead out of them, and their triggers."""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.flows.events import FlowEvent


Guard = Callable[[Mapping[str, Any], "FlowEvent"], bool]
"""A pure function of the session's data and the event: may this transition be taken?"""
Save = str | tuple[str, ...]
"""One name saves the event's value under it; several save these fields of the value."""


class FlowError(TidegateError):
    """The flow itself fails: a guard raised, a field is missing. The session stays as it was."""

    def __init__(self, text: str, *, flow: str, state: str) -> None:
        super().__init__(f"flow {flow}, state {state}: {text}")
        self.flow = flow
        self.state = state


class _Declared(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a declaration, which can be written as plain data and read again."""


class Transition(_Declared, frozen=True):
    """Leads to a state on this trigger, if the guard holds. Without `to` the session stays in its state."""

    trigger: str
    to: str | None = None
    guard: str | None = None
    save: Save = ()
    say: str | None = None  # before the text of the next state


class Button(_Declared, frozen=True, dict=True):
    """Has one of `to` (a state), `trigger` (of the state's own transitions) and `url`.

    `save` is the field to save its value in, which is `value`, or else its text as it is declared.
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
        """Its name in the data that Telegram sends back. It changes only when its meaning changes."""
        saved = None if self.save is None else self.saved_value
        meaning = msgspec.json.encode((self.to, self.trigger, self.guard, self.save, saved))
        return hashlib.blake2b(meaning, digest_size=6).hexdigest()

    @property
    def saved_value(self) -> str:
        return self.text if self.value is None else self.value


MediaKind = Literal["photo", "document", "video", "audio", "animation"]


class Media(_Declared, frozen=True):
    """A file that a state shows: a `file` on disk, uploaded once, or an `id`: a file_id or an address.

    `{field}`s are filled in. A value cannot lead out of the folder that is written in `file`; a file whose
    `id` has no value is left out.
    """

    kind: MediaKind
    file: str | None = None
    id: str | None = None


KeyRequest = Literal["contact", "location"]


class Key(_Declared, frozen=True, dict=True):
    """A key of the keyboard below the chat. It writes its text for the user, or shares what `request` names.

    Leads to `to` if it has one; otherwise what it writes or shares is handled as if the user had sent it by
    hand. `save` saves `value` or the text as it is declared; of a request, it saves what was shared.
    """

    text: str
    to: str | None = None
    request: KeyRequest | None = None
    guard: str | None = None
    save: Save = ()
    value: str | None = None

    @cached_property
    def trigger(self) -> str:
        if self.request is not None:
            return self.request
        meaning = msgspec.json.encode((self.to, self.guard, self.save, self.saved_value))
        return f"key#{hashlib.blake2b(meaning, digest_size=6).hexdigest()}"

    @property
    def saved_value(self) -> str:
        return self.text if self.value is None else self.value


class Choices(_Declared, frozen=True):
    """Buttons for the items of a list in the data, a page at a time: work has saved it there.

    `text` is filled with the fields of an item, or with `{item}` for a plain value, and with the data. `save`
    saves the item, or these fields of it. `empty` is said instead of the state's text if there is no item.
    """

    field: str
    to: str | None = None
    text: str = "{item}"
    guard: str | None = None
    save: Save = ()
    page: int = 8
    columns: int = 1
    empty: str | None = None

    @property
    def trigger(self) -> str:
        return f"item:{self.field}"

    def code(self, item: object) -> str:
        """The name of an item in the data of its button. It stays when the list changes around the item."""
        meaning = msgspec.json.encode((self.field, self.to, self.guard, self.save, item))
        return hashlib.blake2b(meaning, digest_size=6).hexdigest()


class Poll(_Declared, frozen=True):
    """While in the state, `data[key]` is subscribed to. `met`, `gone` and `reversed` are target states."""

    name: str
    key: str
    met: str
    gone: str | None = None
    reversed: str | None = None


class Timeout(_Declared, frozen=True):
    """Says a text every `seconds` in the state, `times` times; the next time it goes to `to`."""

    seconds: float
    to: str | None = None
    say: str | None = None
    times: int = 1


class Work(_Declared, frozen=True):
    """A work function that is begun on entering the state. `save`: the fields of its result to save."""

    name: str
    done: str
    failed: str
    save: Save = ()


class Call(_Declared, frozen=True):
    """A flow that is run on entering the state, until it ends. Then the session goes on to `to`.

    The called flow sees the data, and what it saves is gone when it ends, but for `save`: these fields of it.
    `ended:FINAL` is the trigger of a transition for one of its final states.
    """

    flow: str
    to: str
    save: Save = ()


OTHERWISE: Final = "Please use the buttons."


class FlowState(_Declared, frozen=True):
    """`say` and the texts of buttons are keys of the flow's texts, or literal texts with `{field}`s."""

    name: str
    say: str | None = None
    buttons: tuple[tuple[Button, ...], ...] = ()  # in rows
    on: tuple[Transition, ...] = ()  # the first whose guard holds is taken
    poll: Poll | None = None
    timeout: Timeout | None = None
    run: Work | None = None
    call: Call | None = None
    final: bool = False
    otherwise: str | None = None  # the reply to unexpected input; "" for none, None for the flow's
    media: tuple[Media, ...] = ()  # two and more are an album
    keys: tuple[tuple[Key, ...], ...] = ()  # in rows, below the chat
    choices: Choices | None = None  # buttons above the others
    in_place: bool | None = None  # changes the message of the pressed button; None: as the flow says

    def all_buttons(self) -> list[Button]:
        return [button for row in self.buttons for button in row]

    def all_keys(self) -> list[Key]:
        return [key for row in self.keys for key in row]

    @property
    def is_album(self) -> bool:
        return len(self.media) > 1

    def guards(self) -> list[str]:
        """The names of all its guards, each once."""
        parts: list[Transition | Button | Key | Choices] = [*self.on, *self.all_buttons(), *self.all_keys()]
        parts += [] if self.choices is None else [self.choices]
        return [guard for guard in dict.fromkeys(part.guard for part in parts) if guard is not None]


CONTENTS: Final = frozenset(
    ("animation", "audio", "contact", "document", "location", "photo", "sticker", "video", "voice", "other")
)
TEXT: Final = "text"
TIMEOUT: Final = "timeout"
OUTCOMES: Final = ("met", "gone", "reversed", "done", "failed", "ended")
_NAMED = re.compile(r"(button|item|signal|met|gone|reversed|done|failed|ended):(.+)", re.DOTALL)
_COMMAND = re.compile(r"/[A-Za-z0-9_]{1,32}")  # Telegram's rule


def trigger_kind(trigger: str) -> str | None:
    """Return command, text, content, timeout, or the word before the colon; None for no trigger."""
    if is_command(trigger):
        return "command"
    if trigger in {TEXT, TIMEOUT}:
        return trigger
    if trigger in CONTENTS:
        return "content"
    named = _NAMED.fullmatch(trigger)
    return named[1] if named else None


def trigger_name(trigger: str) -> str:
    return trigger.partition(":")[2]


def is_command(trigger: str) -> bool:
    return _COMMAND.fullmatch(trigger) is not None


def press_trigger(button: Button) -> str:
    """The trigger of a press of this button."""
    return f"button#{button.code}" if button.trigger is None else f"button:{button.trigger}"


def transitions_of(state: FlowState) -> list[Transition]:
    """All transitions of a state, in the order of trial: the declared ones, then those of buttons, keys,
    choices, poll, work and timeout. A declared one without a guard replaces those of the same trigger.
    """
    if state.final:
        return []
    unguarded = {transition.trigger for transition in state.on if transition.guard is None}
    outcomes = (
        transition for transition in _outcome_transitions(state) if transition.trigger not in unguarded
    )
    choices = [one for one in _choice_transitions(state) if one.trigger not in unguarded]
    return [*state.on, *_button_transitions(state), *_key_transitions(state), *choices, *outcomes]


def _button_transitions(state: FlowState) -> list[Transition]:
    """Without the buttons' guards, which are checked before a transition is looked for."""
    plain = {button.code: button for button in state.all_buttons() if button.to is not None}
    return [
        Transition(press_trigger(button), to=button.to, save=button.save or ()) for button in plain.values()
    ]


def _key_transitions(state: FlowState) -> list[Transition]:
    return [
        Transition(key.trigger, to=key.to, guard=key.guard, save=key.save)
        for key in state.all_keys()
        if key.to is not None
    ]


def _choice_transitions(state: FlowState) -> list[Transition]:
    choices = state.choices
    if choices is None or choices.to is None:
        return []
    return [Transition(choices.trigger, to=choices.to, guard=choices.guard, save=choices.save)]


def _outcome_transitions(state: FlowState) -> list[Transition]:
    transitions: list[Transition] = []
    if (poll := state.poll) is not None:
        ends = (("met", poll.met), ("gone", poll.gone), ("reversed", poll.reversed))
        transitions += [Transition(f"{kind}:{poll.name}", to=to) for kind, to in ends if to is not None]
    if (work := state.run) is not None:
        transitions += [
            Transition(f"done:{work.name}", to=work.done, save=work.save),
            Transition(f"failed:{work.name}", to=work.failed),
        ]
    if state.timeout is not None and state.timeout.to is not None:
        transitions.append(Transition(TIMEOUT, to=state.timeout.to))
    return transitions


MAX_PRESS_DATA: Final = 64  # bytes, https://core.telegram.org/bots/api#inlinekeyboardbutton
_PREFIX: Final = "f"


def page_code(page: int) -> str:
    """The name of a button that shows another page of a list, or this one."""
    return f"p{page}"


def page_of(code: str) -> int | None:
    """None: this is no such button. Codes of other buttons are hexadecimal."""
    number = code[1:]
    return int(number) if code.startswith("p") and number.isascii() and number.isdecimal() else None


class PressData(NamedTuple):
    flow: str
    visit: int
    button: str


def press_data(flow: str, visit: int, button: str) -> str:
    return f"{_PREFIX}:{flow}:{visit}:{button}"


def read_press(data: str) -> PressData | None:
    """None: this is not the data of a flow's button."""
    match data.split(":"):
        case [prefix, flow, visit, button] if prefix == _PREFIX and visit.isdecimal() and visit.isascii():
            return PressData(flow, int(visit), button)
        case _:
            return None
