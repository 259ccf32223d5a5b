"""What is to be done for a session, as data: the machine decides, an executor does."""

import msgspec


class _Effect(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    pass


class ShownButton(msgspec.Struct, frozen=True, omit_defaults=True):
    """Has either `data`, which comes back as a Press, or a `url`."""

    text: str
    data: str | None = None
    url: str | None = None


class SayText(_Effect, frozen=True, tag="Say"):  # the name in stored sessions
    text: str
    buttons: tuple[tuple[ShownButton, ...], ...] = ()


class AnswerPress(_Effect, frozen=True, tag="Answer"):  # the name in stored sessions
    """To a press, of which there is one answer. An empty one only ends the waiting."""

    query: str
    text: str = ""


class Subscribe(_Effect, frozen=True):
    poll: str
    key: str


class Unsubscribe(_Effect, frozen=True):
    """May come for what has been told already, or never was subscribed to."""

    poll: str
    key: str


class SetTimer(_Effect, frozen=True):
    """A session has one timer: this takes the place of the one before. When it rings: `TimedOut(visit)`."""

    at: float  # seconds since the epoch
    visit: int


class ClearTimer(_Effect, frozen=True):
    pass


class RunWork(_Effect, frozen=True, tag="Run"):  # the name in stored sessions
    """Once for this visit; then `WorkDone` or `WorkFailed` with the same visit."""

    work: str
    visit: int


class EndSession(_Effect, frozen=True, tag="End"):  # the name in stored sessions
    """The last one of a session, which ended in this state: a final one, unless it expired there."""

    state: str
    expired: bool = False


Effect = SayText | AnswerPress | Subscribe | Unsubscribe | SetTimer | ClearTimer | RunWork | EndSession


class PendingEffect(msgspec.Struct, frozen=True, array_like=True):
    """Decided, and perhaps not done yet. `event` and `place` name it: the same when it is decided again."""

    event: str
    place: int
    effect: Effect
