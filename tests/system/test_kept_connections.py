"""The gateway's own client on real connections: kept, given up in time, and exact about what has left."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from simulated import TOKEN
from tidegate.clock import Clock
from tidegate.delivery.bot_api import LARGEST_ANSWER, BotApiClient, RawCall
from tidegate.delivery.transport import NoAnswer, RawAnswer
from tidegate.gateway.kept_connections import IDLE_FOR, LARGEST_BODY, KeptConnectionsClient

CALL: Final = RawCall("sendMessage", "application/json", (b'{"chat_id":1,"text":"hi"}',))
OK: Final = b'{"ok":true,"result":true}'
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n" + OK

Serve = Callable[["Served"], Awaitable[None]]


class ShiftedClock(Clock):
    """Real time, ahead by `later` seconds."""

    later = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.later


class Served:
    """One connection, at the server's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def request(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return head + await self.reader.readexactly(length)


class Wire:
    """A client before a server that serves each connection as it is told."""

    def __init__(self, client: KeptConnectionsClient, clock: ShiftedClock, url: str) -> None:
        self.client, self.clock, self.url = client, clock, url
        self.connections = self.left = 0
        self.requests: list[bytes] = []

    async def call(
        self, call: RawCall = CALL, *, seconds: float = 5.0, path: str = ""
    ) -> RawAnswer | NoAnswer:
        def leaving() -> None:
            self.left += 1

        deadline = self.clock.monotonic() + seconds
        return await self.client.forward(
            TOKEN, call, api_url=self.url + path, deadline=deadline, on_left=leaving
        )


