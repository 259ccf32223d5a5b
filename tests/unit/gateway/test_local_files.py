"""A path of the server's own disk never leaves the gateway, whatever its form; all else passes unchanged."""

import asyncio
import json
from collections.abc import Coroutine, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.clock import Clock
from tidegate.gateway.answers import ApiRefusal
from tidegate.gateway.received_call import CallBodies, ReceivedCall
from tidegate.inbound.webhook_request import WebhookRequest
from tidegate.sim.virtual_time import VirtualClock, VirtualLoop
from unit.gateway.gateway_caller import BOUNDARY, TOKEN, SimulatedGateway, form, gateway

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"
RUNNER = asyncio.Runner(loop_factory=VirtualLoop)  # a loop for each example would take most of the time
TEXTS = {"text", "caption", "callback_data"}

names = st.sampled_from(["photo", "media", "thumbnail", "chat_id", "text", "caption", "callback_data"])
strings = st.one_of(
    st.sampled_from(
        ["file:///etc/passwd", "file:/etc/passwd", "File://x", " file:///x", "file:42", "a file:/b"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=8),
)
values = st.recursive(
    st.one_of(strings, st.integers(-9, 9), st.booleans(), st.none()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
arguments = st.lists(
    st.one_of(
        st.tuples(names.filter(lambda name: name not in TEXTS), values),
        st.tuples(names, strings),
    ),
    max_size=4,
)


def names_file(name: str, value: object) -> bool:
    """Say it as plainly as possible, for the test: the server finds a path in this value."""
    if isinstance(value, str):
        return name not in TEXTS and value.lstrip().lower().startswith("file:/")
    if isinstance(value, dict):
        return any(names_file(key, item) for key, item in value.items())
    return isinstance(value, list) and any(names_file(name, item) for item in value)


def as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def as_pairs(given_arguments: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(name, as_text(value)) for name, value in given_arguments]


def json_of(given_arguments: list[tuple[str, Any]], *, ascii_only: bool) -> bytes:
    """Write an object as a client could by hand: with two parameters of one name."""
    pairs = (
        f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=ascii_only)}" for name, value in given_arguments
    )
    return f"{{{','.join(pairs)}}}".encode()


def multipart_of(pairs: list[tuple[str, str]]) -> bytes:
    parts = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in pairs
    )
    return f"{parts}--{BOUNDARY}--\r\n".encode()


async def received(content: bytes, content_type: str, query: str = "") -> ReceivedCall:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    headers = [(b"content-type", content_type.encode())]
    request = WebhookRequest({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)
    async with ReceivedCall("sendPhoto", query) as call:
        await call.read(request, CallBodies(Clock(), 1_000_000))
        return call


@pytest.fixture(scope="module", autouse=True)
def runner() -> Iterator[None]:
    with RUNNER:
        yield


def in_loop(work: Coroutine[Any, Any, ReceivedCall]) -> ReceivedCall:
    return RUNNER.run(work)


def refusal_of(content: bytes, content_type: str, query: str = "") -> str | None:
    """Return why a call is refused; None if it passes, which it then does byte by byte."""
    try:
        call = in_loop(received(content, content_type, query))
    except ApiRefusal as refusal:
        return f"{refusal.code} {refusal.text}"
    assert b"".join(part for part in call.raw.parts if isinstance(part, bytes)) == content
    assert call.raw.query == query
    return None


@given(arguments, st.sampled_from(["query", "form", "json", "escaped json", "multipart"]))
def test_a_call_passes_unchanged_unless_a_parameter_names_a_local_file(
    given_arguments: list[tuple[str, Any]], how: str
) -> None:
    pairs = as_pairs(given_arguments)
    match how:
        case "query":
            refusal = refusal_of(b"", "", urlencode(pairs))
        case "form":
            refusal = refusal_of(urlencode(pairs).encode(), FORM)
        case "multipart":
            refusal = refusal_of(multipart_of(pairs), MULTIPART)
        case _:
            refusal = refusal_of(json_of(given_arguments, ascii_only=how == "escaped json"), JSON)

    hidden = any(names_file(name, value) for name, value in given_arguments)
    assert (refusal is not None) == hidden, refusal
    assert refusal is None or (refusal.startswith("400") and "names a file of the server" in refusal)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b'{"photo":"x","photo":"file:///etc/passwd"}'),
        (JSON, b'{"photo":"file:///etc/passwd","photo":"x"}'),
        (JSON, rb'{"photo":"\u0066ile:\/\/\/etc\/passwd"}'),
        (
            JSON,
            b'{"media":" [{\\"media\\":\\"file:///etc/passwd\\",\\"caption\\":\\"a\nb\\"}]"}'.replace(
                b"\n", b"\\n"
            ),
        ),
        (FORM, b"photo=x&photo=file%3A///etc/passwd"),
        (FORM, b"media=+[{%22media%22:%22file:/x%22,%22caption%22:%22%0a%22}]"),
        (FORM, b"media=[{%22media%22:%22file:/x%22,}]"),
        (
            MULTIPART,
            b'Content-Disposition: form-data; name="x"\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\nphoto=file:///x',
        ),
        (MULTIPART, b'Content-Disposition: form-data; name="photo"; filename*=x\r\n\r\nfile:///x'),
        (MULTIPART, b'Content-Disposition: form-data; name="photo"; FILENAME=x\r\n\r\nfile:///x'),
    ],
)
def test_a_local_file_does_not_hide_in_what_servers_read_in_their_own_way(
    content_type: str, body: bytes
) -> None:
    if content_type == MULTIPART:
        body = f"--{BOUNDARY}\r\n".encode() + body + f"\r\n--{BOUNDARY}--\r\n".encode()

    assert refusal_of(body, content_type) is not None


