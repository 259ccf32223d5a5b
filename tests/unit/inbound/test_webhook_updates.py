"""Updates by webhook, and everything else that may be sent there."""

import asyncio
import itertools
import tracemalloc

import pytest

from tidegate.errors import StoreAwayError, StoreFullError
from tidegate.inbound.inbox import ClaimedItem, InboxItem, bot_source
from tidegate.inbound.webhook_request import MAX_BODY_BYTES
from tidegate.sim.virtual_time import VirtualClock
from unit.inbound.http_caller import PATH, SECRET, TOKEN, FakeBackend, call, secret_header, update


@pytest.fixture
async def backend(clock: VirtualClock) -> FakeBackend:
    return FakeBackend(clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_an_update_is_held_before_it_is_acknowledged(backend: FakeBackend) -> None:
    reply = await backend.update(5)

    assert (reply.status, reply.content) == (200, {"ok": True})
    assert reply.headers[b"content-type"] == b"application/json"
    assert reply.headers[b"content-length"] == b"%d" % len(reply.body)
    assert await backend.arrived() == [InboxItem(bot_source(42), "5", "7", update(5))]


async def test_nothing_is_acknowledged_that_the_inbox_has_not_taken(
    backend: FakeBackend, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, taken_at = backend.inbox.accept, 0.0

    async def slowly(arrivals: list[InboxItem]) -> list[bool]:
        nonlocal taken_at
        await clock.sleep(3)
        taken_at = clock.monotonic()
        return await accept(arrivals)

    monkeypatch.setattr(backend.inbox, "accept", slowly)
    reply = await backend.update()
    assert (reply.status, taken_at, clock.monotonic()) == (200, 3.0, 3.0)


async def test_a_replayed_update_is_acknowledged_and_handled_once(
    backend: FakeBackend, clock: VirtualClock
) -> None:
    handled: list[str] = []

    async def handle(held: ClaimedItem) -> None:
        handled.append(held.item.key)

    registry = backend.registry()
    registry.register(bot_source(42), handle)
    await registry.start()
    replies = [await backend.update(5), await backend.update(5)]
    await clock.sleep(1)
    replies.append(await backend.update(5))
    await clock.sleep(1)
    await registry.stop()

    assert [reply.status for reply in replies] == [200, 200, 200]
    assert handled == ["5"]


async def test_a_body_may_come_in_parts(backend: FakeBackend) -> None:
    body = update(5)
    reply = await call(backend.app, PATH, [body[:10], b"", body[10:]], secret_header(), pause=1)
    assert reply.status == 200
    assert [arrival.body for arrival in await backend.arrived()] == [body]


@pytest.mark.parametrize("secret", ["", "wrong", SECRET[:-1], SECRET + "0", SECRET.upper(), "ü" * 64, TOKEN])
async def test_a_wrong_secret_is_refused_before_the_body_is_read(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture, secret: str
) -> None:
    reply = await backend.update(secret=secret)

    assert (reply.status, reply.parts_taken) == (401, 0)
    assert reply.content == {"ok": False, "error": "the secret token is missing or wrong"}
    assert reply.headers[b"connection"] == b"close"  # or its body would have to be read
    assert await backend.waiting() == 0
    assert lines(caplog) == [f"POST {PATH} from 192.0.2.7: 401, the secret token is missing or wrong"]


async def test_no_secret_is_refused(backend: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    assert (await call(backend.app, PATH, update())).status == 401
    assert len(lines(caplog)) == 1


async def test_a_stranger_cannot_tell_which_bots_are_served(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    known, unknown = [
        await backend.update(path=f"/webhook/telegram/{bot}", secret="wrong") for bot in (42, 43)
    ]

    assert known == unknown
    assert (known.status, known.parts_taken) == (401, 0)
    assert (
        "there is no such bot here, or nothing here handles its updates" in lines(caplog)[1]
    )  # the operator can


async def test_a_scan_of_many_bots_that_are_not_served_is_one_kind_of_refusal(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    for bot in range(1_000, 2_000):
        await backend.update(path=f"/webhook/telegram/{bot}")

    assert len(lines(caplog)) == 1


@pytest.mark.parametrize("bot", ["99999999999999999999", "x", "4²", "-42", "", "42/", f"{TOKEN}"])
async def test_what_cannot_be_a_bot_is_not_found(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture, bot: str
) -> None:
    reply = await backend.update(path=f"/webhook/telegram/{bot}")

    assert (reply.status, reply.parts_taken) == (404, 0)
    assert len(lines(caplog)) == 1
    assert "AAbb" not in caplog.text  # whoever puts a token into an address does not find it in the log
    assert await backend.waiting() == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b"{}",
        b'{"update_id": "5"}',
        b'{"update_id": true}',
        b'{"update_id": -1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"update_id": 1, "message": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    ],
)
async def test_what_is_no_update_is_a_bad_request(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    reply = await call(backend.app, PATH, body, secret_header())

    assert (reply.status, reply.content["ok"]) == (400, False)
    assert b"connection" not in reply.headers  # the next one may be better
    assert len(lines(caplog)) == 1
    assert await backend.waiting() == 0


async def test_a_body_that_says_it_is_too_large_is_not_read(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    for length in ("20000000", f"{MAX_BODY_BYTES + 1}", "9" * 300):
        reply = await call(backend.app, PATH, update(), secret_header() | {"Content-Length": length})
        assert (reply.status, reply.parts_taken) == (413, 0)
        assert reply.headers[b"connection"] == b"close"
    assert lines(caplog) == [f"POST {PATH} from 192.0.2.7: 413, the body is too large"]


async def test_a_body_that_lies_about_its_size_is_dropped_as_soon_as_it_is_too_large(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    part = b"x" * 65_536
    headers = secret_header() | {"Content-Length": "100"}
    tracemalloc.start()
    reply = await call(backend.app, PATH, itertools.repeat(part, 20_000_000 // len(part)), headers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert reply.status == 413
    assert reply.parts_taken == MAX_BODY_BYTES // len(part) + 1
    assert peak < 3 * MAX_BODY_BYTES
    assert len(lines(caplog)) == 1


async def test_a_body_of_the_largest_size_is_taken_whole(backend: FakeBackend) -> None:
    body = update()
    body += b" " * (MAX_BODY_BYTES - len(body))
    assert (await call(backend.app, PATH, body, secret_header())).status == 200
    assert (await call(backend.app, PATH, [body, b" "], secret_header())).status == 413
    assert (await call(backend.app, PATH, body + b" ", secret_header())).status == 413


async def test_a_body_that_never_ends_is_given_up(
    backend: FakeBackend, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await call(backend.app, PATH, itertools.repeat(b"x"), secret_header(), pause=0.5)
    assert (reply.status, clock.monotonic()) == (408, 10.0)
    assert lines(caplog) == [f"POST {PATH} from 192.0.2.7: 408, the body did not arrive in time"]


async def test_many_slow_bodies_cannot_fill_the_memory(backend: FakeBackend) -> None:
    """Each stops just under the limit, and waits."""
    parts = [b"x" * 499_000, b"x" * 499_000, b"x"]
    calls = [call(backend.app, PATH, iter(parts), secret_header(), pause=4) for _ in range(100)]
    replies = await asyncio.gather(*calls)

    assert {reply.status for reply in replies} == {408, 503}
    assert sum(reply.status == 408 for reply in replies) <= 64
    assert (await backend.update()).status == 200  # they have left room again


async def test_a_client_that_goes_away_is_not_answered(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    messages: list[dict[str, object]] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[object] = []

    async def receive() -> dict[str, object]:
        return messages.pop(0)

    async def send(message: object) -> None:
        sent.append(message)

    headers = [(b"x-telegram-bot-api-secret-token", SECRET.encode())]
    scope = {"type": "http", "method": "POST", "path": PATH, "headers": headers}
    await backend.app(scope, receive, send)
    assert (sent, lines(caplog), await backend.waiting()) == ([], [], 0)


@pytest.mark.parametrize(
    "error", [StoreFullError("100000 wait in /a/file"), StoreAwayError("no Redis at 10.0.0.1")]
)
async def test_what_cannot_be_held_is_to_be_sent_again(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(_: object) -> list[bool]:
        raise error

    monkeypatch.setattr(backend.inbox, "accept", fail)
    reply = await backend.update()

    assert (reply.status, reply.headers[b"retry-after"]) == (503, b"5")
    assert str(error) not in reply.content["error"]  # where the store is concerns nobody else
    assert lines(caplog) == [f"POST {PATH} from 192.0.2.7: 503, {error}"]


async def test_a_closed_gate_asks_to_send_again(backend: FakeBackend) -> None:
    backend.is_open = False
    assert (await backend.update()).status == 503
    backend.is_open = True
    assert (await backend.update()).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_only_posts_are_taken(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    reply = await call(backend.app, PATH, b"", secret_header(), method=method)
    assert (reply.status, reply.headers[b"allow"]) == (405, b"POST")
    assert (reply.body == b"") == (method == "HEAD")
    assert len(lines(caplog)) == 1
