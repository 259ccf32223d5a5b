"""Signed events: which are accepted, how they are stored, and how they are answered."""

import asyncio
import base64
import hashlib
import hmac
import itertools

import pytest
from rich.pretty import pretty_repr

from tidegate.errors import BadInputError, StoreFullError
from tidegate.inbound.inbox import DEDUP_SECONDS, ClaimedItem, hook_source
from tidegate.inbound.signed_hooks import (
    MAX_HEADERS,
    HmacSignature,
    Hook,
    HookEvent,
    pack_event,
    unpack_event,
)
from tidegate.inbound.webhook_request import MAX_BODY_BYTES
from tidegate.sim.virtual_time import VirtualClock
from unit.inbound.http_caller import PATH as UPDATES
from unit.inbound.http_caller import FakeBackend, Reply, call, secret_header, update

KEY = b"a key of at least sixteen bytes"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
PATH = "/hooks/payments"
BODY = b'{"paid": 5}'


@pytest.fixture
async def backend(clock: VirtualClock) -> FakeBackend:
    return FakeBackend(
        clock, Hook("payments", (SECRET,)), Hook("plain", ("x" * 16,), HmacSignature(), limit=50)
    )


def headers_of(event: str, time: float, body: bytes = BODY, key: bytes = KEY) -> dict[str, str]:
    content = f"{event}.{time:.0f}.".encode() + body
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {"webhook-id": event, "webhook-timestamp": f"{time:.0f}", "webhook-signature": f"v1,{signature}"}


async def send(backend: FakeBackend, clock: VirtualClock, event: str = "e1", age: float = 0) -> Reply:
    return await call(backend.app, PATH, BODY, headers_of(event, clock.now() - age))


async def test_a_signed_event_is_held_as_it_came(backend: FakeBackend, clock: VirtualClock) -> None:
    headers = headers_of("e1", clock.now() - 2) | {"Content-Type": "text/x", "Authorization": "Basic eA=="}
    reply = await call(backend.app, PATH, BODY, headers)

    assert (reply.status, reply.content) == (200, {"ok": True})
    (arrival,) = await backend.arrived()
    assert (arrival.source, arrival.key, arrival.lane) == (hook_source("payments"), "e1", "e1")
    event = unpack_event(arrival.body)
    assert (event.hook, event.id, event.body, event.json()) == ("payments", "e1", BODY, {"paid": 5})
    assert (event.timestamp, event.received_at) == (clock.now() - 2, clock.now())
    assert event.headers["content-type"] == "text/x"
    assert "authorization" not in event.headers


async def test_a_replayed_event_is_acknowledged_and_handled_once(
    backend: FakeBackend, clock: VirtualClock
) -> None:
    handled: list[str] = []

    async def handle(held: ClaimedItem) -> None:
        handled.append(unpack_event(held.item.body).id)

    backend.registry().register(hook_source("payments"), handle, attempts=5)
    await backend.registry().start()
    replies = [await send(backend, clock), await send(backend, clock), await send(backend, clock, "e2")]
    await clock.sleep(1)
    replies.append(await send(backend, clock))
    await clock.sleep(1)
    await backend.registry().stop()

    assert [reply.status for reply in replies] == [200] * 4
    assert handled == ["e1", "e2"]


