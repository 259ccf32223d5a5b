"""Both clients against a real server on loopback, on a SQLite file."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn  # noqa: F401  (not in the event loop: importing it reads files)

from tidegate import AsyncTidegateClient, Tidegate, TidegateClient
from tidegate.clock import Clock
from tidegate.errors import ServiceAwayError, ServiceInputError, ServiceRefusedError
from tidegate.inbound.server import serve
from tidegate.model import BotId, Dead, Settlement, State
from tidegate.ops.access import AccessControl
from tidegate.ops.api.app import make_api

BOT = BotId(42)


class HastyClock(Clock):
    async def sleep(self, seconds: float) -> None:
        """Wait for nothing between two attempts."""


class Server:
    def __init__(self, gate: Tidegate, url: str, token: str) -> None:
        self.gate = gate
        self.url = url
        self.token = token

    async def put_letter(self) -> str:
        ticket = await self.gate.send(chat_id=5, text="Hi", priority="high")
        await self.gate.outbox.start_sending()
        claims = await self.gate.outbox.claim(1)
        await self.gate.outbox.settle([Settlement(claim, Dead("blocked", "")) for claim in claims])
        assert claims[0].message.id == ticket.id
        return ticket.id


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    gate = Tidegate(tmp_path / "tidegate.db")
    gate.add_bot(f"{BOT}:token")
    access = AccessControl.of(gate.core)
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with gate:
        token = (await access.create_token("client", "operator")).secret
        serving = asyncio.create_task(serve(make_api(gate, access), port=0, on_ready=ready.set_result))
        try:
            either: list[asyncio.Future[Any]] = [ready, serving]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            assert ready.done(), serving.result()
            yield Server(gate, f"http://127.0.0.1:{ready.result()}", token)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def test_the_client_for_threads_sends_follows_and_cancels(server: Server) -> None:
    letter = await server.put_letter()

    def use() -> dict[str, Any]:
        with TidegateClient(server.url, server.token, bot=BOT) as client:
            ticket = client.send(1, "Hi", priority="low", delay=60)
            message, why = client.get(ticket), client.why(ticket)
            assert message is not None
            assert why is not None
            many = client.send_many(({"chat_id": chat} for chat in range(5_000)), text="Hello")
            found = {
                "message": (message.state, message.priority, message.params),
                "why": why.state,
                "cancelled": (client.cancel(ticket), client.cancel(ticket), client.cancel("nothing")),
                "many": (many.accepted, many.bad, [error.line for error in many.errors]),
                "unknown": client.get("nothing"),
                "letters": [one.id for one in client.dead_letters(reason="blocked")],
                "replayed": client.replay(letter).done,
                "queued": client.stats().total_queued,
            }
            with pytest.raises(ServiceInputError, match="text is empty"):
                client.send(1)
            return found

    assert await asyncio.to_thread(use) == {
        "message": (State.QUEUED, "low", {"text": "Hi"}),
        "why": State.QUEUED,
        "cancelled": (True, False, False),
        "many": (4_999, 1, [1]),
        "unknown": None,
        "letters": [letter],
        "replayed": 1,
        "queued": 5_000,
    }


async def test_the_client_for_asyncio_does_the_same(server: Server) -> None:
    letter = await server.put_letter()

    async def items() -> AsyncIterator[dict[str, Any]]:
        for chat in range(2_500):
            yield {"chat_id": chat, "text": "Hello"}

    async with AsyncTidegateClient(server.url, server.token) as client:
        ticket = await client.send("@channel", "Hi")
        message = await client.get(ticket)
        assert message is not None
        assert message.chat_id == "@channel"
        many = await client.send_many(items())
        assert (many.accepted, many.bad) == (2_499, 1)
        assert await client.cancel(ticket)
        assert not await client.cancel(ticket)
        assert await client.why("nothing") is None
        assert [one.id async for one in client.dead_letters()] == [letter]
        assert (await client.replay(everything=True)).done == 1
        assert (await client.stats()).stats["normal"] == 2_499


async def test_a_wrong_token_and_a_server_that_is_not_there_are_told(server: Server) -> None:
    wrong = "tg_" + "w" * 43

    def use() -> None:
        with TidegateClient(server.url, wrong) as client, pytest.raises(ServiceRefusedError) as refused:
            client.send(1, "Hi")
        assert refused.value.status == 401
        assert wrong not in str(refused.value)

    await asyncio.to_thread(use)
    async with AsyncTidegateClient("http://127.0.0.1:9", server.token, clock=HastyClock()) as client:
        with pytest.raises(ServiceAwayError, match=r"127\.0\.0\.1:9 cannot be reached"):
            await client.stats()


async def test_a_connection_that_the_server_has_closed_is_replaced(server: Server) -> None:
    def use() -> tuple[str, str]:
        with TidegateClient(server.url, server.token) as client:
            first = client.send(1, "Hi")
            for connection in client._idle:  # noqa: SLF001  (as if the server had closed it)
                assert connection.sock is not None
                connection.sock.shutdown(2)
            return first, client.send(2, "Hi")

    first, second = await asyncio.to_thread(use)
    assert first != second
