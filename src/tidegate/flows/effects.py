"""Effects: what the machine decides to do for a session, as data that an executor carries out."""

import msgspec

from tidegate.flows.model import MediaKind


class _Effect(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    pass


class ShownButton(msgspec.Struct, frozen=True, omit_defaults=True):
    """Has either `data`, which comes back as a ButtonPress, or a `url`."""

    text: str
    data: str | None = None
    url: str | None = None


class ShownKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key of the keyboard below the chat. `request`: contact or location."""

    text: str
    request: str | None = None


class ShownMedia(msgspec.Struct, frozen=True, omit_defaults=True):
    """Has either a `file`, which is a path, or an `id`."""

    kind: MediaKind
    file: str | None = None
    id: str | None = None


class SayText(_Effect, frozen=True, tag="Say"):  # the name in stored sessions
    """A message; of several `media` an album, which has no buttons. The text is their caption then.

    `edits`: the message that is changed into this one, instead of sending a new one.
    """

    text: str
    buttons: tuple[tuple[ShownButton, ...], ...] = ()
    media: tuple[ShownMedia, ...] = ()
    keys: tuple[tuple[ShownKey, ...], ...] = ()
    removes_keys: bool = False
    edits: int | None = None


class DeleteMessage(_Effect, frozen=True):
    """Another message has taken its place."""

    message: int


class AnswerPress(_Effect, frozen=True, tag="Answer"):  # the name in stored sessions
    """The one answer to a press. An empty text only ends the waiting."""

    query: str
    text: str = ""


class Subscribe(_Effect, frozen=True):
    poll: str
    key: str


class Unsubscribe(_Effect, frozen=True):
    """May come for a key that is not subscribed any more."""

    poll: str
    key: str


class SetTimer(_Effect, frozen=True):
    """Replaces the session's one timer. When it rings, `TimedOut(visit)` follows."""

    at: float  # seconds since the epoch
    visit: int


class ClearTimer(_Effect, frozen=True):
    pass


class RunWork(_Effect, frozen=True, tag="Run"):  # the name in stored sessions
    """Done once for this visit; `WorkDone` or `WorkFailed` with the same visit follows."""

    work: str
    visit: int


class EndSession(_Effect, frozen=True, tag="End"):  # the name in stored sessions
    """The last effect of a session, which ended in this state: a final one, unless it expired."""

    state: str
    expired: bool = False


Effect = (
    SayText
    | DeleteMessage
    | AnswerPress
    | Subscribe
    | Unsubscribe
    | SetTimer
    | ClearTimer
    | RunWork
    | EndSession
)

# Their names until 1.0.
Say = SayText
Answer = AnswerPress
Run = RunWork
End = EndSession


class PendingEffect(msgspec.Struct, frozen=True, array_like=True):
    """An effect that may not be done yet. `event` and `place` name it, the same if it is decided again."""

    event: str
    place: int
    effect: Effect
