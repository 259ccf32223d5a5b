"""The simulator's HTTP face: every form of request, faults on a real connection, the control API."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from simulated import TOKEN
from tidegate.model import Rate
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
    changed = await control(http, "PATCH", "limits", private="1/60", closes="bot", actions=["5/1"])
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
        ("POST", "press", {"bot": 42, "user": 7}, "user 7 sees no buttons"),
        ("POST", "migrate", {"chat": 5}, "is no group"),
        ("POST", "crowd", {"bot": 42, "users": 0, "seconds": 1}, "a crowd has 1 to"),
        ("GET", "crowd", {}, "there is no crowd yet"),
        ("GET", "log?limit=x", {}, "invalid literal"),
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


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open(server: TelegramServer) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    with pytest.raises(OSError, match="address already in use"):
        async with TelegramServer(port=port):
            pass


async def test_an_unknown_token_is_unauthorized(http: aiohttp.ClientSession) -> None:
    async with TelegramServer(world=World(tokens={"1:a"})) as closed:
        assert (await http.get(f"{closed.url}/bot1:b/getMe")).status == 401
        assert (await http.get(f"{closed.url}/file/bot1:b/files/x")).status == 401