@asynccontextmanager
async def wire(serve: Serve, *, timeout: float = 5.0) -> AsyncIterator[Wire]:  # noqa: ASYNC109
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        try:
            await serve(Served(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    clock = ShiftedClock()
    client = KeptConnectionsClient(clock, BotApiClient(clock, timeout=timeout), timeout=timeout)
    made = Wire(client, clock, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield made
    finally:
        await client.close()
        server.close()


async def answer_all(served: Served) -> None:
    while True:
        await served.request()
        served.writer.write(ANSWER)


def says(*parts: bytes, closes: bool = True) -> Serve:
    async def serve(served: Served) -> None:
        await served.request()
        for part in parts:
            served.writer.write(part)
            await served.writer.drain()
            await Clock().sleep(0)
        if not closes:
            await served.reader.read()

    return serve


async def test_calls_one_after_the_other_share_a_connection() -> None:
    async with wire(answer_all) as made:
        answers = [await made.call() for _ in range(3)]

    assert answers == [RawAnswer(200, "application/json", OK)] * 3
    assert (made.connections, made.left) == (1, 3)


async def test_calls_side_by_side_have_a_connection_each() -> None:
    async with wire(answer_all) as made:
        assert len(await asyncio.gather(*(made.call() for _ in range(5)))) == 5
        assert made.connections == 5


async def test_the_request_is_the_call_byte_by_byte() -> None:
    seen: list[bytes] = []

    async def serve(served: Served) -> None:
        seen.append(await served.request())
        served.writer.write(ANSWER)

    async with wire(serve) as made:
        await made.call(CALL._replace(query="a=%20b"), path="/some/where/")

    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(f"POST /some/where/bot{TOKEN}/sendMessage?a=%20b HTTP/1.1\r\nHost: 127".encode())
    assert b"\r\nContent-Type: application/json\r\n" in head
    assert body == CALL.parts[0]


@pytest.mark.parametrize(
    "answer",
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b'5\r\n{"ok"\r\n14\r\n:true,"result":true}\r\n0\r\n\r\n',
        ),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", OK),
        (b"HTTP/1.0 200 OK\r\n\r\n" + OK,),
        (b"HTTP/1.1 100 Continue\r\n\r\n", ANSWER),
        (ANSWER[:40], ANSWER[40:90], ANSWER[90:]),
    ],
    ids=["chunked", "until the end", "HTTP/1.0", "after another", "in pieces"],
)
async def test_an_answer_of_any_form_is_read(answer: tuple[bytes, ...]) -> None:
    async with wire(says(*answer)) as made:
        assert await made.call() == RawAnswer(200, "application/json", OK)


async def test_a_connection_that_the_server_closes_after_an_answer_is_not_used_again() -> None:
    closing = ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    async with wire(says(closing, closes=False)) as made:
        await made.call()
        await made.call()
        assert made.connections == 2


async def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    async with wire(answer_all) as made:
        await made.call()
        made.clock.later = IDLE_FOR
        await made.call()
        assert made.connections == 2


async def test_a_request_that_is_cut_has_left() -> None:
    async with wire(says()) as made:
        assert await made.call() == NoAnswer(left=True, reason="disconnected")


async def test_half_an_answer_is_none() -> None:
    async with wire(says(ANSWER[:-3])) as made:
        assert await made.call() == NoAnswer(left=True, reason="disconnected")


@pytest.mark.parametrize(
    "answer",
    [b"nonsense\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"],
)
async def test_what_is_no_answer_is_called_so(answer: bytes) -> None:
    async with wire(says(answer, closes=False)) as made:
        assert await made.call() == NoAnswer(left=True, reason="not_http")


async def test_an_answer_without_an_end_is_given_up() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    async with wire(says(head, *[chunk] * (LARGEST_ANSWER // 0x100000 + 1), closes=False)) as made:
        assert await made.call() == NoAnswer(left=True, reason="not_http")


async def test_silence_ends_a_call_and_its_connection() -> None:
    async with wire(says(closes=False), timeout=0.05) as made:
        assert await made.call() == NoAnswer(left=True, reason="timeout")
        await made.call()
        assert made.connections == 2


async def test_a_cancelled_call_gives_up_its_connection() -> None:
    read = asyncio.Event()

    async def serve(served: Served) -> None:
        await served.request()
        read.set()
        if made.connections > 1:
            served.writer.write(ANSWER)
        assert await served.reader.read() == b""

    async with wire(serve) as made:
        calling = asyncio.create_task(made.call())
        await read.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert isinstance(await made.call(), RawAnswer)
        assert made.connections == 2


async def test_what_nobody_asked_for_ends_a_connection() -> None:
    async with wire(says(ANSWER + ANSWER, closes=False)) as made:
        await made.call()
        await made.call()
        assert made.connections == 2


async def test_nobody_listens() -> None:
    async with wire(answer_all) as made:
        made.url = "http://127.0.0.1:1"
        assert await made.call() == NoAnswer(left=False, reason="connect")
        made.url = "http://nowhere.invalid"
        assert await made.call() == NoAnswer(left=False, reason="dns")
        assert made.left == 0


async def test_a_server_without_tls_gets_no_request() -> None:
    async with wire(lambda served: served.reader.read()) as made:  # type: ignore[arg-type,return-value]
        made.url = made.url.replace("http:", "https:")
        answer = await made.call(seconds=0.2)
        assert isinstance(answer, NoAnswer)
        assert not answer.left
        assert made.left == 0


async def test_a_late_call_does_not_leave() -> None:
    async with wire(answer_all) as made:
        assert await made.call(seconds=0) == NoAnswer(left=False, reason="late")
        await made.call()
        assert await made.call(seconds=0) == NoAnswer(left=False, reason="late")  # with a connection at hand
        assert made.left == 1


async def test_a_client_that_is_closed_does_not_call() -> None:
    async with wire(answer_all) as made:
        await made.call()
        await made.client.close()
        assert await made.call() == NoAnswer(left=False, reason="closed")


@pytest.mark.parametrize(
    "call",
    [
        CALL._replace(parts=(b"{" + b" " * LARGEST_BODY + b"}",)),
        CALL._replace(parts=(b"{", b"}")),
        CALL._replace(content_type="application/json; name=ä"),
    ],
    ids=["large", "of parts", "of another charset"],
)
async def test_other_calls_are_made_by_the_other_client(call: RawCall) -> None:
    async with wire(answer_all) as made:
        assert isinstance(await made.call(call), RawAnswer)
        assert made.left == 1


async def test_nothing_in_a_call_becomes_a_header() -> None:
    seen: list[bytes] = []

    async def serve(served: Served) -> None:
        seen.append(await served.request())
        served.writer.write(ANSWER)

    async with wire(serve) as made:
        await made.call(CALL._replace(query="q=a\r\nX-Forged: 1"))

    assert all(b"\r\nX-Forged" not in request for request in seen)
