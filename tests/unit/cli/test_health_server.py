"""`/healthz`, `/readyz` and `/metrics` of a command, over HTTP."""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import prometheus_client  # noqa: F401  (its import reads files, which no test may do within the loop)
import pytest

from tidegate import Tidegate
from tidegate.cli.health_server import Authenticate, serve_health
from tidegate.cli.listen_address import ListenAddress
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreAwayError
from tidegate.model import BotId
from tidegate.ops.access import AccessControl, Principal, Role
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
    gate: Tidegate, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    async with serve_health(gate, HERE, Clock()):
        told = caplog.messages[0]
        address = told.split()[1].removesuffix("/healthz")
        assert told == f"health: {address}/healthz and /readyz"
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
        assert (await answers(f"{address}/nothing"))[0] == 404


PRINCIPALS = {
    "viewer": Principal(name="prometheus", role=Role.VIEWER),
    "one bot": Principal(name="shop", role=Role.ADMIN, bot=BotId(42)),
}


async def authenticate(secret: str) -> Principal | None:
    if secret == "away":
        raise StoreAwayError("no PostgreSQL")
    return PRINCIPALS.get(secret)


@asynccontextmanager
async def metrics_server(
    gate: Tidegate, caplog: pytest.LogCaptureFixture, check: Authenticate | None
) -> AsyncIterator[Callable[..., Awaitable[tuple[int, str, Mapping[str, str]]]]]:
    caplog.set_level(logging.INFO, "tidegate")
    async with serve_health(gate, HERE, Clock(), authenticate=check), aiohttp.ClientSession() as session:
        address = caplog.messages[-1].split()[1].removesuffix("/healthz")

        async def ask(authorization: str, accept: str = "*/*", method: str = "GET") -> Any:  # noqa: ANN401
            headers = {"Authorization": authorization, "Accept": accept}
            async with session.request(method, f"{address}/metrics", headers=headers) as answer:
                return answer.status, await answer.text(), answer.headers

        yield ask


async def test_metrics_are_for_viewers_of_all_bots(gate: Tidegate, caplog: pytest.LogCaptureFixture) -> None:
    async with metrics_server(gate, caplog, authenticate) as ask:
        for wrong in ("", "Bearer", "Bearer ", "Basic viewer", "Bearer guessed"):
            status, text, headers = await ask(wrong)
            assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "tidegate token create" in text
        assert (await ask("Bearer one bot"))[0] == 403
        status, text, headers = await ask("Bearer away")
        assert (status, headers["Retry-After"]) == (503, "5")
        assert "no PostgreSQL" in text

        status, text, headers = await ask("Bearer viewer")
        assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert "\ntidegate_ready 1.0\n" in text
        status, text, headers = await ask("bearer viewer", "application/json")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert json.loads(text)["telegram_429_count"] == 0
        assert (await ask("Bearer viewer", method="HEAD"))[:2] == (200, "")
        assert (await ask("Bearer viewer", method="POST"))[0] == 405


async def test_a_token_of_the_database_opens_metrics_and_a_question_makes_no_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Tidegate(tmp_path / "tidegate.db") as gate, metrics_server(gate, caplog, None) as ask:
        status, text, _ = await ask(f"Bearer tg_{'x' * 43}")
        assert status == 401
        assert "tidegate token create" in text
        assert not await asyncio.to_thread((tmp_path / "tidegate-data.db").exists)

        async with AccessControl.of(gate.core) as access:
            made = await access.create_token("prometheus", Role.VIEWER)
        status, text, _ = await ask(f"Bearer {made.secret}")
        assert status == 200
        assert "\ntidegate_database_up 1.0\n" in text
        assert (await ask(f"Bearer tg_{'x' * 43}"))[0] == 401


async def test_without_the_extra_of_metrics_the_rest_is_served(
    gate: Tidegate, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "tidegate.ops.metrics", raising=False)
    monkeypatch.delattr("tidegate.ops.metrics", raising=False)
    async with metrics_server(gate, caplog, authenticate) as ask:
        status, text, _ = await ask("Bearer viewer")
    assert status == 503
    assert "tidegate[service]" in text


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
