"""Bodies of every form and size, from clients of every speed."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.delivery.transport import RawAnswer
from tidegate.gateway.answers import ApiRefusal
from tidegate.gateway.form_reader import FormReader, boundary_of
from tidegate.sim.virtual_time import VirtualClock
from unit.gateway.gateway_caller import BOUNDARY, TOKEN, Answer, SimulatedGateway, form, gateway

SEND = f"/bot{TOKEN}/sendDocument"
JSON = {"content-type": "application/json"}

contents = st.one_of(st.binary(max_size=60), st.just(f"\r\n--{BOUNDARY[:-1]}".encode()))
field_names = st.text("abcXYZ_09 ", min_size=1, max_size=6).filter(lambda name: name.strip() == name)


def part(name: str, content: bytes, file_name: str | None) -> bytes:
    named = "" if file_name is None else f'; filename="{file_name}"'
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'
    return head.encode() + content + b"\r\n"


@given(
    st.lists(st.tuples(field_names, contents, st.none() | st.just("a.bin")), max_size=5),
    st.lists(st.integers(1, 400), max_size=8),
)
def test_a_form_is_read_the_same_however_it_is_cut(
    parts: list[tuple[str, bytes, str | None]], cuts: list[int]
) -> None:
    body = b"".join(part(*one) for one in parts) + f"--{BOUNDARY}--\r\n".encode()
    reader = FormReader(BOUNDARY.encode(), keep_files=True)
    at = 0
    for cut in (*cuts, len(body)):
        reader.feed(body[at : at + cut])
        at += cut
    reader.finish()

    files: dict[str, bytes] = {}
    for name, content, file_name in parts:
        if file_name is not None:
            files.setdefault(name, content)
    fields = [(name, content.decode("utf-8", "replace")) for name, content, file in parts if file is None]
    assert reader.fields == fields
    assert {name: file.content for name, file in reader.files.items()} == files
    assert reader.has_files == bool(files)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_form_are_refused_and_nothing_else_happens(body: bytes) -> None:
    def read() -> None:
        reader = FormReader(b"x", keep_files=True)
        reader.feed(body)
        reader.finish()

    with pytest.raises(ApiRefusal):
        read()


@pytest.mark.parametrize(
    ("header", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; Boundary="a b"', b"a b"),
        ("multipart/form-data; boundary=----WebKitFormBoundaryX; charset=utf-8", b"----WebKitFormBoundaryX"),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ("multipart/form-data; boundary=" + "x" * 300, None),
    ],
)
def test_the_boundary_is_the_one_that_telegram_finds(header: str, boundary: bytes | None) -> None:
    if boundary is None:
        with pytest.raises(ApiRefusal):
            boundary_of(header)
    else:
        assert boundary_of(header) == boundary


async def test_a_large_upload_waits_in_a_file_that_nobody_else_can_read_and_that_is_gone_after(
    clock: VirtualClock,
) -> None:
    async with gateway(clock) as simulated:
        data = b"0123456789abcdef" * 40_000
        content, headers = form({"chat_id": "1001"}, {"document": data})
        answer = await simulated.request(SEND, content=content, headers=headers)
        file_id = answer.json["result"]["document"]["file_id"]
        spooled = simulated.network.spooled
        queued = await simulated.request(
            SEND, content=content, headers=headers | {"x-tidegate": "queue; delay=9"}
        )
        record = await simulated.gate.outbox.find(queued.ticket)  # type: ignore[arg-type]

    assert simulated.telegram.world.files[file_id].content == data
    assert [mode for _, mode in spooled] == [0o600]
    assert not any([await asyncio.to_thread(path.exists) for path, _ in spooled])
    assert record is not None
    assert record.message.params["document"].content == data
    assert simulated.app._bodies.spooled == 0  # noqa: SLF001


async def test_a_refused_upload_is_sent_again_from_its_file(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        content, headers = form({"chat_id": "1001"}, {"document": b"x" * 300_000})
        refusal = b'{"ok":false,"error_code":429,"parameters":{"retry_after":1}}'
        simulated.network.answers = [RawAnswer(429, "application/json", refusal)]
        answer = await simulated.request(SEND, content=content, headers=headers)

    assert answer.status == 200
    assert clock.monotonic() >= 1.0
    [document] = (file for file in simulated.telegram.world.files.values())
    assert document.content == b"x" * 300_000


@pytest.mark.parametrize(
    ("headers", "content", "status", "text"),
    [
        (JSON, b"{", 400, "Bad Request: can't parse the parameters of the call"),
        (JSON, b"[1]", 400, "Bad Request: the parameters of a call are a JSON object"),
        (JSON, b"\xff", 400, "Bad Request: can't parse the parameters of the call"),
        (JSON, b'{"text":"\n\\ud800"}', 400, "Bad Request: can't parse the parameters of the call"),
        (JSON, '{"text":"\n"}'.encode("utf-16"), 400, "Bad Request: can't parse the parameters of the call"),
        (JSON, b"[" * 100_000, 400, "Bad Request: can't parse the parameters of the call"),
        (JSON, b'{"text":"' + b"x" * 1_200_000 + b'"}', 413, "Request Entity Too Large"),
        (
            {"content-type": "text/plain"},
            b"chat_id=1",
            400,
            "Bad Request: the body is of no known type: send application/json, application/x-www-form-urlen",
        ),
        ({}, b"chat_id=1", 400, "Bad Request: the body is of no known type"),
        (JSON | {"content-encoding": "gzip"}, b"\x1f\x8b", 415, "Unsupported Media Type: a compressed body"),
        ({"content-type": "multipart/form-data"}, b"x", 400, "Bad Request: the form has no boundary"),
        (form({}, {})[1], b"nonsense" * 9, 400, "Bad Request: the form does not begin with its boundary"),
        (form({}, {})[1], form({"a": "b"}, {})[0][:-4], 400, "Bad Request: the form has no end"),
        (form({}, {})[1], form({"a": "b" * 1_200_000}, {})[0], 413, "Request Entity Too Large"),
        (
            {"content-type": "application/x-www-form-urlencoded"},
            b"&".join(b"a=b" for _ in range(1_001)),
            400,
            "Bad Request: the call has more than 1,000 parameters",
        ),
    ],
)
async def test_a_body_that_cannot_be_read_is_a_clear_error(
    clock: VirtualClock, headers: dict[str, str], content: bytes, status: int, text: str
) -> None:
    async with gateway(clock) as simulated:
        answer = await simulated.request(f"/bot{TOKEN}/sendMessage", content=content, headers=headers)

    assert answer.status == status
    assert answer.error.startswith(text)
    assert [call.method for call in simulated.network.calls] == ["getMe"]


async def test_a_line_end_in_a_json_text_is_taken_as_telegram_takes_it(clock: VirtualClock) -> None:
    path, content = f"/bot{TOKEN}/sendMessage", b'{"chat_id":1001,"text":"one\ntwo\tthree"}'
    async with gateway(clock) as simulated:
        simulated.network.answers.append(RawAnswer(200, "application/json", b'{"ok":true,"result":{}}'))
        passed_on = await simulated.request(path, content=content, headers=JSON)
        queued = await simulated.request(path, content=content, headers=JSON | {"x-tidegate": "queue"})

    assert passed_on.body == b'{"ok":true,"result":{}}'
    assert simulated.network.calls[-1].parts == (content,)
    assert queued.json["result"]["text"] == "one\ntwo\tthree"


async def test_a_body_that_is_too_large_is_refused_as_soon_as_that_is_known(clock: VirtualClock) -> None:
    async with gateway(clock, largest_body=1_000) as simulated:
        content, headers = form({"chat_id": "1001"}, {"document": b"x" * 2_000})
        declared = headers | {"content-length": str(len(content))}
        # The rest never comes: the answer does not wait for it.
        at_once = await simulated.request(SEND, content=[content[:100], 3600.0], headers=declared)
        arriving = await simulated.request(SEND, content=[content[:900], content[900:]], headers=headers)
        after = clock.monotonic()

    for answer in (at_once, arriving):
        assert (answer.status, answer.error) == (413, "Request Entity Too Large")
        assert answer.headers["connection"] == "close"
    assert after < 5.0  # the client is listened to a little longer, so that it sees the answer


async def test_more_uploads_than_the_disk_should_hold_are_asked_to_come_again(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.gateway.received_call.MOST_SPOOLED", 1_000)
    async with gateway(clock) as simulated:
        content, headers = form({"chat_id": "1001"}, {"document": b"x" * 600})
        slow = asyncio.create_task(
            simulated.request(SEND, content=[content[:-1], 5.0, content[-1:]], headers=headers)
        )
        await clock.sleep(1.0)
        refused = await simulated.request(SEND, content=content, headers=headers)
        first = await slow
        later = await simulated.request(SEND, content=content, headers=headers)

    assert (first.status, later.status) == (200, 200)
    assert (refused.status, refused.json["parameters"]) == (503, {"retry_after": 5})


async def test_an_upload_alone_may_be_as_large_as_a_body_may_be(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.gateway.received_call.MOST_SPOOLED", 1_000)
    async with gateway(clock) as simulated:
        content, headers = form({"chat_id": "1001"}, {"document": b"x" * 1_200})
        answer = await simulated.request(SEND, content=content, headers=headers)

    assert answer.status == 200


@pytest.mark.parametrize("kind", ["json", "form"])
async def test_a_client_whose_body_stalls_is_cut_off(clock: VirtualClock, kind: str) -> None:
    async with gateway(clock, body_timeout=3.0) as simulated:
        await simulated.call("getMe")
        content, headers = form({"chat_id": "1001"}, {"document": b"x"}) if kind == "form" else (b"{}", JSON)
        began = clock.monotonic()
        answer = await simulated.request(SEND, content=[content[:1], 3600.0], headers=headers)
        lasted = clock.monotonic() - began

    assert answer.status == 408
    assert answer.error.startswith("Request Timeout: ")
    assert 3.0 <= lasted < 6.0


async def test_a_client_that_sends_a_byte_now_and_then_is_cut_off_too(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        _, headers = form({}, {})
        drops: list[bytes | float] = []
        for byte in f"--{BOUNDARY}\r\n".encode() * 50:
            drops += [bytes([byte]), 9.0]
        answer = await simulated.request(SEND, content=drops, headers=headers)

    assert (answer.status, clock.monotonic() < 60) == (408, True)
    assert "less than 20,000 bytes a second" in answer.error


async def test_a_client_that_goes_away_within_its_upload_leaves_nothing(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        content, headers = form({"chat_id": "1001"}, {"document": b"x" * 600_000})
        gone = await leaves_within(simulated, content, headers)

    assert gone.status == 0
    assert simulated.app._bodies.spooled == 0  # noqa: SLF001
    assert [call.method for call in simulated.network.calls] == ["getMe", "getMe"]


async def leaves_within(simulated: SimulatedGateway, content: bytes, headers: dict[str, str]) -> Answer:
    parts = [content[:500_000]]
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": True}
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:  # noqa: ANN401
        answers.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": SEND,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await simulated.app(scope, receive, send)
    return Answer(0 if not answers else answers[0]["status"], {}, json.dumps(answers).encode())
