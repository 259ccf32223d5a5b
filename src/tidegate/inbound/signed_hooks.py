"""Signed hooks (payments, deployments, …): declaration, signatures, and the events that they receive."""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, assert_never, get_args

import msgspec

from tidegate.errors import BadInputError
from tidegate.inbound.inbox import DEDUP_SECONDS, InboxItem, hook_source
from tidegate.inbound.webhook_request import MAX_BODY_BYTES
from tidegate.scrubber import hide

HOOK_WINDOW: Final = 300.0  # seconds that a sender's clock may be off, and that a copied request is valid
MAX_EVENT_ID_LENGTH: Final = 255  # characters
MAX_SIGNATURES: Final = 16  # compared in one request: a sender that replaces its secret sends two
MIN_SECRET_LENGTH: Final = 16  # characters
# A copy of an event that was dated ahead of time is valid for twice the window: it must be recognised.
MAX_HOOK_WINDOW: Final = DEDUP_SECONDS / 2
MAX_HEADERS: Final = 32  # kept with an event
MAX_HEADER_BYTES: Final = 1_000  # longer ones are not kept
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PRIVATE_HEADERS: Final = frozenset({b"authorization", b"proxy-authorization", b"cookie"})
_MAX_TIME_DIGITS: Final = 12  # of a time in seconds: thousands of years

Headers = Mapping[bytes, bytes]  # names in lower case


class HmacSignature(msgspec.Struct, frozen=True):
    """HMAC-SHA256 in hexadecimal, in a header of your choice, with "sha256=" before it or without.

    With a header for the time (in seconds), "time.body" is signed, otherwise the body. The id of an event is
    in a header, or in a field of the JSON body. Headers are not signed: a copy with another id in its header
    is accepted, unless the hook has `dedup="body"`.
    """

    signature: str = "x-signature"
    timestamp: str | None = None
    id_header: str | None = None
    id_field: str = "id"


# standard: Standard Webhooks. Stripe's and GitHub's as they document them; GitHub's have no time.
_NamedScheme = Literal["standard", "stripe", "github"]
SignatureScheme = _NamedScheme | HmacSignature
EventIdentity = Literal["id", "body"]
"""The mark of an event. Some schemes (GitHub's) do not sign the id, so a copy can have another one."""


def is_hook_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


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
    dedup: EventIdentity = "id"

    def __post_init__(self) -> None:
        hide(*self.secrets)
        check_scheme(self.scheme)
        if not is_hook_name(self.name):
            raise BadInputError(f"{self.name!r} cannot be the name of a hook: use letters, digits, - and _")
        if not self.secrets:
            raise BadInputError(f"hook {self.name} needs a secret: without one, nothing is accepted")
        for secret in self.secrets:
            self._check_secret(secret)
        if self.dedup not in get_args(EventIdentity):
            raise BadInputError(f'hook {self.name}: dedup is "id" or "body", not {self.dedup!r}')
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


def event_item(event: HookEvent, dedup: EventIdentity = "id") -> InboxItem:
    """Each event has a lane of its own: events do not wait for each other."""
    key = event.id if dedup == "id" else f"sha256:{hashlib.sha256(event.body).hexdigest()}"
    return InboxItem(hook_source(event.hook), key, key, pack_event(event))


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


# Signatures: pure.


class SignedEvent(NamedTuple):
    id: str
    timestamp: float | None  # when it was sent, as its sender says


class SignatureRefusal(NamedTuple):
    """`is_signed`: the signature is right and fresh, and the event has no id."""

    reason: str
    is_signed: bool = False


_UNSIGNED: Final = SignatureRefusal("the signature is missing")


class _UnverifiedRequest(NamedTuple):
    """The parts of a request before its signature is checked."""

    signatures: list[bytes]
    signed: bytes
    timestamp: bytes | None = None
    id: bytes | None = None
    id_field: str | None = None  # the field of the body that holds the id


def check_scheme(scheme: object) -> None:
    """Raises BadInputError for an unknown scheme, which lists the known ones."""
    if not isinstance(scheme, HmacSignature) and scheme not in get_args(_NamedScheme):
        known = ", ".join(f'"{name}"' for name in get_args(_NamedScheme))
        raise BadInputError(f"there is no scheme {scheme!r}: write {known} or HmacSignature(…) of tidegate")


def verify_signature(
    scheme: SignatureScheme,
    secrets: Iterable[str],
    headers: Headers,
    body: bytes,
    now: float,
    *,
    window: float = HOOK_WINDOW,
) -> SignedEvent | SignatureRefusal:
    """Never raises. Any of the secrets may be right. The body is parsed after the signature is verified."""
    request = _parse_request(scheme, headers, body)
    if isinstance(request, SignatureRefusal):
        return request
    if not _is_signed(scheme, secrets, request):
        return SignatureRefusal("the signature is wrong")
    sent_at = None if request.timestamp is None else float(request.timestamp)
    if sent_at is not None and abs(now - sent_at) > window:
        return SignatureRefusal("the timestamp is too old, or ahead of time")
    event_id = _readable(_field(body, request.id_field) if request.id_field else request.id)
    if not event_id:
        return SignatureRefusal("the event has no id", is_signed=True)
    return SignedEvent(event_id, sent_at)


