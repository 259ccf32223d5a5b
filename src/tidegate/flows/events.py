"""What happens to a session. Each has an id, the same if it comes again, and the time it happened at."""

from typing import Any, Literal, assert_never

import msgspec


class _Happened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    id: str  # unique for its cause: an update's number, a timer's session and time
    at: float  # seconds since the epoch
    language: str | None = None  # of the person, as Telegram has it; kept when a session begins


class Begin(_Happened, frozen=True):
    """Begins anew, whatever was. `data`: the fields that are known from the start."""

    data: dict[str, Any] = {}


class Command(_Happened, frozen=True):
    """With its slash and without the bot's name: `/cancel`. Its value is the argument.

    `data`: the fields that are known from the start, if it begins a session.
    """

    name: str
    argument: str = ""
    data: dict[str, Any] = {}


class Text(_Happened, frozen=True):
    text: str


class Content(_Happened, frozen=True):
    """A message that is no text, of one of `triggers.CONTENTS`; `value` as the executor gives it."""

    kind: str
    value: Any = None


class ButtonPress(_Happened, frozen=True, tag="Press"):  # the name in stored sessions
    """A button was pressed. `query` is what Telegram wants the answer to name."""

    data: str
    query: str = ""


class Signal(_Happened, frozen=True):
    """The application says that something happened."""

    name: str
    value: Any = None


class Polled(_Happened, frozen=True):
    """What has become of something subscribed to."""

    poll: str
    key: str
    kind: Literal["met", "reversed", "gone"] = "met"
    value: Any = None


class TimedOut(_Happened, frozen=True):
    """The session's timer rang, which was set on this visit."""

    visit: int


class WorkDone(_Happened, frozen=True):
    work: str
    visit: int
    result: Any = None


class WorkFailed(_Happened, frozen=True):
    work: str
    visit: int
    reason: str = ""


class Expired(_Happened, frozen=True):
    """Somebody looked: does nothing before the session's time is over."""


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


def trigger_of(event: Command | Text | Content | Signal | Polled | WorkDone | WorkFailed) -> str:
    """What a way must name to be taken on it."""
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


def value_of(event: FlowEvent) -> Any:  # noqa: ANN401  (whatever came with it)
    """What a way that is taken on this event can save."""
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
