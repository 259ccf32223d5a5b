"""Signatures of events: signed here by hand, as each sender documents it."""

import base64
import hashlib
import hmac
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.inbound.signed_hooks import (
    HmacSignature,
    SignatureRefusal,
    SignatureScheme,
    SignedEvent,
    check_scheme,
    verify_signature,
)

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # the one of the examples of Standard Webhooks
NOW = 1_614_265_330.0
TIMED = HmacSignature(signature="X-Sign", timestamp="X-Time", id_header="X-Id")
UNTIMED = HmacSignature(id_field="event")
SCHEMES: tuple[SignatureScheme, ...] = ("standard", "stripe", "github", TIMED, UNTIMED)

Headers = dict[bytes, bytes]
Sign = Callable[..., Headers]


def digest(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def standard(secret: str, event: bytes, time: bytes, body: bytes) -> Headers:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = b"v1," + base64.b64encode(digest(key, event + b"." + time + b"." + body))
    return {b"webhook-id": event, b"webhook-timestamp": time, b"webhook-signature": signature}


def stripe(secret: str, _: bytes, time: bytes, body: bytes) -> Headers:
    signature = digest(secret.encode(), time + b"." + body).hex().encode()
    return {b"stripe-signature": b"t=" + time + b",v1=" + signature + b",v0=abcdef"}


def github(secret: str, event: bytes, _: bytes, body: bytes) -> Headers:
    signature = b"sha256=" + digest(secret.encode(), body).hex().encode()
    return {b"x-hub-signature-256": signature, b"x-github-delivery": event}


def timed(secret: str, event: bytes, time: bytes, body: bytes) -> Headers:
    signature = digest(secret.encode(), time + b"." + body).hex().encode()
    return {b"x-sign": signature, b"x-time": time, b"x-id": event}


def untimed(secret: str, _: bytes, __: bytes, body: bytes) -> Headers:
    return {b"x-signature": digest(secret.encode(), body).hex().encode()}


SIGNS: dict[SignatureScheme, Sign] = {
    "standard": standard,
    "stripe": stripe,
    "github": github,
    TIMED: timed,
    UNTIMED: untimed,
}
HAS_TIME: tuple[SignatureScheme, ...] = ("standard", "stripe", TIMED)
schemes = pytest.mark.parametrize("scheme", SCHEMES, ids=["standard", "stripe", "github", "timed", "untimed"])
any_scheme, with_time = st.sampled_from(SCHEMES), st.sampled_from(HAS_TIME)
names = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=40)
contents = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20), max_size=5)


def body_of(event: str, content: object = None) -> bytes:
    return msgspec.json.encode({"id": event, "event": event, "content": content})


def signed(
    scheme: SignatureScheme, event: str, body: bytes, time: float = NOW, secret: str = SECRET
) -> Headers:
    return SIGNS[scheme](secret, event.encode(), b"%d" % time, body)


def test_the_example_of_standard_webhooks_is_right() -> None:
    headers = {
        b"webhook-id": b"msg_p5jXN8AQM9LWM0D4loKWxJek",
        b"webhook-timestamp": b"1614265330",
        b"webhook-signature": b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    found = verify_signature("standard", [SECRET], headers, b'{"test": 2432232314}', NOW)
    assert found == SignedEvent("msg_p5jXN8AQM9LWM0D4loKWxJek", NOW)


@given(scheme=any_scheme, event=names, content=contents, drift=st.integers(-300, 300))
def test_what_was_signed_lately_passes(
    scheme: SignatureScheme, event: str, content: object, drift: int
) -> None:
    body = body_of(event, content)
    found = verify_signature(scheme, [SECRET], signed(scheme, event, body, NOW + drift), body, NOW)
    assert found == SignedEvent(event, NOW + drift if scheme in HAS_TIME else None)


@given(scheme=any_scheme, event=names, content=contents, at=st.integers(0), flip=st.integers(1, 255))
def test_a_byte_of_the_body_that_was_changed_is_found(
    scheme: SignatureScheme, event: str, content: object, at: int, flip: int
) -> None:
    body = bytearray(body_of(event, content))
    headers = signed(scheme, event, bytes(body))
    body[at % len(body)] ^= flip
    assert verify_signature(scheme, [SECRET], headers, bytes(body), NOW) == SignatureRefusal(
        "the signature is wrong"
    )


@given(event=names, at=st.integers(0), flip=st.integers(1, 255), name=st.sampled_from(["id", "timestamp"]))
def test_a_byte_of_id_or_time_that_was_changed_is_found(event: str, at: int, flip: int, name: str) -> None:
    body = body_of(event)
    headers = signed("standard", event, body)
    changed = bytearray(headers[b"webhook-" + name.encode()])
    changed[at % len(changed)] ^= flip
    headers[b"webhook-" + name.encode()] = bytes(changed)
    found = verify_signature("standard", [SECRET], headers, body, NOW)
    assert isinstance(found, SignatureRefusal)
    assert not found.is_signed


@given(scheme=with_time, event=names, digit=st.sampled_from(b"0123456789"), at=st.integers(0, 9))
def test_a_time_that_was_changed_is_found(scheme: SignatureScheme, event: str, digit: int, at: int) -> None:
    body = body_of(event)
    time = bytearray(b"%d" % NOW)
    assume(time[at] != digit)
    time[at] = digit
    was, now = b"%d" % NOW, bytes(time)
    headers = {name: value.replace(was, now) for name, value in signed(scheme, event, body).items()}
    assert verify_signature(scheme, [SECRET], headers, body, NOW, window=1e12) == SignatureRefusal(
        "the signature is wrong"
    )


@given(scheme=with_time, drift=st.integers(301, 10**9), sign=st.sampled_from([1, -1]))
def test_what_was_signed_long_ago_or_is_ahead_of_time_is_refused(
    scheme: SignatureScheme, drift: int, sign: int
) -> None:
    time = max(NOW + sign * drift, 0)
    body = body_of("1")
    found = verify_signature(scheme, [SECRET], signed(scheme, "1", body, time), body, NOW)
    assert found == SignatureRefusal("the timestamp is too old, or ahead of time")


@schemes
def test_any_of_several_secrets_is_right_and_no_other(scheme: SignatureScheme) -> None:
    old, other = "whsec_" + "b2xk" * 8, "whsec_" + "b3Ro" * 8
    body = body_of("1")
    headers = signed(scheme, "1", body, secret=old)
    assert isinstance(verify_signature(scheme, [SECRET, old], headers, body, NOW), SignedEvent)
    assert verify_signature(scheme, [SECRET, other], headers, body, NOW) == SignatureRefusal(
        "the signature is wrong"
    )
    assert verify_signature(scheme, [], headers, body, NOW) == SignatureRefusal("the signature is wrong")


def test_a_sender_may_sign_with_an_old_and_a_new_secret() -> None:
    body = body_of("1")
    headers = signed("standard", "1", body)
    headers[b"webhook-signature"] = b"v1a,xx v1,bm9uZQ== v1,*** " + headers[b"webhook-signature"]
    assert verify_signature("standard", [SECRET], headers, body, NOW) == SignedEvent("1", NOW)


@schemes
def test_without_a_signature_nothing_passes(scheme: SignatureScheme) -> None:
    body = body_of("1")
    assert verify_signature(scheme, [SECRET], {}, body, NOW) == SignatureRefusal("the signature is missing")
    for name in signed(scheme, "1", body):
        headers = signed(scheme, "1", body) | {name: b""}
        assert isinstance(verify_signature(scheme, [SECRET], headers, body, NOW), SignatureRefusal)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"id": null}', b'{"id": ""}', b'{"id": true}', b'{"id": 1.5}', b'{"id": "\\n"}'],
)
def test_an_event_without_an_id_is_a_bad_request(body: bytes) -> None:
    found = verify_signature("stripe", [SECRET], signed("stripe", "", body), body, NOW)
    assert found == SignatureRefusal("the event has no id", is_signed=True)