def signing_key(scheme: SignatureScheme, secret: str) -> bytes:
    """Raises ValueError for a secret of Standard Webhooks that is not base64."""
    if scheme == "standard" and secret.startswith("whsec_"):
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return secret.encode()


def _is_signed(scheme: SignatureScheme, secrets: Iterable[str], request: _UnverifiedRequest) -> bool:
    """Compare everything: the time must not tell which one was right."""
    found = False
    for secret in secrets:
        right = hmac.new(signing_key(scheme, secret), request.signed, hashlib.sha256).digest()
        for signature in request.signatures[:MAX_SIGNATURES]:
            found |= hmac.compare_digest(right, signature)
    return found


def _parse_request(
    scheme: SignatureScheme, headers: Headers, body: bytes
) -> _UnverifiedRequest | SignatureRefusal:
    """Return it with at least one signature, and with a time if the scheme has one."""
    match scheme:
        case "standard":
            return _standard(headers, body)
        case "stripe":
            return _stripe(headers, body)
        case "github":
            return _github(headers, body)
        case HmacSignature():
            return _hmac(scheme, headers, body)
        case _:
            assert_never(scheme)


def _standard(headers: Headers, body: bytes) -> _UnverifiedRequest | SignatureRefusal:
    event_id, time = headers.get(b"webhook-id", b""), headers.get(b"webhook-timestamp", b"")
    versions = (one.partition(b",") for one in headers.get(b"webhook-signature", b"").split(b" "))
    signatures = _base64(text for version, _, text in versions if version == b"v1")
    if not signatures:
        return _UNSIGNED
    if not event_id:  # it is signed, too: otherwise only the signature would be called wrong
        return SignatureRefusal("webhook-id is missing")
    if not _is_time(time):
        return _without_time("webhook-timestamp")
    return _UnverifiedRequest(signatures, b".".join((event_id, time, body)), time, event_id)


def _stripe(headers: Headers, body: bytes) -> _UnverifiedRequest | SignatureRefusal:
    pairs = [one.strip().partition(b"=") for one in headers.get(b"stripe-signature", b"").split(b",")]
    time = next((value for name, _, value in pairs if name == b"t"), b"")
    signatures = _hex(value for name, _, value in pairs if name == b"v1")
    if not signatures:
        return _UNSIGNED
    if not _is_time(time):
        return _without_time("t= of stripe-signature")
    return _UnverifiedRequest(signatures, time + b"." + body, time, id_field="id")


def _github(headers: Headers, body: bytes) -> _UnverifiedRequest | SignatureRefusal:
    signatures = _hex([headers.get(b"x-hub-signature-256", b"")])
    if not signatures:
        return _UNSIGNED
    return _UnverifiedRequest(signatures, body, id=headers.get(b"x-github-delivery"))


def _hmac(scheme: HmacSignature, headers: Headers, body: bytes) -> _UnverifiedRequest | SignatureRefusal:
    signatures = _hex([_header(headers, scheme.signature)])
    event_id = _header(headers, scheme.id_header) if scheme.id_header else None
    field = None if scheme.id_header else scheme.id_field
    if not signatures:
        return _UNSIGNED
    if scheme.timestamp is None:
        return _UnverifiedRequest(signatures, body, None, event_id, field)
    time = _header(headers, scheme.timestamp)
    if not _is_time(time):
        return _without_time(scheme.timestamp)
    return _UnverifiedRequest(signatures, time + b"." + body, time, event_id, field)


def _without_time(name: str) -> SignatureRefusal:
    return SignatureRefusal(f"{name} is missing, or no time in seconds")


def _header(headers: Headers, name: str) -> bytes:
    return headers.get(name.lower().encode(), b"")


def _is_time(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _MAX_TIME_DIGITS


def _hex(texts: Iterable[bytes]) -> list[bytes]:
    return _decode_each(texts, lambda text: binascii.unhexlify(text.removeprefix(b"sha256=")))


def _base64(texts: Iterable[bytes]) -> list[bytes]:
    return _decode_each(texts, lambda text: base64.b64decode(text, validate=True))


def _decode_each(texts: Iterable[bytes], decode: Callable[[bytes], bytes]) -> list[bytes]:
    """Leave out what cannot be decoded."""
    found: list[bytes] = []
    for text in texts:
        with suppress(ValueError):
            found.append(decode(text.strip()))
    return [one for one in found if one]


def _field(body: bytes, name: str) -> bytes | None:
    """A text or a number at the top of a JSON object."""
    try:
        value = msgspec.json.decode(body, type=dict[str, Any]).get(name)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return str(value).encode("utf-8", "replace") if type(value) in {str, int} else None


def _readable(event_id: bytes | None) -> str | None:
    if not event_id or len(event_id) > MAX_EVENT_ID_LENGTH:
        return None
    text = event_id.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else None
