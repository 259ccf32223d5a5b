"""Signed hooks (payments, deployments, …) and the events that they receive."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.inbound.hook_signature import HOOK_WINDOW, Headers, SignatureScheme, check_scheme, signing_key
from tidegate.inbound.inbox import DEDUP_SECONDS, InboxItem, hook_source
from tidegate.inbound.webhook_request import MAX_BODY_BYTES

MIN_SECRET_LENGTH: Final = 16  # characters
# A copy of an event that was dated ahead of time is valid for twice the window: it must be recognised.
MAX_HOOK_WINDOW: Final = DEDUP_SECONDS / 2
MAX_HEADERS: Final = 32  # kept with an event
MAX_HEADER_BYTES: Final = 1_000  # longer ones are not kept
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PRIVATE_HEADERS: Final = frozenset({b"authorization", b"proxy-authorization", b"cookie"})


def parse_secrets(hook: str, given: object) -> tuple[str, ...]:
    """Return the secrets from one text or several. Raises BadInputError for anything else."""
    found = (given,) if isinstance(given, str) else given
    if not isinstance(found, Sequence) or not all(isinstance(one, str) for one in found):
        raise BadInputError(
            f"hook {hook} needs a secret, a text, or several: without one, nothing is accepted"
        )
    return tuple(found)


class Hook(msgspec.Struct, frozen=True):
    """`POST /hooks/{name}`. Any of `secrets` is right, so that one can be replaced without a gap.

    Raises BadInputError for a hook that would accept anybody's events. Its repr shows no secret.
    """

    name: str
    secrets: tuple[str, ...]
    scheme: SignatureScheme = "standard"
    window: float = HOOK_WINDOW  # seconds
    limit: int = MAX_BODY_BYTES
    attempts: int = 5

    def __post_init__(self) -> None:
        check_scheme(self.scheme)
        if not _NAME.fullmatch(self.name):
            raise BadInputError(f"{self.name!r} cannot be the name of a hook: use letters, digits, - and _")
        if not self.secrets:
            raise BadInputError(f"hook {self.name} needs a secret: without one, nothing is accepted")
        for secret in self.secrets:
            self._check_secret(secret)
        if self.window > MAX_HOOK_WINDOW:
            raise BadInputError(
                f"hook {self.name}: a window is {MAX_HOOK_WINDOW:g} s at most, or a copy could pass again"
            )
        if not self.window > 0 or self.limit < 1 or self.attempts < 1:
            raise BadInputError(f"hook {self.name}: window, limit and attempts must be more than 0")

    def _check_secret(self, secret: str) -> None:
        if len(secret) < MIN_SECRET_LENGTH:
            raise BadInputError(
                f"a secret of hook {self.name} is too short: {MIN_SECRET_LENGTH} characters at least"
            )
        try:
            key = signing_key(self.scheme, secret)
        except ValueError:
            key = b""
        if not key:
            raise BadInputError(f"a secret of hook {self.name} is not valid: base64 must follow whsec_")

    def __repr__(self) -> str:
        return f"Hook({self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # else rich would show the fields in a traceback
        return [("name", self.name)]


class HookEvent(msgspec.Struct, frozen=True):
    """An event as it was received. Its signature was right; its handler judges the body."""

    hook: str
    id: str
    timestamp: float | None  # when it was sent, as its sender says
    received_at: float
    headers: dict[str, str]  # names in lower case; not all of them, and no credentials
    body: bytes

    def json(self) -> Any:  # noqa: ANN401  (whatever the sender sends)
        """Raises BadInputError if the body is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadInputError(f"event {self.id} of hook {self.hook} is not JSON") from None


def event_item(event: HookEvent) -> InboxItem:
    """Each event has a lane of its own: events do not wait for each other."""
    return InboxItem(hook_source(event.hook), event.id, event.id, pack_event(event))


def pack_event(event: HookEvent) -> bytes:
    return msgspec.msgpack.encode(event)


def unpack_event(body: bytes) -> HookEvent:
    return msgspec.msgpack.decode(body, type=HookEvent)


def safe_headers(headers: Headers) -> dict[str, str]:
    kept = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers.items()
        if name not in _PRIVATE_HEADERS and len(name) + len(value) <= MAX_HEADER_BYTES
    ]
    return dict(kept[:MAX_HEADERS])