def test_an_id_may_be_a_number_and_not_too_long() -> None:
    for body, expected in (
        (b'{"id": 17}', SignedEvent("17", NOW)),
        (body_of("x" * 256), SignatureRefusal("the event has no id", is_signed=True)),
    ):
        assert verify_signature("stripe", [SECRET], signed("stripe", "", body), body, NOW) == expected


def test_a_delivery_without_an_id_is_a_bad_request() -> None:
    headers = signed("github", "1", b"{}")
    del headers[b"x-github-delivery"]
    assert verify_signature("github", [SECRET], headers, b"{}", NOW) == SignatureRefusal(
        "the event has no id", is_signed=True
    )


@pytest.mark.parametrize(
    ("scheme", "header", "refusal"),
    [
        ("standard", b"webhook-id", SignatureRefusal("webhook-id is missing")),
        (
            "standard",
            b"webhook-timestamp",
            SignatureRefusal("webhook-timestamp is missing, or no time in seconds"),
        ),
        ("standard", b"webhook-signature", SignatureRefusal("the signature is missing")),
        (TIMED, b"x-time", SignatureRefusal("X-Time is missing, or no time in seconds")),
    ],
)
def test_the_header_that_is_missing_is_named(
    scheme: SignatureScheme, header: bytes, refusal: SignatureRefusal
) -> None:
    headers = signed(scheme, "1", b"{}")
    del headers[header]
    assert verify_signature(scheme, [SECRET], headers, b"{}", NOW) == refusal


def test_a_time_that_is_missing_in_the_signature_is_named() -> None:
    headers = {b"stripe-signature": b"v1=abcdef"}
    refusal = SignatureRefusal("t= of stripe-signature is missing, or no time in seconds")
    assert verify_signature("stripe", [SECRET], headers, b"{}", NOW) == refusal


@schemes
def test_a_scheme_that_is_known_may_be_used(scheme: SignatureScheme) -> None:
    check_scheme(scheme)


@pytest.mark.parametrize("scheme", ["Stripe", "hmac", None, [], HmacSignature])
def test_a_scheme_that_is_not_known_is_told_with_those_that_are(scheme: object) -> None:
    with pytest.raises(BadInputError, match=r'"standard", "stripe", "github" or HmacSignature\('):
        check_scheme(scheme)


@given(scheme=any_scheme, data=st.data(), body=st.binary(max_size=200))
def test_nothing_that_arrives_makes_it_raise(
    scheme: SignatureScheme, data: st.DataObject, body: bytes
) -> None:
    """Headers that are known, with anything in them; the signature is right now and then."""
    known = list(signed(scheme, "1", body))
    headers = data.draw(
        st.dictionaries(st.sampled_from(known) | st.binary(max_size=9), st.binary(max_size=99))
    )
    for given_headers in (headers, signed(scheme, "1", body) | headers):
        assert isinstance(
            verify_signature(scheme, [SECRET], given_headers, body, NOW), SignedEvent | SignatureRefusal
        )
