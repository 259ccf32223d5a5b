"""The application as a server sees it: open health, webhooks beside the API, opened and closed with it."""

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from api_caller import ApiCaller
from memory_access import MemoryAccess
from memory_answers import MemoryAnswers
from memory_pending_actions import MemoryPendingActions
from tidegate import Tidegate
from tidegate.inbound.webhook_app import webhook_secret
from tidegate.model import State
from tidegate.ops.access import AccessControl
from tidegate.ops.api.app import ServiceApp, make_api
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, CHAT, Service, problem

TOKEN = f"{BOT}:AAbbccddeeffgghhiijjkkllmmnnoopp"


def api_of(gate: Tidegate, *, webhook: bool = False) -> tuple[ServiceApp, AccessControl]:
    store = MemoryAccess(gate.clock)
    access = AccessControl(lambda: store, gate.clock)
    return make_api(
        gate,
        access,
        webhook=gate.asgi() if webhook else None,
        answers=MemoryAnswers(),
        pending=MemoryPendingActions(),
    ), access


async def test_health_needs_no_token_and_asks_nobody(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    anybody = ApiCaller(service.app)
    assert (await anybody.get("/healthz")).json == {"ok": True}
    assert (await anybody.get("/readyz")).json == {"ok": True}
    assert (await anybody.call("HEAD", "/healthz")).body == b""
    assert (await anybody.call("POST", "/healthz")).status == 405
    monkeypatch.setattr(service.access, "problems", lambda: ["the database is away"])
    unready = await anybody.get("/readyz")
    assert unready.status == 503
    assert "the database is away" in unready.body.decode()
    assert (await anybody.get("/healthz")).status == 200


async def test_an_api_that_takes_no_updates_says_so_to_telegram_and_in_the_log(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """It asked Telegram for an API token, and said nothing: behind a proxy, updates did not arrive."""
    for path in (f"/webhook/telegram/{BOT}", "/hooks/shop"):
        answer = await ApiCaller(service.app).post(path, {"update_id": 1})
        assert problem(answer)[:2] == (404, "not-found")
    assert f"/webhook/telegram/{BOT} from" in caplog.text
    assert "this process takes no updates" in caplog.text


async def test_webhooks_are_received_beside_the_api_with_secrets_of_their_own(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(SimulatedTelegram(clock), clock))
    gate.add_bot(TOKEN)
    handled: list[int] = []

    @gate.on_update
    async def note(bot: int, update: dict[str, Any]) -> None:
        handled.append(update["update_id"] + bot)

    app, _ = api_of(gate, webhook=True)
    path, update = f"/webhook/telegram/{BOT}", {"update_id": 1, "message": {"chat": {"id": 5}}}
    assert (await ApiCaller(app).post(path, update)).status == 503, "before it has started"
    await app.start()
    try:
        assert (await ApiCaller(app).post(path, update)).status == 401
        secret = {"x_telegram_bot_api_secret_token": webhook_secret(TOKEN)}
        assert (await ApiCaller(app).post(path, update, **secret)).status == 200
        await clock.sleep(1)
        assert handled == [BOT + 1]
        assert (await ApiCaller(app).get("/readyz")).status == 200
    finally:
        await app.stop()


async def test_the_gate_is_opened_and_closed_with_the_server_unless_it_was_open(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock)
    app, access = api_of(gate)
    token = (await access.create_token("x", "operator")).secret
    steps = asyncio.Queue[MutableMapping[str, Any]]()
    answers: list[str] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        answers.append(message["type"])

    serving = asyncio.create_task(app({"type": "lifespan"}, steps.get, send))
    closed = await ApiCaller(app, token).post("/api/v1/messages", {"chat_id": 1, "text": "Hi"})
    assert problem(closed)[:2] == (503, "unavailable"), "before it has started"
    await steps.put({"type": "lifespan.startup"})
    await clock.sleep(1)
    assert gate.is_open
    await steps.put({"type": "lifespan.shutdown"})
    await serving
    assert not gate.is_open
    assert answers == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    async with gate:
        again, _ = api_of(gate)
        await again.start()
        await again.stop()
        assert gate.is_open, "whoever has opened it closes it"


async def test_beside_the_sender_of_a_file_messages_are_put_and_operated_through_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    telegram = SimulatedTelegram(clock)
    sender = Tidegate(tmp_path / "t.db", clock=clock, wire=TelegramWire(telegram, clock))
    beside = Tidegate(tmp_path / "t.db", clock=clock)
    for gate in (sender, beside):
        gate.add_bot("42:token")
    async with sender, sender.worker():
        app, access = api_of(beside)
        await app.start()
        try:
            caller = ApiCaller(app, (await access.create_token("x", "operator")).secret)
            await caller.post("/api/v1/bots/42/pause")
            first = (await caller.post("/api/v1/messages", {"chat_id": CHAT, "text": "One"})).json["id"]
            second = (await caller.post("/api/v1/messages", {"chat_id": CHAT, "text": "Two"})).json["id"]
            await clock.sleep(1)
            assert (await caller.get(f"/api/v1/messages/{first}")).json["state"] == State.QUEUED
            assert (await caller.post(f"/api/v1/messages/{first}/cancel")).status == 200
            await caller.post("/api/v1/bots/42/resume")
            await clock.sleep(5)
            assert (await caller.get(f"/api/v1/messages/{second}")).json["state"] == State.DELIVERED
            assert [entry.text for entry in telegram.request_log.log] == ["Two"]
        finally:
            await app.stop()


async def test_an_address_with_a_slash_too_many_leads_nowhere(service: Service) -> None:
    """It redirected to the host that the request named, where the next request would bring its token."""
    for path in ("/api/v1/bots/", f"/api/v1/bots/{BOT}/"):
        answer = await service.admin.call("GET", path, headers={"host": "elsewhere.example"})
        assert problem(answer)[:2] == (404, "not-found")
        assert "location" not in answer.headers
