"""A door for signed events (payments, deployments, …), and an event that came through it."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.inbound.arrivals import Arrival, hook_source
from tidegate.inbound.http.request import BODY_LIMIT
from tidegate.inbound.inbox.base import REMEMBER
from tidegate.inbound.signed import WINDOW, Headers, Scheme, check_scheme, key_of

SHORTEST_SECRET: Final = 16  # characters
LONGEST_WINDOW: Final = REMEMBER / 2  # seconds; a copy of one sent ahead of time passes for twice as long
HEADERS_KEPT: Final = 32
LONGEST_HEADER: Final = 1_000  # bytes; longer ones are not kept
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PRIVATE: Final = frozenset({b"authorization", b"proxy-authorization", b"cookie"})


def secrets_of(hook: str, given: object) -> tuple[str, ...]:
    """One text, or several, as somebody gave them."""
    found = (given,) if isinstance(given, str) else given
    if not isinstance(found, Sequence) or not all(isinstance(one, str) for one in found):
        raise BadInputError(
            f"hook {hook} needs a secret, a text, or several: without one, nobody may come in"
        )
    return tuple(found)


class Hook(msgspec.Struct, frozen=True):
    """`POST /hooks/{name}`. Any of `secrets` is right, so that one can be changed without a gap.

    Raises BadInputError for a hook that could let in anybody. No text made of it shows a secret.
    """

    name: str
    secrets: tuple[str, ...]
    scheme: Scheme = "standard"
    window: float = WINDOW  # seconds
    limit: int = BODY_LIMIT  # bytes
    attempts: int = 5

    def __post_init__(self) -> None:
        check_scheme(self.scheme)
        if not _NAME.fullmatch(self.name):
            raise BadInputError(f"{self.name!r} cannot be the name of a hook: use letters, digits, - and _")
        if not self.secrets:
            raise BadInputError(f"hook {self.name} needs a secret: without one, nobody may come in")
        for secret in self.secrets:
            self._check(secret)
        if self.window > LONGEST_WINDOW:
            raise BadInputError(
                f"hook {self.name}: a window is {LONGEST_WINDOW:g} s at most, or a copy could come in again"
            )
        if not self.window > 0 or self.limit < 1 or self.attempts < 1:
            raise BadInputError(f"hook {self.name}: window, limit and attempts are more than 0")

    def _check(self, secret: str) -> None:
        if len(secret) < SHORTEST_SECRET:
            raise BadInputError(
                f"a secret of hook {self.name} is too short: {SHORTEST_SECRET} characters at least"
            )
        try:
            key = key_of(self.scheme, secret)
        except ValueError:
            key = b""
        if not key:
            raise BadInputError(f"a secret of hook {self.name} is spoiled: after whsec_ comes base64")

    def __repr__(self) -> str:
        return f"Hook({self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # else rich, in a traceback, would show the fields
        return [("name", self.name)]


class HookEvent(msgspec.Struct, frozen=True):
    """As it came. The signature was right; what is in the body is for whoever handles it to judge."""

    hook: str
    id: str
    timestamp: float | None  # when it was sent, as the sender says
    received_at: float
    headers: dict[str, str]  # names in small letters; some, and no credentials
    body: bytes

    def json(self) -> Any:  # noqa: ANN401  (whatever the sender sends)
        """Raises BadInputError if the body is no JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadInputError(f"event {self.id} of hook {self.hook} is no JSON") from None


def arrival_of_event(event: HookEvent) -> Arrival:
    """Each in a lane of its own: events do not wait for each other."""
    return Arrival(hook_source(event.hook), event.id, event.id, pack(event))


def pack(event: HookEvent) -> bytes:
    return msgspec.msgpack.encode(event)


def unpack(body: bytes) -> HookEvent:
    return msgspec.msgpack.decode(body, type=HookEvent)


def kept_headers(headers: Headers) -> dict[str, str]:
    kept = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers.items()
        if name not in _PRIVATE and len(name) + len(value) <= LONGEST_HEADER
    ]
    return dict(kept[:HEADERS_KEPT])