async def test_a_bad_signature_is_refused_with_one_line(
    backend: FakeBackend, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await call(backend.app, PATH, BODY, headers_of("e1", clock.now(), key=b"another key"))
    assert (reply.status, reply.content["error"]) == (401, "the signature is missing, wrong or too old")
    assert [record.message for record in caplog.records] == [
        f"POST {PATH} from 192.0.2.7: 401, the signature is wrong"
    ]
    assert await backend.waiting() == 0


@pytest.mark.parametrize("age", [301, -301])
async def test_an_old_timestamp_is_refused_with_one_line(
    backend: FakeBackend, clock: VirtualClock, caplog: pytest.LogCaptureFixture, age: int
) -> None:
    reply = await send(backend, clock, age=age)
    assert (reply.status, len(caplog.records), await backend.waiting()) == (401, 1, 0)


async def test_an_event_without_an_id_is_a_bad_request(backend: FakeBackend) -> None:
    signature = hmac.new(b"x" * 16, BODY, hashlib.sha256).hexdigest()
    reply = await call(backend.app, "/hooks/plain", BODY, {"X-Signature": signature})
    assert (reply.status, reply.content["error"]) == (400, "the event has no id")


@pytest.mark.parametrize("name", ["", "payments/", "payments/x", "../payments"])
async def test_what_cannot_be_a_hook_is_not_found(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    reply = await call(backend.app, f"/hooks/{name}", BODY)
    assert (reply.status, reply.parts_taken, len(caplog.records)) == (404, 0, 1)


async def test_a_stranger_cannot_tell_which_hooks_there_are(
    backend: FakeBackend, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    forged = headers_of("e1", clock.now(), key=b"a key that is not right")
    requests = [
        {},
        forged,
        forged | {"webhook-id": ""},
        forged | {"webhook-timestamp": "5"},
        {"X-Signature": "00"},
    ]
    for headers in requests:
        known = [await call(backend.app, path, BODY, headers) for path in (PATH, "/hooks/plain")]
        unknown = await call(backend.app, "/hooks/other", BODY, headers)
        assert known == [unknown] * 2
        assert unknown.status == 401
    assert "POST /hooks/other from 192.0.2.7: 401, there is no such hook here" in caplog.messages


async def test_a_copy_under_a_new_id_is_handled_once_if_events_are_told_apart_by_their_body(
    clock: VirtualClock,
) -> None:
    secret = "x" * 16
    hooks = (Hook("deploy", (secret,), "github", dedup="body"), Hook("other", (secret,), "github"))
    backend = FakeBackend(clock, *hooks)
    for number, body in enumerate((BODY, BODY, b'{"paid": 6}')):
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Delivery": f"delivery-{number}"}
        for hook in ("deploy", "other"):
            assert (await call(backend.app, f"/hooks/{hook}", body, headers)).status == 200

    arrived = [(item.source, unpack_event(item.body).id) for item in await backend.arrived()]
    assert [name for source, name in arrived if source == hook_source("deploy")] == [
        "delivery-0",
        "delivery-2",
    ]
    assert len([name for source, name in arrived if source == hook_source("other")]) == 3


def test_events_are_told_apart_by_id_or_body_and_by_nothing_else() -> None:
    with pytest.raises(BadInputError, match='dedup is "id" or "body"'):
        Hook("deploy", ("x" * 16,), "github", dedup="hash")  # type: ignore[arg-type]


async def test_each_hook_has_its_own_limit(backend: FakeBackend) -> None:
    assert (await call(backend.app, "/hooks/plain", b"x" * 51)).status == 413
    assert (await call(backend.app, PATH, b"x" * 51)).status == 401
    assert (await call(backend.app, PATH, b"", {"Content-Length": "20000000"})).status == 413


async def test_only_posts_are_taken(backend: FakeBackend) -> None:
    assert (await call(backend.app, PATH, method="GET")).status == 405


async def test_what_cannot_be_held_is_to_be_sent_again(
    backend: FakeBackend, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> list[bool]:
        raise StoreFullError("full")

    monkeypatch.setattr(backend.inbox, "accept", fail)
    reply = await send(backend, clock)
    assert (reply.status, reply.headers[b"retry-after"]) == (503, b"5")
    backend.is_open = False
    assert (await send(backend, clock)).status == 503


@pytest.mark.parametrize(
    ("name", "secrets"),
    [
        ("a", ()),
        ("a", ("",)),
        ("a", ("x" * 15,)),
        ("a", ("x" * 16, "tiny")),
        ("a", ("whsec_no base64 at all",)),
        ("a", ("whsec_==========",)),
        ("", (SECRET,)),
        ("a/b", (SECRET,)),
        ("é", (SECRET,)),
    ],
)
def test_a_hook_that_could_let_in_anybody_cannot_be_made(name: str, secrets: tuple[str, ...]) -> None:
    with pytest.raises(BadInputError) as raised:
        Hook(name, secrets)
    assert not any(secret in str(raised.value) for secret in secrets if secret)


def test_limits_of_a_hook_are_more_than_nothing() -> None:
    for window, limit, attempts in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(BadInputError):
            Hook("a", (SECRET,), window=window, limit=limit, attempts=attempts)


@pytest.mark.parametrize("window", [DEDUP_SECONDS / 2 + 1, float("inf"), float("nan")])
def test_a_window_in_which_a_copy_would_be_new_again_is_refused(window: float) -> None:
    assert Hook("a", (SECRET,), window=DEDUP_SECONDS / 2).window == DEDUP_SECONDS / 2
    with pytest.raises(BadInputError, match="window"):
        Hook("a", (SECRET,), window=window)


async def test_bodies_that_nobody_signed_leave_room_for_updates(
    backend: FakeBackend, clock: VirtualClock
) -> None:
    bodies = [itertools.chain([b"x" * MAX_BODY_BYTES], itertools.repeat(b"")) for _ in range(70)]
    unsigned = [asyncio.create_task(call(backend.app, PATH, body, pause=2)) for body in bodies]
    await clock.sleep(5)  # as much as may be on its way is

    split = [update()[:9], update()[9:]]
    assert (await call(backend.app, UPDATES, split, secret_header())).status == 200
    assert {reply.status for reply in await asyncio.gather(*unsigned)} == {408, 503}


def test_no_text_shows_a_secret() -> None:
    hook = Hook("payments", (SECRET, "x" * 16), "stripe")
    for text in (repr(hook), str(hook), pretty_repr(hook)):
        assert "payments" in text
        assert SECRET not in text
        assert "x" * 16 not in text


async def test_headers_that_are_kept_are_bounded(backend: FakeBackend, clock: VirtualClock) -> None:
    many = {f"x-{number}": "y" for number in range(100)} | {"x-long": "z" * 2_000}
    await call(backend.app, PATH, BODY, headers_of("e1", clock.now()) | many)
    (arrival,) = await backend.arrived()
    kept = unpack_event(arrival.body).headers
    assert len(kept) == MAX_HEADERS
    assert "x-long" not in kept


def test_an_event_that_is_no_json_says_so() -> None:
    event = HookEvent("payments", "e1", None, 0.0, {}, b"paid=5")
    assert unpack_event(pack_event(event)) == event
    with pytest.raises(BadInputError, match="event e1 of hook payments is not JSON"):
        event.json()