@pytest.mark.parametrize(
    "part",
    [
        b'Content-Disposition: form-data; name="a; filename=b"; name="photo"\r\n\r\nfile:///x',
        b'Content-Disposition: form-data; name="d"; filename="d"\r\n\r\nx\r\n--'
        + BOUNDARY.encode()
        + b'xx\r\nContent-Disposition: form-data; name="photo"\r\n\r\nfile:///x',
        b'X: y\rContent-Disposition: form-data; name="d"; filename="d"\r\nContent-Disposition: form-data; name="photo"\r\n\r\nfile:///x',
        b'Content-Disposition: form-data; name="photo"\r\n filename="x"\r\n\r\nfile:///x',
        b'Content-Disposition: form-data; foo; name="photo"; filename="x"\r\n\r\nfile:///x',
    ],
)
def test_forms_that_another_parser_would_split_elsewhere_are_refused(part: bytes) -> None:
    body = f"--{BOUNDARY}\r\n".encode() + part + f"\r\n--{BOUNDARY}--\r\n".encode()

    assert refusal_of(body, MULTIPART) is not None


def test_a_content_type_with_two_readings_is_passed_on_with_one() -> None:
    as_json = in_loop(received(b'{"chat_id":1}', "application/json; multipart/form-data; boundary=x"))
    two = multipart_of([("chat_id", "1")])

    assert as_json.raw.content_type == JSON
    assert refusal_of(two, f"multipart/form-data; xboundary=A; boundary={BOUNDARY}") is not None


@pytest.mark.parametrize("media", ["file:///etc/passwd", "https://example.org/a.jpg"])
@pytest.mark.parametrize("content_type", [FORM, JSON, MULTIPART])
def test_a_photo_of_an_option_of_a_poll_is_no_file_of_the_server(content_type: str, media: str) -> None:
    options = json.dumps(
        ["file:/ is no path here", {"text": "a", "media": {"type": "photo", "media": media}}]
    )
    body = {
        FORM: urlencode({"options": options}).encode(),
        JSON: json.dumps({"options": options}).encode(),
        MULTIPART: multipart_of([("options", options)]),
    }[content_type]

    assert (refusal_of(body, content_type) is None) == media.startswith("https")


async def test_files_themselves_may_hold_anything(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        content, headers = form({"chat_id": "1001"}, {"document": b"file:///etc/passwd"})
        answer = await simulated.request(f"/bot{TOKEN}/sendDocument", content=content, headers=headers)

    assert answer.status == 200
    assert simulated.network.calls[-1].parts == (content,)


@pytest.mark.parametrize("directives", [None, "queue"])
async def test_the_refusal_says_which_parameter_and_what_to_do(
    clock: VirtualClock, directives: str | None
) -> None:
    async with gateway(clock) as simulated:
        answer = await refused_photo(simulated, directives)

    assert answer == (
        "Bad Request: photo names a file of the server: upload it, or give a file_id or an HTTP URL"
    )


async def refused_photo(simulated: SimulatedGateway, directives: str | None) -> str:
    photo = {"chat_id": 1001, "photo": "file:///etc/passwd"}
    answer = await simulated.call("sendPhoto", photo, directives=directives)
    assert answer.status == 400
    assert [call.method for call in simulated.network.calls] == ["getMe"]
    return answer.error


def test_the_first_of_two_parameters_counts_as_for_telegram() -> None:
    body = urlencode([("chat_id", "2"), ("chat_id", "3"), ("text", "x")]).encode()
    call = in_loop(received(body, FORM, "chat_id=1"))

    assert call.params == dict(parse_qsl("chat_id=1&text=x"))
