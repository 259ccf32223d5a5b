"""The session of one user in one flow: one small record."""

import hashlib
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.flows.effects import PendingEffect, Subscribe

MAX_RECENT_EVENTS: Final = 8  # updates, timers and news that are repeated after a crash come in any order


class Screen(msgspec.Struct, frozen=True, array_like=True):
    """The message that states which are shown in place change."""

    message: int
    has_media: bool = False


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state, the events that led to it, and the effects that are not done yet, written as a whole.

    Times are seconds since the epoch. `visit` rises with each entry into a state, also across sessions.
    `tag` tells this session from others of the same user, as a part of the dedup keys of its effects.
    """

    flow: str
    state: str
    visit: int
    tag: str = ""
    data: dict[str, Any] = {}
    language: str | None = None
    entered_at: float = 0.0
    expires_at: float | None = None
    due: float | None = None  # the time of the state's timeout
    timed: bool = False  # the state had a timeout when it was last checked
    nudged: int = 0
    held: Subscribe | None = None  # its subscription, even if the flow has changed since
    screen: Screen | None = None  # unless something stands below it in the chat
    frames: tuple[dict[str, Any], ...] = ()  # the data of the flows that called, the first caller first
    pages: dict[str, int] = {}  # of lists that were turned to another page than the first, by state
    has_keys: bool = False  # a keyboard is shown below the chat
    ended: bool = False
    recent: tuple[str, ...] = ()  # ids of events, the newest last
    pending: tuple[PendingEffect, ...] = ()

    @property
    def timer(self) -> float | None:
        """The time of its timer: the timeout, or the end of its lifetime."""
        return min((at for at in (self.due, self.expires_at) if at is not None), default=None)

    def done(self) -> "Session":
        """With nothing left to do."""
        return msgspec.structs.replace(self, pending=()) if self.pending else self

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)


_decoder = msgspec.json.Decoder(Session)


def read_session(written: bytes | str) -> Session:
    """Read what `to_json` wrote. Raises BadInputError."""
    try:
        return _decoder.decode(written)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadInputError(f"this is no session of a flow: {error}") from error


def tag_of(cause: str) -> str:
    """The tag of a session that this event began: the same if the event is repeated."""
    return hashlib.blake2b(cause.encode(), digest_size=5).hexdigest()
