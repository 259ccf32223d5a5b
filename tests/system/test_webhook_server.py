"""The webhook app behind a real server, on real connections."""

import asyncio
import gc
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn.lifespan.on
import uvicorn.protocols.http.auto  # noqa: F401  (an import reads files, which a loop may not)

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, StoreAwayError
from tidegate.inbound import server
from tidegate.inbound.inbox import InboxItem
from tidegate.inbound.server import listen, serve
from unit.inbound.http_caller import PATH, SECRET, FakeBackend, update

clock = Clock()
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def start(
    backend: FakeBackend, port: int = 0, *, reuse_port: bool = False
) -> tuple["asyncio.Task[None]", int]:
    """The server, and its port."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(backend.app, port=port, reuse_port=reuse_port, on_ready=ready.set_result)
    )
    both: list[asyncio.Future[Any]] = [ready, serving]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()  # raises what was in its way
    return serving, await ready


@asynccontextmanager
async def served(backend: FakeBackend, port: int = 0, *, reuse_port: bool = False) -> AsyncIterator[int]:
    """Its port."""
    serving, port = await start(backend, port, reuse_port=reuse_port)
    try:
        yield port
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


def post(body: bytes, *, secret: str = SECRET, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST {PATH}?q=1 HTTP/1.1\r\nHost: x\r\nX-Telegram-Bot-Api-Secret-Token: {secret}\r\n"
    return f"{head}Content-Length: {size}\r\n\r\n".encode() + body


async def answer(stream: Stream, request: bytes = b"") -> tuple[int, object]:
    reader, writer = stream
    writer.write(request)
    async with clock.timeout(10):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        body = await reader.readexactly(size)
    assert "server:" not in head
    return int(head.split()[1]), json.loads(body)


async def test_updates_come_in_over_one_connection_and_strangers_do_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    backend = FakeBackend(clock)
    async with served(backend) as port, connected(port) as telegram, connected(port) as stranger:
        for number in (1, 2, 2):
            assert await answer(telegram, post(update(number))) == (200, {"ok": True})
        assert await backend.waiting() == 2
        assert (await answer(telegram, post(b"{")))[0] == 400
        chunked = post(b"", length=0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        body = update(3)
        parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:9], body[9:]))
        assert (await answer(telegram, chunked + parts + b"0\r\n\r\n"))[0] == 200
        assert (await answer(telegram, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200

        assert (await answer(stranger, post(update(4), secret="wrong")))[0] == 401
        assert await stranger[0].read() == b""  # closed
        assert await backend.waiting() == 3
    assert backend.steps == ["start", "stop"]
    assert "q=1" not in caplog.text
    assert [record.levelname for record in caplog.records if "tidegate" in record.name] == ["WARNING"] * 2


@pytest.mark.usefixtures("unfrozen_heap")
async def test_the_collector_of_garbage_leaves_alone_what_is_there_while_it_serves() -> None:
    async with served(FakeBackend(clock)):
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


async def test_a_body_of_20_mb_is_refused_at_its_first_byte() -> None:
    backend = FakeBackend(clock)
    async with served(backend) as port, connected(port) as stream:
        assert (await answer(stream, post(b"{", length=20_000_000)))[0] == 413
        assert await stream[0].read() == b""
        async with connected(port) as other:
            assert (await answer(other, post(update())))[0] == 200


async def test_half_a_head_is_given_up_and_an_endless_one_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_TIMEOUT", 0.1)
    async with served(FakeBackend(clock)) as port, connected(port) as slow, connected(port) as endless:
        slow[1].write(b"POST / HTTP/1.1\r\nHost")
        endless[1].write(b"GET / HTTP/1.1\r\nX: " + b"a" * 1_000_000)
        async with clock.timeout(5):
            assert await slow[0].read() == b""
            with suppress(ConnectionError):  # it is closed while we still send
                assert (await endless[0].read()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("by_signal", [True, False])
async def test_one_that_waits_to_start_can_be_stopped(
    caplog: pytest.LogCaptureFixture, *, by_signal: bool
) -> None:
    slow = SlowHouse()
    serving = asyncio.create_task(serve(slow.app, port=0))
    await slow.begun.wait()
    if by_signal:
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        serving.cancel()
    async with clock.timeout(5):
        (ended,) = await asyncio.gather(serving, return_exceptions=True)
    assert isinstance(ended, ClosedError if by_signal else asyncio.CancelledError)
    assert "Traceback" not in caplog.text


async def test_a_signal_ends_it_when_everything_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend(clock)
    arrived, go_on, accept = asyncio.Event(), asyncio.Event(), backend.inbox.accept

    async def slowly(arrivals: list[InboxItem]) -> list[bool]:
        arrived.set()
        await go_on.wait()
        return await accept(arrivals)

    monkeypatch.setattr(backend.inbox, "accept", slowly)
    serving, port = await start(backend)
    async with connected(port) as stream:
        asking = asyncio.create_task(answer(stream, post(update())))
        await arrived.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await clock.sleep(0.2)
        assert not serving.done()
        go_on.set()
        assert (await asking)[0] == 200
    async with clock.timeout(5):
        await serving
    assert backend.steps == ["start", "stop"]
    assert await backend.waiting() == 1


async def test_the_first_request_of_a_connection_may_be_late_when_it_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serving, port = await start(FakeBackend(clock))
    async with connected(port) as stream, connected(port) as other:
        assert (await answer(other, post(update())))[0] == 200  # so the first one is accepted, too
        os.kill(os.getpid(), signal.SIGTERM)
        await clock.sleep(3 * server.LAST_REQUESTS)
        assert (await answer(stream, post(update())))[0] == 200
    await serving

    monkeypatch.setattr(server, "FIRST_REQUESTS", server.LAST_REQUESTS)
    serving, port = await start(FakeBackend(clock))
    async with connected(port) as silent, connected(port) as other:
        assert (await answer(other, post(update())))[0] == 200
        os.kill(os.getpid(), signal.SIGTERM)
        async with clock.timeout(5):
            assert await silent[0].read() == b""
            await serving


async def test_a_gate_that_does_not_open_is_told_and_not_served() -> None:
    backend = FakeBackend(clock)
    backend.failure = StoreAwayError("no Redis at 192.0.2.1")
    with pytest.raises(ClosedError, match=r"the server did not start: no Redis at 192\.0\.2\.1"):
        await serve(backend.app, port=0)


async def test_a_port_in_use_is_named_unless_it_is_shared() -> None:
    with listen("127.0.0.1", 0, reuse_port=True) as first:
        port = first.getsockname()[1]
        with listen("127.0.0.1", port, reuse_port=True) as second:
            assert second.getsockname() == first.getsockname()
        with pytest.raises(BadInputError, match=rf"at 127\.0\.0\.1 port {port}: address already in use$"):
            await serve(FakeBackend(clock).app, port=port)
    for host, number in (("192.0.2.1", 0), ("no such host.invalid", 0), ("127.0.0.1", 70_000)):
        with pytest.raises(BadInputError, match=r"cannot listen at|a port is a number"):
            listen(host, number)
    with listen("127.0.0.1", 0) as free:
        assert free.family == socket.AF_INET


class SlowHouse(FakeBackend):
    """Starts when it is allowed to."""

    def __init__(self) -> None:
        super().__init__(clock)
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def start(self) -> None:
        self.begun.set()
        await self.go_on.wait()
        await super().start()


async def test_a_process_that_still_starts_gets_no_connection_of_a_shared_port() -> None:
    ready, slow = FakeBackend(clock), SlowHouse()
    async with served(ready, reuse_port=True) as port:
        starting = asyncio.create_task(start(slow, port, reuse_port=True))
        await slow.begun.wait()
        for number in range(1, 21):  # the system would share them out by chance
            async with connected(port) as stream:
                assert (await answer(stream, post(update(number))))[0] == 200
        assert await ready.waiting() == 20

        slow.go_on.set()
        second, its_port = await starting
        assert its_port == port
        for number in range(21, 121):
            async with connected(port) as stream:
                assert (await answer(stream, post(update(number))))[0] == 200
        assert await ready.waiting() + await slow.waiting() == 120
        assert await slow.waiting() > 0
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
