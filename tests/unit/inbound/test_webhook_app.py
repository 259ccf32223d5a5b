"""Health, start and stop, mounting, and bounds on what strangers can make it log."""

import asyncio
from typing import Any

import pytest

from tidegate.errors import StoreAwayError
from tidegate.inbound.webhook_app import webhook_secret
from tidegate.inbound.webhook_request import MAX_REFUSAL_KINDS
from tidegate.sim.virtual_time import VirtualClock
from unit.inbound.http_caller import PATH, SECRET, TOKEN, FakeBackend, Message, call, secret_header, update


@pytest.fixture
async def backend(clock: VirtualClock) -> FakeBackend:
    return FakeBackend(clock)


def test_the_secret_of_a_webhook_is_always_the_same_and_fits_telegram() -> None:
    assert webhook_secret(TOKEN) == SECRET
    assert webhook_secret(TOKEN + "x") != SECRET
    assert len(SECRET) == 64
    assert set(SECRET) <= set("0123456789abcdef")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_process_that_runs_is_healthy_whatever_else_is_broken(
    backend: FakeBackend, method: str
) -> None:
    backend.is_open, backend.failure = False, StoreAwayError("no store")
    reply = await call(backend.app, "/healthz", method=method)
    assert reply.status == 200
    assert reply.body == (b'{"ok":true}' if method == "GET" else b"")
    assert reply.headers[b"content-length"] == b"11"


async def test_it_is_ready_when_nothing_is_in_the_way(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await call(backend.app, "/readyz", method="GET")).status == 200
    backend.found_problems = {"store": "cannot be reached", "bot 42": f"{TOKEN} is wrong"}
    reply = await call(backend.app, "/readyz", method="GET")
    problems = {"store": "cannot be reached", "bot 42": "42:… is wrong"}
    assert (reply.status, reply.content) == (503, {"ok": False, "error": "not ready", "problems": problems})
    assert (await call(backend.app, "/readyz", method="POST")).status == 405
    assert not [record for record in caplog.records if "readyz" in record.message and "503" in record.message]


async def test_what_is_to_be_known_of_a_gate_that_is_ready_is_told_with_200(backend: FakeBackend) -> None:
    backend.found_notes = [f"bot {TOKEN} is closed by a 429 for another 3540 s"]

    reply = await call(backend.app, "/readyz", method="GET")

    notes = ["bot 42:… is closed by a 429 for another 3540 s"]
    assert (reply.status, reply.content) == (200, {"ok": True, "notes": notes})


