"""A head has so many seconds and bytes, and a client so long to take something, whichever parser reads it."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tidegate.inbound import server
from tidegate.inbound.server import (
    HEAD_TIMEOUT,
    MAX_HEAD_BYTES,
    TAKE_TIMEOUT,
    AsgiApp,
    BoundedHeadProtocol,
)
from tidegate.inbound.webhook_request import Receive, Scope, Send, WebhookRequest
from tidegate.sim.virtual_time import VirtualClock

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class ByHttptools(BoundedHeadProtocol, HttpToolsProtocol): ...


class ByH11(BoundedHeadProtocol, H11Protocol): ...


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    while scope["method"] == "POST" and (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the query, and the body."""
    content = scope["query_string"] + b" "
    while (message := await receive())["type"] == "http.request":
        content += message["body"]
        if not message["more_body"]:
            break
    length = (b"content-length", b"%d" % len(content))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": content})


class Line:
    """A connection to a protocol."""

    def __init__(
        self, kind: Callable[..., Any], app: AsgiApp = answer, state: ServerState | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            timeout_keep_alive=60,
        )
        self.wire = Mock(spec=asyncio.Transport)
        self.wire.get_extra_info.return_value = None
        self.wire.is_closing.side_effect = lambda: self.wire.close.called
        self.protocol = kind(config=config, server_state=state or ServerState(), app_state={})
        self.protocol.connection_made(self.wire)

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)

    @property
    def is_closed(self) -> bool:
        return bool(self.wire.close.called)

    @property
    def received(self) -> bytes:
        return b"".join(call.args[0] for call in self.wire.write.mock_calls)

    def end(self) -> None:
        self.protocol.connection_lost(None)


both = pytest.mark.parametrize("kind", [ByHttptools, ByH11])


@both
@pytest.mark.parametrize("before", [b"", REQUEST])
@pytest.mark.parametrize("half", [b"GET /hea", b"POST / HTTP/1.1\r\nHo", b"\r\n"])
async def test_half_a_head_is_given_up(
    clock: VirtualClock, kind: type[BoundedHeadProtocol], before: bytes, half: bytes
) -> None:
    if kind is ByH11 and half == b"\r\n":
        return  # no head begins like this for h11, which says so at once
    line = Line(kind)
    if before:
        line.send(before)
        await clock.sleep(30)  # idle between two requests
    line.send(half)
    for _ in range(9):
        await clock.sleep(HEAD_TIMEOUT / 10)
        line.send(half[-1:])  # slowly on
    assert not line.is_closed
    await clock.sleep(HEAD_TIMEOUT / 10 + 1)
    assert line.is_closed
    line.end()


@both
async def test_a_silent_connection_is_given_up_and_an_idle_one_is_not(
    clock: VirtualClock, kind: type[BoundedHeadProtocol]
) -> None:
    silent, idle = Line(kind), Line(kind)
    idle.send(REQUEST[:9])
    idle.send(REQUEST[9:])
    await clock.sleep(55)
    assert (silent.is_closed, idle.is_closed) == (True, False)
    idle.send(REQUEST)
    await clock.sleep(1)
    assert idle.received.count(b"200 OK") == 2
    silent.end()
    idle.end()


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1\r\nX: ",
        b"GET /",
        REQUEST + b"GET / HTTP/1.1\r\nX: ",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: ",  # after the body
    ],
)
async def test_a_head_without_end_is_refused(start: bytes) -> None:
    line, sent = Line(ByHttptools), 0
    line.send(start)
    while not line.is_closed:
        line.send(b"a" * 4_096)
        sent += 4_096
        assert sent <= MAX_HEAD_BYTES + 4_096
    head, _, body = line.received.rpartition(b"\r\n\r\n")
    assert b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n" in head
    assert json.loads(body)["description"] == "Bad Request: the head of the request is too large"
    line.end()


@both
@pytest.mark.parametrize(
    "request_", [b"HELLO\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\r\n\r\n"]
)
async def test_what_is_no_http_gets_an_error_that_libraries_of_the_bot_api_can_read(
    kind: type[BoundedHeadProtocol], request_: bytes
) -> None:
    line = Line(kind)
    line.send(request_)
    head, _, body = line.received.partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head
    assert json.loads(body) == {
        "ok": False,
        "error_code": 400,
        "description": "Bad Request: the request is no valid HTTP",
        "error": "the request is no valid HTTP",
    }
    assert line.is_closed
    line.end()


