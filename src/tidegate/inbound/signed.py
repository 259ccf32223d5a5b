"""Whether who knows the secret has signed an event, and lately: pure, for the customs of several senders."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, assert_never

import msgspec

WINDOW: Final = 300.0  # seconds that a sender's clock may be off, and that a copy of an event is of use
LONGEST_ID: Final = 255  # characters
_DIGITS: Final = 12  # of a time in seconds: thousands of years
SIGNATURES: Final = 16  # that are looked at: a sender that changes its secret sends two

Headers = Mapping[bytes, bytes]  # names in small letters


class Plain(msgspec.Struct, frozen=True):
    """HMAC-SHA256 in hexadecimal, in a header of one's own choice, "sha256=" before it or not.

    With a header for the time (in seconds), what is signed is "time.body", otherwise the body. The id of an
    event is in a header, or in a field of a JSON object. A header is not signed: a copy
    with another id passes.
    """

    signature: str = "x-signature"
    timestamp: str | None = None
    id_header: str | None = None
    id_field: str = "id"


# standard: Standard Webhooks. Stripe's and GitHub's as they document them; GitHub's have no time.
Scheme = Literal["standard", "stripe", "github"] | Plain


class Event(NamedTuple):
    id: str
    timestamp: float | None  # when it was sent, as the sender says


class Refusal(NamedTuple):
    """401 for what nobody signed, or not lately; 400 for what cannot be told from others."""

    status: int
    reason: str


class _Claim(NamedTuple):
    """What a request says of itself, not believed yet."""

    signatures: list[bytes]
    signed: bytes
    timestamp: bytes | None = None
    id: bytes | None = None
    id_field: str | None = None  # where the id is, if it is in the body


def check(
    scheme: Scheme,
    secrets: Iterable[str],
    headers: Headers,
    body: bytes,
    now: float,
    *,
    window: float = WINDOW,
) -> Event | Refusal:
    """Never raises. Any of the secrets will do. The body is not looked into before the signature is right."""
    claim = _claim(scheme, headers, body)
    if claim is None or not claim.signatures:
        return Refusal(401, "the signature is missing")
    if not _is_signed(scheme, secrets, claim):
        return Refusal(401, "the signature is wrong")
    sent_at = None if claim.timestamp is None else float(claim.timestamp)
    if sent_at is not None and abs(now - sent_at) > window:
        return Refusal(401, "the timestamp is too old, or ahead of time")
    name = _field(body, claim.id_field) if claim.id_field else claim.id
    event_id = _readable(name)
    return Event(event_id, sent_at) if event_id else Refusal(400, "the event has no id")


def key_of(scheme: Scheme, secret: str) -> bytes:
    """What is signed with. Raises ValueError for a secret of Standard Webhooks that is spoiled."""
    if scheme == "standard" and secret.startswith("whsec_"):
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return secret.encode()


def _is_signed(scheme: Scheme, secrets: Iterable[str], claim: _Claim) -> bool:
    found = False
    for secret in secrets:
        right = hmac.new(key_of(scheme, secret), claim.signed, hashlib.sha256).digest()
        for signature in claim.signatures[:SIGNATURES]:
            found |= hmac.compare_digest(right, signature)
    return found


def _claim(scheme: Scheme, headers: Headers, body: bytes) -> _Claim | None:
    """None if there is no signature, or no time that should be there."""
    match scheme:
        case "standard":
            return _standard(headers, body)
        case "stripe":
            return _stripe(headers, body)
        case "github":
            signature = headers.get(b"x-hub-signature-256", b"")
            return _Claim(_hex([signature]), body, id=headers.get(b"x-github-delivery"))
        case Plain():
            return _plain(scheme, headers, body)
        case _:
            assert_never(scheme)


def _standard(headers: Headers, body: bytes) -> _Claim | None:
    event_id, time = headers.get(b"webhook-id", b""), headers.get(b"webhook-timestamp", b"")
    if not _is_time(time):
        return None
    versions = (one.partition(b",") for one in headers.get(b"webhook-signature", b"").split(b" "))
    signatures = _base64(text for version, _, text in versions if version == b"v1")
    return _Claim(signatures, b".".join((event_id, time, body)), time, event_id)


def _stripe(headers: Headers, body: bytes) -> _Claim | None:
    pairs = [one.strip().partition(b"=") for one in headers.get(b"stripe-signature", b"").split(b",")]
    time = next((value for name, _, value in pairs if name == b"t"), b"")
    if not _is_time(time):
        return None
    signatures = _hex(value for name, _, value in pairs if name == b"v1")
    return _Claim(signatures, time + b"." + body, time, id_field="id")


def _plain(scheme: Plain, headers: Headers, body: bytes) -> _Claim | None:
    signatures = _hex([_header(headers, scheme.signature)])
    event_id = _header(headers, scheme.id_header) if scheme.id_header else None
    field = None if scheme.id_header else scheme.id_field
    if scheme.timestamp is None:
        return _Claim(signatures, body, None, event_id, field)
    time = _header(headers, scheme.timestamp)
    return _Claim(signatures, time + b"." + body, time, event_id, field) if _is_time(time) else None


def _header(headers: Headers, name: str) -> bytes:
    return headers.get(name.lower().encode(), b"")


def _is_time(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _DIGITS


def _hex(texts: Iterable[bytes]) -> list[bytes]:
    return _decoded(texts, lambda text: binascii.unhexlify(text.removeprefix(b"sha256=")))


def _base64(texts: Iterable[bytes]) -> list[bytes]:
    return _decoded(texts, lambda text: base64.b64decode(text, validate=True))


def _decoded(texts: Iterable[bytes], decode: Callable[[bytes], bytes]) -> list[bytes]:
    """What cannot be decoded is no signature."""
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


def _readable(name: bytes | None) -> str | None:
    if not name or len(name) > LONGEST_ID:
        return None
    text = name.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else None
