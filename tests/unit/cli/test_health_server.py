"""`/healthz` and `/readyz` of a command: the words of the gate's health, over HTTP."""

import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tidegate import Tidegate
from tidegate.cli.health_server import serve_health
from tidegate.cli.listen_address import ListenAddress
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.outbox.port import StoreHealth

HERE = ListenAddress("127.0.0.1", 0, "--health-")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {}  # real time: sockets


@pytest.fixture
async def gate() -> AsyncIterator[Tidegate]:
    async with Tidegate("memory://") as gate:
        yield gate


async def answers(url: str, method: str = "GET") -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
        return answer.status, await answer.json() if method != "HEAD" else None


async def test_readiness_is_the_health_of_the_gate_and_a_process_that_lives_is_healthy(
    gate: Tidegate, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_health(gate, HERE, Clock()):
        told = capsys.readouterr().err
        address = told.split()[1].removesuffix("/healthz")
        assert told == f"health: {address}/healthz and /readyz\n"
        assert await answers(f"{address}/healthz") == (200, {"ok": True})
        assert await answers(f"{address}/readyz") == (200, {"ok": True})
        assert await answers(f"{address}/readyz", "HEAD") == (200, None)

        sick = StoreHealth().with_problems(["the disk is full", "no progress"])
        monkeypatch.setattr(gate.core, "health", lambda: sick)
        assert await answers(f"{address}/healthz") == (200, {"ok": True})
        assert await answers(f"{address}/readyz") == (
            503,
            {"ok": False, "error": "not ready", "problems": {"gate": "the disk is full; no progress"}},
        )
        assert (await answers(f"{address}/readyz", "POST"))[0] == 405
        assert (await answers(f"{address}/metrics"))[0] == 404


async def test_a_port_in_use_is_named_with_its_option(gate: Tidegate) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadInputError, match=f"port {port} on .* choose another with --health-port"):
            async with serve_health(gate, ListenAddress("127.0.0.1", port, "--health-"), Clock()):
                pass


async def test_an_empty_host_is_refused_and_without_a_port_nothing_is_served(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match="--health-host: an empty name would mean every network"):
        async with serve_health(gate, ListenAddress(" ", 0, "--health-"), Clock()):
            pass
    async with serve_health(gate, None, Clock()):
        pass
