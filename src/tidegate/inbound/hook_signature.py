"""Verifies the signature and the time of a signed hook request, for several providers' schemes. Pure."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, assert_never, get_args

import msgspec

from tidegate.errors import BadInputError

HOOK_WINDOW: Final = 300.0  # seconds that a sender's clock may be off, and that a copied request is valid
MAX_EVENT_ID_LENGTH: Final = 255  # characters
MAX_SIGNATURES: Final = 16  # compared in one request: a sender that replaces its secret sends two
_MAX_TIME_DIGITS: Final = 12  # of a time in seconds: thousands of years

Headers = Mapping[bytes, bytes]  # names in lower case


class HmacSignature(msgspec.Struct, frozen=True):
    """HMAC-SHA256 in hexadecimal, in a header of your choice, with "sha256=" before it or without.

    With a header for the time (in seconds), "time.body" is signed, otherwise the body. The id of an event is
    in a header, or in a field of the JSON body. Headers are not signed: a copy with another id is accepted.
    """

    signature: str = "x-signature"
    timestamp: str | None = None
    id_header: str | None = None
    id_field: str = "id"


# standard: Standard Webhooks. Stripe's and GitHub's as they document them; GitHub's have no time.
_NamedScheme = Literal["standard", "stripe", "github"]
SignatureScheme = _NamedScheme | HmacSignature


class SignedEvent(NamedTuple):
    id: str
    timestamp: float | None  # when it was sent, as its sender says


class SignatureRefusal(NamedTuple):
    """401 if it is not signed, or not lately; 400 if it has no id."""

    status: int
    reason: str


_UNSIGNED: Final = SignatureRefusal(401, "the signature is missing")


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
        return SignatureRefusal(401, "the signature is wrong")
    sent_at = None if request.timestamp is None else float(request.timestamp)
    if sent_at is not None and abs(now - sent_at) > window:
        return SignatureRefusal(401, "the timestamp is too old, or ahead of time")
    event_id = _readable(_field(body, request.id_field) if request.id_field else request.id)
    return SignedEvent(event_id, sent_at) if event_id else SignatureRefusal(400, "the event has no id")


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
        return SignatureRefusal(400, "webhook-id is missing")
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
    return SignatureRefusal(401, f"{name} is missing, or no time in seconds")


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