@both
async def test_a_connection_too_many_gets_an_error_that_says_when_to_come_again(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, kind: type[BoundedHeadProtocol]
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    state = ServerState()
    first, second, third = (Line(kind, state=state) for _ in range(3))
    for line in (first, second, third):
        line.send(REQUEST)
        await clock.sleep(0.1)

    # Those that were there before go on.
    assert [line.received.count(b"200 OK") for line in (first, second, third)] == [1, 1, 0]
    assert [line.is_closed for line in (first, second, third)] == [False, False, True]
    head, _, body = third.received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 5" in head.lower()
    why = "more than 2 connections are open here: retry after 5"
    assert json.loads(body) == {
        "ok": False,
        "error_code": 503,
        "description": f"Service Unavailable: {why}",
        "parameters": {"retry_after": 5},
        "error": why,
    }

    second.end()
    third.end()
    next_one = Line(kind, state=state)
    next_one.send(REQUEST)
    await clock.sleep(0.1)
    assert next_one.received.count(b"200 OK") == 1
    for line in (first, next_one):
        line.end()


async def test_an_application_knows_whether_a_request_is_here_to_its_end(clock: VirtualClock) -> None:
    seen: list[bool] = []

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(WebhookRequest(scope, receive).has_arrived)
        await answer(scope, receive, send)

    line, head = Line(ByHttptools, look), b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
    for pieces in ([head + b"body"], [head, b"body"], [head + b"bo", b"dy"], [REQUEST]):
        for piece in pieces:
            line.send(piece)
            await clock.sleep(0.1)

    assert seen == [True, False, False, True]
    assert line.received.count(b"200 OK") == 4
    line.end()


@both
async def test_a_large_body_is_no_head(clock: VirtualClock, kind: type[BoundedHeadProtocol]) -> None:
    line, size = Line(kind), 4 * MAX_HEAD_BYTES
    line.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (2 * size) + b"x" * size)
    await clock.sleep(HEAD_TIMEOUT + 1)  # how long a body may take is not decided here
    line.send(b"x" * size + REQUEST)
    await clock.sleep(1)
    assert line.received.count(b"200 OK") == 2
    assert not line.is_closed
    line.end()


@both
async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(
    clock: VirtualClock, kind: type[BoundedHeadProtocol]
) -> None:
    line = Line(kind)
    line.send(REQUEST)
    await clock.sleep(0)
    line.wire.get_write_buffer_size.return_value = 100_000
    line.protocol.pause_writing()
    await clock.sleep(TAKE_TIMEOUT - 1)
    line.wire.get_write_buffer_size.return_value = 99_000  # it takes a little
    await clock.sleep(TAKE_TIMEOUT - 1)
    assert not line.wire.abort.called
    await clock.sleep(3)
    assert line.wire.abort.called
    line.end()


@both
async def test_a_client_that_takes_its_answer_after_a_while_is_not_cut_off(
    clock: VirtualClock, kind: type[BoundedHeadProtocol]
) -> None:
    line = Line(kind)
    line.send(REQUEST)
    await clock.sleep(0)
    line.wire.get_write_buffer_size.return_value = 100_000
    line.protocol.pause_writing()
    await clock.sleep(TAKE_TIMEOUT - 1)
    line.protocol.resume_writing()
    await clock.sleep(3 * TAKE_TIMEOUT)
    assert not line.wire.abort.called
    line.end()


async def test_letters_of_other_languages_in_an_address_are_no_bad_request(clock: VirtualClock) -> None:
    line, text = Line(ByHttptools, echo), "привет".encode()
    head = b"POST /?text=%b HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (text, len(text))

    for _ in range(2):  # the second is a request of its own on the same connection
        line.send(head + text[:5])
        line.send(text[5:])  # looks like a beginning, and is none
        await clock.sleep(1)

    quoted = quote(text).encode()
    assert line.received.count(b"\r\n\r\ntext=%b %b" % (quoted, text)) == 2
    assert not line.is_closed
    line.end()