async def test_a_store_that_hangs_or_fails_is_not_ready(
    backend: FakeBackend, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.failure = StoreAwayError("no Redis")
    assert (await call(backend.app, "/readyz", method="GET")).content["problems"] == {"gate": "no Redis"}

    async def hang() -> dict[str, str]:
        return await asyncio.Future()

    monkeypatch.setattr(backend, "problems", hang)
    reply = await call(backend.app, "/readyz", method="GET")
    assert (reply.status, clock.monotonic()) == (503, 5.0)


@pytest.mark.parametrize("path", ["/", "", "/webhook", "/webhook/telegram", "/healthz/", "/hooks", "/.env"])
async def test_there_is_nothing_else(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    reply = await call(backend.app, path, method="GET")
    assert (reply.status, reply.content) == (404, {"ok": False, "error": "there is nothing here"})
    assert len(caplog.records) == 1
    assert "of-somebody" not in caplog.text  # a query may hold a secret


async def test_it_works_where_another_application_mounts_it(backend: FakeBackend) -> None:
    headers = secret_header()
    kept = await call(backend.app, f"/bots{PATH}", update(1), headers, root_path="/bots")
    cut = await call(backend.app, PATH, update(2), headers, root_path="/bots")
    assert (kept.status, cut.status) == (200, 200)
    assert (await call(backend.app, f"/other{PATH}", update(3), headers, root_path="/bots")).status == 404


async def test_http_2_has_no_header_to_close_with(backend: FakeBackend) -> None:
    reply = await call(backend.app, PATH, update(), http_version="2")
    assert reply.status == 401
    assert b"connection" not in reply.headers


@pytest.mark.parametrize("headers", [{"Content-Length": "9"}, {"Transfer-Encoding": "chunked"}])
@pytest.mark.parametrize("path", ["/healthz", "/nothing", PATH])
async def test_a_body_that_nobody_wants_ends_the_connection_by_any_method(
    backend: FakeBackend, path: str, headers: dict[str, str]
) -> None:
    for method in ("GET", "PUT", "DELETE"):
        reply = await call(backend.app, path, b"", headers, method=method)
        assert reply.headers.get(b"connection") == b"close"
        assert reply.parts_taken == 0
    assert b"connection" not in (await call(backend.app, path, method="GET")).headers


async def test_whoever_mounts_it_starts_and_stops_it(backend: FakeBackend) -> None:
    await backend.app.stop()  # nothing to stop yet
    await backend.app.start()
    await backend.app.stop()
    assert backend.steps == ["start", "stop"]


async def live(backend: FakeBackend, *steps: str) -> list[Message]:
    told: list[Message] = []
    left = list(steps)

    async def receive() -> dict[str, Any]:
        return {"type": f"lifespan.{left.pop(0)}"}

    async def send(message: Message) -> None:
        told.append(message)

    await backend.app({"type": "lifespan"}, receive, send)
    return told


async def test_the_gate_opens_and_closes_with_the_server(backend: FakeBackend) -> None:
    told = await live(backend, "startup", "shutdown")
    assert [message["type"] for message in told] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert backend.steps == ["start", "stop"]


async def test_a_gate_that_does_not_open_is_told_to_the_server(backend: FakeBackend) -> None:
    backend.failure = StoreAwayError(f"no store for {TOKEN}")
    told = await live(backend, "startup")
    assert told == [{"type": "lifespan.startup.failed", "message": "no store for 42:…"}]


async def test_a_websocket_is_closed(backend: FakeBackend) -> None:
    sent: list[Message] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await backend.app({"type": "websocket", "path": PATH}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1000}]


async def test_refusals_that_are_alike_are_counted_instead_of_told(
    backend: FakeBackend, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1_000):
        await backend.update(secret="wrong")
    await clock.sleep(1.5)
    await backend.update(secret="wrong")

    first, sum_of_others, again = [record.message for record in caplog.records]
    assert first == again
    assert sum_of_others == f"999 more at {PATH}: 401, the secret token is missing or wrong"


async def test_strangers_fill_neither_the_log_nor_the_memory(
    backend: FakeBackend, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5_000):
        await call(backend.app, f"/{number}", method="GET")
        await backend.update(path=f"/webhook/telegram/{1_000 + number}")
        await call(backend.app, f"/hooks/{number}")
    told = backend.app._refusals._unlogged  # noqa: SLF001  (what is kept is what this is about)
    assert len(told) == len(caplog.records) == 3
    await clock.sleep(2)
    assert not told
    assert len(caplog.records) == 6


async def test_many_kinds_of_refusals_are_bounded(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "secret_of", lambda _: SECRET)  # any number of bots
    for number in range(MAX_REFUSAL_KINDS + 50):
        await backend.update(secret="wrong", path=f"/webhook/telegram/{number}")
    assert len(caplog.records) == MAX_REFUSAL_KINDS + 1


async def test_a_path_cannot_forge_a_line_of_the_log(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    await call(backend.app, "/x\nERROR all is lost\x1b[2J" + "y" * 10_000, method="GET")
    (record,) = caplog.records
    assert record.message.isprintable()
    assert len(record.message) < 200


@pytest.mark.parametrize(
    ("peer", "said", "told"),
    [
        ("127.0.0.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"),  # the proxy adds whom it sees at the end
        ("127.0.0.1", "", "127.0.0.1"),
        ("192.0.2.7", "203.0.113.9", "192.0.2.7"),
        ("::1", "x" * 300, "x" * 100),
    ],
)
async def test_a_proxy_on_this_machine_says_for_whom_it_asks(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture, peer: str, said: str, told: str
) -> None:
    headers = {"X-Forwarded-For": said} if said else {}
    await call(backend.app, "/nothing", b"", headers, client=(peer, 5))
    assert f" from {told}: 404" in caplog.text
