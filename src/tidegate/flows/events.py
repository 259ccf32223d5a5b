"""Events of a session. Each has an id, the same if it is repeated, and its time."""

from typing import Any, Literal, assert_never

import msgspec


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    id: str  # unique for its cause: an update's number, a timer's session and time
    at: float  # seconds since the epoch
    language: str | None = None  # of the user, as Telegram names it; saved when a session begins


class Begin(_Event, frozen=True):
    """Begins a session anew. `data`: its first fields."""

    data: dict[str, Any] = {}


class Command(_Event, frozen=True):
    """A command with its slash and without the bot's name: `/cancel`. Its value is the argument.

    `data`: the first fields of a session, if it begins one.
    """

    name: str
    argument: str = ""
    data: dict[str, Any] = {}


class Text(_Event, frozen=True):
    text: str


class Content(_Event, frozen=True):
    """A message other than text, of one of the kinds in `CONTENTS`."""

    kind: str
    value: Any = None


class ButtonPress(_Event, frozen=True, tag="Press"):  # the name in stored sessions
    """A button was pressed. `query` is the id that the answer has to name; `message` that of the message
    under which the button is, if it can be edited.
    """

    data: str
    query: str = ""
    message: int | None = None
    has_media: bool = False  # the message
    value: Any = None  # that of the button, or the item of a list, as guards see it


class Signal(_Event, frozen=True):
    """The application reports that something happened."""

    name: str
    value: Any = None


class Polled(_Event, frozen=True):
    """News of a key that the session is subscribed to."""

    poll: str
    key: str
    kind: Literal["met", "reversed", "gone"] = "met"
    value: Any = None


class TimedOut(_Event, frozen=True):
    """The timer that was set on this visit rang."""

    visit: int


class WorkDone(_Event, frozen=True):
    work: str
    visit: int
    result: Any = None


class WorkFailed(_Event, frozen=True):
    work: str
    visit: int
    reason: str = ""


class Expired(_Event, frozen=True):
    """Ends the session if its lifetime is over, and otherwise brings it in line with a changed flow."""


FlowEvent = (
    Begin
    | Command
    | Text
    | Content
    | ButtonPress
    | Signal
    | Polled
    | TimedOut
    | WorkDone
    | WorkFailed
    | Expired
)
# Their names until 1.0.
Event = FlowEvent
Press = ButtonPress


def trigger_of(event: Command | Text | Content | Signal | Polled | WorkDone | WorkFailed) -> str:
    """Return the trigger of the transitions that this event may take."""
    match event:
        case Command():
            trigger = event.name
        case Text():
            trigger = "text"
        case Content():
            trigger = event.kind
        case Signal():
            trigger = f"signal:{event.name}"
        case Polled():
            trigger = f"{event.kind}:{event.poll}"
        case WorkDone():
            trigger = f"done:{event.work}"
        case WorkFailed():
            trigger = f"failed:{event.work}"
        case _:
            assert_never(event)
    return trigger


def value_of(event: FlowEvent) -> Any:  # noqa: ANN401  (whatever came)
    """Return the value that a transition taken on this event can save."""
    match event:
        case Text():
            return event.text
        case Command():
            return event.argument
        case Content() | Signal() | Polled():
            return event.value
        case WorkDone():
            return event.result
        case WorkFailed():
            return event.reason
        case _:
            return None
