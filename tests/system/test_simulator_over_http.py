"""The simulator's HTTP face: every form of request, faults on a real connection, the control API."""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from simulated import TOKEN
from tidegate.model import Rate
from tidegate.sim.server import MAX_BODY
from tidegate.sim.telegram import Faults, Limits, World
from tidegate.sim.telegram.http import TelegramServer

LOOSE = Limits(bot=Rate(10_000, 1), private=Rate(10_000, 1), group=Rate(10_000, 1))


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(limits=LOOSE) as running:
        yield running


@pytest.fixture
async def http(server: TelegramServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as session:
        yield session


async def control(http: aiohttp.ClientSession, verb: str, path: str, **body: object) -> Any:  # noqa: ANN401  (JSON)
    async with http.request(verb, f"/sim/{path}", json=body or None) as answer:
        return await answer.json() | {"http": answer.status}


async def test_json_form_query_and_multipart_say_the_same(http: aiohttp.ClientSession) -> None:
    path = f"/bot{TOKEN}/sendMessage"
    params = {"chat_id": "7", "text": "Grüße & more"}
    multipart = aiohttp.FormData(params, default_to_multipart=True)
    requests = [
        http.post(path, json=params),
        http.post(path, data=params),
        http.post(path, params=params),
        http.get(path, params=params),
        http.post(path, data=multipart),
    ]
    texts = []
    for request in requests:
        async with request as answer:
            assert answer.status == 200
            texts.append((await answer.json())["result"]["text"])
    assert texts == ["Grüße & more"] * 5


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff"])
async def test_what_is_no_json_object_is_a_bad_request(http: aiohttp.ClientSession, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    async with http.post(f"/bot{TOKEN}/sendMessage", data=body, headers=headers) as answer:
        assert (answer.status, (await answer.json())["error_code"]) == (400, 400)


async def test_an_uploaded_file_can_be_downloaded(http: aiohttp.ClientSession) -> None:
    content = bytes(range(256)) * 1000
    form = aiohttp.FormData({"chat_id": "7"})
    form.add_field("document", content, filename="data.bin", content_type="application/x-data")
    async with http.post(f"/bot{TOKEN}/sendDocument", data=form) as answer:
        document = (await answer.json())["result"]["document"]
    assert (document["file_name"], document["mime_type"]) == ("data.bin", "application/x-data")
    async with http.get(f"/bot{TOKEN}/getFile", params={"file_id": document["file_id"]}) as answer:
        path = (await answer.json())["result"]["file_path"]
    async with http.get(f"/file/bot{TOKEN}/{path}") as answer:
        assert await answer.read() == content
    async with http.get(f"/file/bot{TOKEN}/files/none") as answer:
        assert answer.status == 404


async def test_a_lost_answer_cuts_the_connection_after_the_call_was_counted(
    server: TelegramServer, http: aiohttp.ClientSession
) -> None:
    server.telegram.faults = Faults(lost_answer=1)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await http.post(f"/bot{TOKEN}/sendMessage", json={"chat_id": 7, "text": "x"})
    report = await control(http, "GET", "report")
    assert (report["accepted"], report["faults"]) == (1, {"lost_answer": 1})


async def test_a_malformed_answer_is_malformed_on_the_wire(
    server: TelegramServer, http: aiohttp.ClientSession
) -> None:
    server.telegram.faults = Faults(malformed=1)
    async with http.post(f"/bot{TOKEN}/getMe") as answer:
        assert await answer.read() == b'{"ok":tru'


async def test_the_report_and_the_log_tell_what_happened(http: aiohttp.ClientSession) -> None:
    for chat, text in ((7, "#2"), (7, "#1"), (7, "#1"), (8, "#1")):
        await http.post(f"/bot{TOKEN}/sendMessage", json={"chat_id": chat, "text": text})
    await http.post(f"/bot{TOKEN}/sendTelepathy")
    report = await control(http, "GET", "report")
    assert (report["requests"], report["accepted"]) == (5, 4)
    assert (report["out_of_order"], report["doubled"]) == (1, 1)
    assert report["statuses"] == {"200": 4, "404": 1}
    log = (await control(http, "GET", "log?bot=42&chat=7&limit=2"))["log"]
    assert [(entry["text"], entry["status"], entry["message_id"]) for entry in log] == [
        ("#1", 200, 2),
        ("#1", 200, 3),
    ]
    await control(http, "POST", "reset")
    assert (await control(http, "GET", "report"))["requests"] == 0


async def test_limits_and_faults_change_while_it_runs(http: aiohttp.ClientSession) -> None:
    changed = await control(http, "PATCH", "limits", private="1/60", burst=1, closes="bot", actions=["5/1"])
    assert (changed["private"], changed["closes"], changed["actions"]) == ("1/60", "bot", ["5/1"])
    path, params = f"/bot{TOKEN}/sendMessage", {"chat_id": 7, "text": "x"}
    statuses = [(await http.post(path, json=params)).status for _ in range(2)]
    assert statuses == [200, 429]
    assert (await control(http, "PATCH", "faults", latency_in="1-2", server_error=1))["latency_in"] == "1-2"
    assert (await http.post(path, json=params)).status >= 500
    assert (await control(http, "GET", "faults"))["server_error"] == 1


@pytest.mark.parametrize(
    ("verb", "path", "body", "reason"),
    [
        ("PATCH", "limits", {"private": "1/"}, "is not a limit"),
        ("PATCH", "limits", {"closes": "door"}, "Invalid enum value 'door'"),
        ("PATCH", "faults", {"latency": "5"}, "unknown field `latency`"),
        ("PATCH", "faults", {"silent": 2}, "between 0 and 1"),
        ("POST", "say", {"bot": 42}, "missing required field"),
        ("POST", "say", {"bot": 99, "user": 7, "text": "x"}, "bot 99 is not known"),
        (
            "POST",
            "say",
            {"bot": 42, "user": 7, "txt": "x"},
            "unknown field `txt`: there are bot, user, chat,",
        ),
        ("POST", "press", {"bot": 42, "user": 7}, "user 7 sees no buttons"),
        ("PATCH", "limits", {"hidden_floods": 7}, "between 0 and 1"),
        ("PATCH", "limits", {"closes": "nothing", "escalates": True}, "set closes to chat or bot"),
        ("POST", "say", {"bot": 42, "user": -5, "text": "x"}, "Expected `int` >= 1 - at `$.user`"),
        ("POST", "say", {"bot": 42, "user": 7, "text": "x", "chat": 8}, "at `$.chat`"),
        ("POST", "send", {"bot": 42, "user": 7, "content": {"photo": "aGk="}}, "give photo beside content"),
        ("POST", "deactivate", {"user": 10**30}, "at `$.user`"),
        ("POST", "migrate", {"chat": 5}, "at `$.chat`"),
        ("POST", "migrate", {"chat": -1_000_000_000_005}, "is a supergroup: only a group becomes"),
        ("POST", "chat", {"chat": -5, "type": "channel"}, "cannot be a channel"),
        ("POST", "chat", {"chat": -5, "type": "private"}, "Invalid enum value 'private'"),
        ("POST", "chat", {"chat": -5, "type": "group", "name": "x"}, "at `$.name`"),
        ("POST", "kick", {"bot": 42, "chat": 7}, "at `$.chat`"),
        ("POST", "crowd", {"bot": 42, "users": 1, "seconds": 1, "habits": {"texts": []}}, "one text"),
        ("POST", "crowd", {"bot": 42, "users": 1, "seconds": 1, "habits": {"press": 9}}, "between 0 and 1"),
        ("POST", "crowd", {"bot": 42, "users": 1, "seconds": 1, "habits": {"patience": -1}}, "above 0"),
        ("POST", "crowd", {"bot": 42, "users": 0, "seconds": 1}, "a crowd has 1 to"),
        ("GET", "crowd", {}, "there is no crowd yet"),
        ("GET", "log?limit=x", {}, "limit must be a number from 1 to"),
        ("GET", "log?limit=-1", {}, "limit must be a number from 1 to"),
    ],
)
async def test_a_wrong_order_is_refused_in_one_line(
    http: aiohttp.ClientSession, verb: str, path: str, body: dict[str, object], reason: str
) -> None:
    await http.post(f"/bot{TOKEN}/getMe")
    answer = await control(http, verb, path, **body)
    assert answer["http"] == 400
    assert reason in answer["error"]
    assert "\n" not in answer["error"]


async def test_people_act_through_the_control_api(http: aiohttp.ClientSession) -> None:
    markup = {"inline_keyboard": [[{"text": "Buy", "callback_data": "buy"}]]}
    send = f"/bot{TOKEN}/sendMessage"
    await http.post(send, json={"chat_id": 7, "text": "?", "reply_markup": markup})
    await control(http, "POST", "say", bot=42, user=7, text="/start")
    await control(http, "POST", "press", bot=42, user=7, data="buy")
    await control(http, "POST", "block", bot=42, user=7)
    async with http.get(f"/bot{TOKEN}/getUpdates") as answer:
        updates = (await answer.json())["result"]
    assert [(set(update) - {"update_id"}).pop() for update in updates] == [
        "message",
        "callback_query",
        "my_chat_member",
    ]
    assert (await http.post(send, json={"chat_id": 7, "text": "x"})).status == 403
    await control(http, "POST", "block", bot=42, user=7, blocked=False)
    await control(http, "POST", "deactivate", user=7)
    assert (await http.post(send, json={"chat_id": 7, "text": "x"})).status == 403
    new = (await control(http, "POST", "migrate", chat=-5))["migrate_to_chat_id"]
    async with http.post(send, json={"chat_id": -5, "text": "x"}) as answer:
        assert (await answer.json())["parameters"] == {"migrate_to_chat_id": new}


async def test_a_crowd_comes_and_goes(http: aiohttp.ClientSession) -> None:
    await http.post(f"/bot{TOKEN}/getMe")
    habits = {"think": "1-2", "patience": 0.01}
    started = await control(http, "POST", "crowd", bot=42, users=5, seconds=0.05, habits=habits)
    assert started["users"] == 5
    again = await control(http, "POST", "crowd", bot=42, users=5, seconds=0.05)
    assert "is there already" in again["error"]
    while (crowd := await control(http, "GET", "crowd"))["running"]:
        pass
    assert crowd["said"] == crowd["unanswered"] > 0


async def test_a_channel_a_public_name_and_a_kick_come_through_the_control_api(
    http: aiohttp.ClientSession,
) -> None:
    send, channel = f"/bot{TOKEN}/sendMessage", -1_000_000_000_005
    made = await control(http, "POST", "chat", chat=channel, type="channel", name="Harbour")
    assert (made["type"], made["username"]) == ("channel", "Harbour")
    assert "is there already" in (await control(http, "POST", "chat", chat=channel, type="channel"))["error"]
    taken = await control(http, "POST", "chat", chat=-6, type="group", name="HARBOUR")
    assert "is taken" in taken["error"]
    params = {"chat_id": "@harbour", "text": "x"}
    async with http.post(send, json=params) as answer:
        assert (await answer.json())["result"]["chat"]["id"] == channel
    await control(http, "POST", "kick", bot=42, chat=channel)
    async with http.post(send, json=params) as answer:
        assert (await answer.json())["description"] == "Forbidden: bot was kicked from the channel chat"
    await control(http, "POST", "kick", bot=42, chat=channel, kicked=False)
    assert (await http.post(send, json=params)).status == 200
    async with http.get(f"/bot{TOKEN}/getUpdates") as answer:
        changes = [update["my_chat_member"] for update in (await answer.json())["result"]]
    assert [change["new_chat_member"]["status"] for change in changes] == ["kicked", "member"]


@pytest.mark.parametrize(
    ("verb", "path", "status", "answer"),
    [
        ("GET", "/sim/nothing", 404, {"error": "Not Found"}),
        ("GET", "/sim/say", 405, {"error": "Method Not Allowed"}),
        ("GET", "/nothing", 404, {"ok": False, "error_code": 404, "description": "Not Found"}),
    ],
)
async def test_what_is_not_there_is_said_in_json(
    http: aiohttp.ClientSession, verb: str, path: str, status: int, answer: dict[str, object]
) -> None:
    async with http.request(verb, path) as answered:
        assert (answered.status, await answered.json()) == (status, answer)


def part(header: str, content: str = "7") -> bytes:
    return f"--X\r\n{header}\r\n\r\n{content}\r\n--X--\r\n".encode()


MULTIPART, JSON = "multipart/form-data; boundary=X", "application/json"
NAMED = 'Content-Disposition: form-data; name="chat_id"'


@pytest.mark.parametrize(
    ("kind", "encoding", "body"),
    [
        (JSON, "identity", b'{"text":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        (JSON, "gzip", b"this is no gzip"),
        (MULTIPART, "gzip", b"this is no gzip"),
        (MULTIPART, "identity", b"no boundary"),
        (MULTIPART, "identity", part(f"{NAMED}\r\nBroken Header")),
        (MULTIPART, "identity", part(NAMED + "x" * 100_000)),
        (MULTIPART, "identity", part(NAMED)[:-9]),
        (MULTIPART, "identity", part(NAMED + '; filename="a"').replace(b'"a"', b'"\xff"')),
        ("application/x-www-form-urlencoded", "identity", b"text=\xff"),
    ],
)
@pytest.mark.parametrize("path", [f"/bot{TOKEN}/sendMessage", "/sim/say"])
async def test_a_body_that_cannot_be_read_is_a_bad_request(
    http: aiohttp.ClientSession, path: str, kind: str, encoding: str, body: bytes
) -> None:
    headers = {"Content-Type": kind, "Content-Encoding": encoding}
    async with http.post(path, data=body, headers=headers) as answer:
        assert answer.status == 400
        assert "error" in str(await answer.json())
    assert set((await control(http, "GET", "report"))["statuses"]) <= {"400"}


async def speak(server: TelegramServer, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


HIDDEN = b"42:SECRETTOKEN"


@pytest.mark.parametrize(
    "request_text",
    [
        b"GET /bot" + HIDDEN + b"/" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"/bot" + HIDDEN + b"/getMe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /bot" + HIDDEN + b"/getMe HTTP/1.1\r\nHost x/bot" + HIDDEN + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nReferer: " + HIDDEN * 10_000 + b"\r\n\r\n",
    ],
)
async def test_no_token_shows_when_a_request_cannot_be_parsed(
    server: TelegramServer,
    request_text: bytes,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    answer = await speak(server, request_text)
    assert b" 400 " in answer.splitlines()[0]
    assert answer.endswith(b'{"ok":false,"error_code":400,"description":"Bad Request"}')
    shown = capfd.readouterr()
    assert "SECRET" not in caplog.text + shown.out + shown.err + answer.decode()


async def test_no_token_shows_when_the_simulator_itself_fails(
    server: TelegramServer,
    http: aiohttp.ClientSession,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(token: str, *_: object) -> None:
        raise RuntimeError(f"a bug in the simulator, with {token}")

    monkeypatch.setattr(server.telegram, "call", fail)
    async with http.get(f"/bot{HIDDEN.decode()}/getMe") as answer:
        assert (answer.status, (await answer.json())["error_code"]) == (500, 500)
    assert "the simulator failed: RuntimeError at " in caplog.text
    assert "SECRET" not in caplog.text


async def test_a_get_may_be_as_long_as_a_message(http: aiohttp.ClientSession) -> None:
    params = {"chat_id": "7", "text": "🌊" * 4096}
    assert (await http.get(f"/bot{TOKEN}/sendMessage", params=params)).status == 200


@pytest.mark.parametrize("kind", ["json", "multipart", "many parts"])
async def test_a_body_beyond_the_limit_is_telegrams_413_and_not_kept(
    server: TelegramServer, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    form = aiohttp.FormData({"chat_id": "7"})
    if kind == "multipart":
        form.add_field("document", io.BytesIO(b"x" * (MAX_BODY + 1)), filename="large.bin")
    elif kind == "many parts":
        monkeypatch.setattr("tidegate.sim.telegram.http.MAX_BODY", 100_000)
        for number in range(200):
            form.add_field(f"file{number}", b"x" * 1_000, filename="small.bin")
    data: Any = form
    headers = {}
    if kind == "json":
        data, headers = io.BytesIO(b" " * (MAX_BODY + 1)), {"Content-Type": JSON}
    async with http.post(f"/bot{TOKEN}/sendDocument", data=data, headers=headers) as answer:
        assert answer.status == 413
        assert await answer.json() == {
            "ok": False,
            "error_code": 413,
            "description": "Request Entity Too Large",
        }
    assert not server.telegram.world.files
    assert (await control(http, "GET", "report"))["statuses"] == {"413": 1}


@pytest.mark.parametrize(
    "body",
    [
        b'{"method":"sendMessage","chat_id":7,"text":"x","reply_markup":{"inline_keyboard":5}}',
        b'{"method":' + b"[" * 100_000,
        b"[]",
    ],
)
async def test_a_webhook_that_answers_nonsense_gets_the_next_update(
    http: aiohttp.ClientSession, body: bytes
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hook(request: web.Request) -> web.Response:
        heard.put_nowait((await request.json())["message"]["text"])
        return web.Response(body=body, content_type=JSON)

    app = web.Application()
    app.router.add_post("/", hook)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        assert (await http.post(f"/bot{TOKEN}/setWebhook", json={"url": url})).status == 200
        for text in ("one", "two"):
            await control(http, "POST", "say", bot=42, user=7, text=text)
            assert await heard.get() == text
    finally:
        await runner.cleanup()


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open(server: TelegramServer) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    with pytest.raises(OSError, match="address already in use"):
        async with TelegramServer(port=port):
            pass


async def test_an_unknown_token_is_unauthorized(http: aiohttp.ClientSession) -> None:
    async with TelegramServer(world=World(tokens={"1:a"})) as closed:
        assert (await http.get(f"{closed.url}/bot1:b/getMe")).status == 401
        assert (await http.get(f"{closed.url}/file/bot1:b/files/x")).status == 401
