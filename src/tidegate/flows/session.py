"""Where one person is in one conversation: all of it, in one small record."""

import hashlib
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.flows.effects import PendingEffect, Subscribe

MAX_RECENT_EVENTS: Final = (
    8  # events known again: updates, timers and polls that cross a crash come in any order
)


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Written as a whole, in one write: where it is, which events brought it there, what is yet to be done.

    Times are seconds since the epoch. `visit` rises with each entry into a state, also over sessions. `tag`
    tells this session from any other of the same person: what is done for it is known by it.
    """

    flow: str
    state: str
    visit: int
    tag: str = ""
    data: dict[str, Any] = {}
    language: str | None = None
    entered_at: float = 0.0
    expires_at: float | None = None
    due: float | None = None  # when the state's timeout is
    timed: bool = False  # the state had a timeout when that was last looked at
    nudged: int = 0
    held: Subscribe | None = None  # what is subscribed to for it, whatever its flow says by now
    ended: bool = False
    recent: tuple[str, ...] = ()  # ids of events, the newest last
    pending: tuple[PendingEffect, ...] = ()

    @property
    def timer(self) -> float | None:
        """When its timer rings: the timeout, or the end of its lifetime."""
        return min((at for at in (self.due, self.expires_at) if at is not None), default=None)

    def done(self) -> "Session":
        """With nothing left to do."""
        return msgspec.structs.replace(self, pending=()) if self.pending else self

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)


_decoder = msgspec.json.Decoder(Session)


def read_session(written: bytes | str) -> Session:
    """What `to_json` wrote."""
    try:
        return _decoder.decode(written)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadInputError(f"this is no session of a flow: {error}") from error


def tag_of(cause: str) -> str:
    """Of a session that this event began: the same if it comes again, as one that was cut short does."""
    return hashlib.blake2b(cause.encode(), digest_size=5).hexdigest()
