"""The HTTP transport on real connections, the only tests here that have them."""

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.upstream import http_transport
from tidegate.upstream.client import Upstream
from tidegate.upstream.http_transport import HttpTransport
from tidegate.upstream.limiter import MemoryLimiter
from tidegate.upstream.retry import complaint
from tidegate.upstream.transport import NoResponse, UpstreamRequest, UpstreamResponse

TOKEN = "3xQ9-abcdefABCDEF_0123456789xyz"
READ = UpstreamRequest(method="GET", path="api/v2/records", query=(("where", "(Id,in,1,2)~and(A,eq,b c+ü)"),))
WRITE = UpstreamRequest(method="POST", path="api/v2/records", body={"Paid": True})
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Thing: Seen\r\n\r\n{}"

Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


class Server:
    """Does with each request what it is told to."""

    def __init__(self, handle: Handler) -> None:
        self.handle = handle
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [
                    line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                ]
                self.bodies.append(await reader.readexactly(int(lengths[0][15:]) if lengths else 0))
                self.heads.append(head)
                await self.handle(head, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[Server]:
    door = Server(handle)
    server = await asyncio.start_server(door.serve, "127.0.0.1", 0)
    door.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield door
    finally:
        server.close()


@asynccontextmanager
async def wire_to(url: str, *, timeout: float = 2.0) -> AsyncIterator[HttpTransport]:  # noqa: ASYNC109
    wire = HttpTransport(url, headers={"xc-token": TOKEN}, clock=Clock(), timeout=timeout)
    try:
        yield wire
    finally:
        await wire.close()


def saying(raw: bytes) -> Handler:
    async def handle(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    return handle


async def cut(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def silent(_: bytes, __: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_a_request_goes_out_byte_for_byte_as_it_was_counted() -> None:
    async with serving(saying(OK)) as server, wire_to(server.url + "/base/") as wire:
        response = await wire.send(READ)
        assert isinstance(response, UpstreamResponse)
        assert (response.status, response.body, response.headers["x-thing"]) == (200, b"{}", "Seen")
        await wire.send(WRITE)

        line, *headers = server.heads[0].decode().split("\r\n")
        assert line == f"GET /base{READ.target} HTTP/1.1"
        assert f"xc-token: {TOKEN}" in headers
        assert not [header for header in headers if header.lower().startswith("content-")]
        assert server.bodies[1] == b'{"Paid":true}'
        assert b"Content-Type: application/json" in server.heads[1]
        assert server.connections == 1


async def test_redirects_are_not_followed_and_a_cookie_is_not_kept() -> None:
    moved = (
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    )
    async with serving(saying(moved)) as server, wire_to(server.url) as wire:
        for _ in range(2):
            response = await wire.send(READ)
            assert isinstance(response, UpstreamResponse)
            assert response.status == 302
        assert b"Cookie" not in server.heads[1]


@pytest.mark.parametrize("request_", [READ, WRITE], ids=["read", "write"])
async def test_a_cut_connection_is_one_request_that_left(request_: UpstreamRequest) -> None:
    async with serving(cut) as server, wire_to(server.url) as wire:
        assert await wire.send(request_) == NoResponse(left=True, reason="disconnected")
        assert len(server.heads) == 1  # aiohttp would have asked again by itself


@pytest.mark.parametrize("request_", [READ, WRITE], ids=["read", "write"])
async def test_where_nobody_listens_nothing_left(request_: UpstreamRequest) -> None:
    async with serving(cut) as server:
        url = server.url
    async with wire_to(url) as wire:
        assert await wire.send(request_) == NoResponse(left=False, reason="connect")


async def test_a_silent_server_is_left_alone_after_the_timeout() -> None:
    async with serving(silent) as server, wire_to(server.url, timeout=0.05) as wire:
        assert await wire.send(WRITE) == NoResponse(left=True, reason="timeout")


async def test_who_waits_for_a_connection_in_vain_has_not_left() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # says nothing of TLS, so that the connection is never there
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with wire_to(f"https://127.0.0.1:{port}", timeout=0.05) as wire:
        assert await wire.send(WRITE) == NoResponse(left=False, reason="timeout")
    server.close()


async def test_nobody_with_a_turn_waits_for_a_connection() -> None:
    at_once, all_there = 40, asyncio.Event()

    async def late(_: bytes, writer: asyncio.StreamWriter) -> None:
        if len(server.heads) == at_once:
            all_there.set()
        await all_there.wait()
        writer.write(OK)

    async with serving(late) as server, wire_to(server.url) as wire:
        answers = await asyncio.gather(*(wire.send(READ) for _ in range(at_once)))
        assert all(isinstance(answer, UpstreamResponse) for answer in answers)


class Patient(Clock):
    """Gives an hour for a connection."""

    bound: asyncio.Timeout

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        del seconds
        self.bound = super().timeout(3600)
        return self.bound


async def test_the_time_for_an_answer_begins_when_there_is_a_connection() -> None:
    clock, left = Patient(), list[float]()

    async def note(_: bytes, writer: asyncio.StreamWriter) -> None:
        left.append((clock.bound.when() or 0.0) - asyncio.get_running_loop().time())
        writer.write(OK)

    async with serving(note) as server:
        wire = HttpTransport(server.url, headers={}, clock=clock, timeout=30.0)
        await wire.send(READ)
        await wire.close()
    assert 20 < left[0] < 31
    assert wire.longest == 60.0


async def test_what_is_no_http_is_no_answer() -> None:
    async with serving(saying(b"hello there\r\n\r\n")) as server, wire_to(server.url) as wire:
        found = await wire.send(READ)
        assert isinstance(found, NoResponse)
        assert found.left


@pytest.mark.parametrize("head", [b"Content-Length: 5000\r\n", b"Connection: close\r\n"])
async def test_an_answer_too_large_is_not_read(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_transport, "LARGEST_ANSWER", 1000)
    raw = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + b"x" * 5000
    async with serving(saying(raw)) as server, wire_to(server.url) as wire:
        assert await wire.send(READ) == NoResponse(left=True, reason="too_large")


async def test_a_closed_wire_sends_nothing() -> None:
    async with serving(saying(OK)) as server, wire_to(server.url) as wire:
        await wire.send(READ)
        await wire.close()
        assert await wire.send(READ) == NoResponse(left=False, reason="closed")
        assert len(server.heads) == 1


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nocodb",
        "ftp://host/",
        "http://",
        "http://user:hidden@host/",
        "http://host/?a=1",
        "http://host:x/",
        "http://[",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(BadInputError, match="http") as caught:
        HttpTransport(url, headers={}, clock=Clock())
    assert "hidden" not in str(caught.value)


def test_other_bad_input_is_refused() -> None:
    with pytest.raises(BadInputError, match="above 0"):
        HttpTransport("http://host", headers={}, clock=Clock(), timeout=0.0)
    with pytest.raises(BadInputError, match="xc-token") as caught:
        HttpTransport("http://host", headers={"xc-token": f"{TOKEN}\n"}, clock=Clock())
    assert TOKEN not in str(caught.value)


async def test_the_token_is_in_no_repr_error_or_log(caplog: pytest.LogCaptureFixture) -> None:
    echo = b'HTTP/1.1 401 No\r\nContent-Length: 60\r\n\r\n{"msg":"bad xc-token: ' + TOKEN.encode()
    echo += b'"}'.ljust(60 - len('{"msg":"bad xc-token: ') - len(TOKEN))
    caplog.set_level(logging.DEBUG)
    async with serving(saying(echo)) as server, wire_to(server.url) as wire:
        api = Upstream(wire, limiter=MemoryLimiter(Rate(99, 1), Clock()))
        with pytest.raises(Exception, match=r"bad xc-token: \*\*\*") as caught:
            await api.read("records")
        shown = [repr(wire), repr(api), repr(vars(api)), str(caught.value), repr(caught.value), caplog.text]
        assert not [text for text in shown if TOKEN in text]
        assert TOKEN.encode() in server.heads[0]


@pytest.mark.parametrize(
    "token",
    [
        "shorttoken123",
        "abcdefghijklmnopqrstuvwxyzABCDEFGH",
        "Bearer ab1/cd2/ef3/gh4/ij5/kl6",
        "user:p@ssw0rd!",
        'quo"ted-one',
    ],
)
@pytest.mark.parametrize("before", [0, 190])  # so that it would be cut in the middle
def test_a_token_that_the_api_repeats_is_hidden(token: str, before: int) -> None:
    wire = HttpTransport("http://host", headers={"Authorization": token}, clock=Clock())
    for shown in (token, token.rsplit(maxsplit=1)[-1]):
        said = msgspec.json.encode({"msg": "x" * before + f" {shown} is bad"})
        said = said.replace(b"/", b"\\/")  # as PHP has it
        text = complaint(UpstreamResponse(401, {}, said), wire.hide)
        assert "***" in text
        assert token[:6].removeprefix("Bearer") not in text or token.startswith("Bearer")
        assert shown[-6:] not in text


@pytest.mark.parametrize(
    "headers", [None, {"xc-token": None}, {"a\r\nEvil": "1"}, {"": "x"}, {"a b": "x"}, {5: "x"}]
)
def test_headers_that_cannot_be_sent_are_refused(headers: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInputError, match="header"):
        HttpTransport("http://host", headers=headers, clock=Clock())


@pytest.mark.parametrize("url", [None, 5, "http://host/\r\nX: y", "http://host/a\nb"])
def test_an_address_that_is_no_text_is_refused(url: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInputError, match="http"):
        HttpTransport(url, headers={}, clock=Clock())


def test_neither_wire_nor_client_is_pickled_with_its_token() -> None:
    wire = HttpTransport("http://host", headers={"xc-token": TOKEN}, clock=Clock())
    for secretive in (wire, Upstream(wire)):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(secretive)
