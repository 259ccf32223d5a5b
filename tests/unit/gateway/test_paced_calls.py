"""Calls take their turn inside the request of their client, and are passed on as they are."""

import asyncio

import pytest

from tidegate.delivery.sender import BotAccess
from tidegate.delivery.transport import RawAnswer
from tidegate.gateway.app import file_url
from tidegate.gateway.reply_chats import ReplyChats
from tidegate.sim.telegram import Person
from tidegate.sim.virtual_time import VirtualClock
from unit.gateway.gateway_caller import TOKEN, form, gateway

JSON = "application/json"


async def test_a_call_is_passed_on_as_it_is_and_its_answer_comes_back_as_it_is(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        content = b'{"chat_id":1001, "text":"hi",\n"future_parameter":[1]}'
        answer = await simulated.call("sendMessage", content=content, headers={"content-type": JSON})
        passed = simulated.network.calls[-1]

    assert (answer.status, answer.json["result"]["text"]) == (200, "hi")
    assert (passed.parts, passed.content_type) == ((content,), JSON)


@pytest.mark.parametrize("how", ["query", "form", "json", "multipart"])
async def test_parameters_come_in_every_form_that_telegram_takes(clock: VirtualClock, how: str) -> None:
    async with gateway(clock) as simulated:
        path, fields = f"/bot{TOKEN}/sendMessage", {"chat_id": "1001", "text": "a b"}
        match how:
            case "query":
                answer = await simulated.request(path, method="GET", query="chat_id=1001&text=a%20b")
            case "form":
                kind = {"content-type": "application/x-www-form-urlencoded"}
                answer = await simulated.request(path, content=b"chat_id=1001&text=a+b", headers=kind)
            case "json":
                answer = await simulated.call("sendMessage", {"chat_id": 1001, "text": "a b"})
            case _:
                content, headers = form(fields, {})
                answer = await simulated.request(path, content=content, headers=headers)
        again = asyncio.create_task(simulated.call("sendMessage", {"chat_id": 1001, "text": "c"}))
        began = clock.monotonic()
        await again

    assert answer.json["result"]["text"] == "a b"
    assert clock.monotonic() - began == pytest.approx(1.0, abs=0.01)  # the chat was seen: one a second


async def test_a_flood_of_calls_leaves_in_turn_and_telegram_refuses_none(clock: VirtualClock) -> None:
    async with gateway(clock, max_wait=60.0) as simulated:
        calls = [simulated.call("sendMessage", {"chat_id": 1000 + n, "text": "hi"}) for n in range(90)]
        began = clock.monotonic()
        answers = await asyncio.gather(*calls)
        seconds = clock.monotonic() - began

    assert {answer.status for answer in answers} == {200}
    assert simulated.refused == 0
    assert 1.9 < seconds < 3.5


async def test_a_turn_that_comes_later_than_a_library_waits_is_a_429_with_the_true_wait(
    clock: VirtualClock,
) -> None:
    async with gateway(clock) as simulated:
        group = [simulated.call("sendMessage", {"chat_id": -1001, "text": "hi"}) for _ in range(20)]
        began = clock.monotonic()
        first = await asyncio.gather(*group)
        before = len(simulated.network.calls)
        answer = await simulated.call("sendMessage", {"chat_id": -1001, "text": "one too many"})
        waited = clock.monotonic() - began
        await clock.sleep(answer.json["parameters"]["retry_after"])
        retried = await simulated.call("sendMessage", {"chat_id": -1001, "text": "one too many"})

    ended = [one for one in first if one.status == 200]
    assert answer.status == 429
    assert answer.error == f"Too Many Requests: retry after {answer.json['parameters']['retry_after']}"
    assert answer.headers["retry-after"] == str(answer.json["parameters"]["retry_after"])
    assert 4.0 <= waited < 9.0
    assert len(simulated.network.calls) - before == 1  # the retried one alone
    assert retried.status == 200
    assert simulated.refused == 0
    assert ended


async def test_a_429_of_telegram_is_heard_here_and_its_call_is_made_again(clock: VirtualClock) -> None:
    refusal = (
        b'{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 2",'
        b'"parameters":{"retry_after":2}}'
    )
    async with gateway(clock) as simulated:
        simulated.network.answers = [RawAnswer(429, JSON, refusal)]
        began = clock.monotonic()
        answer = await simulated.call("sendMessage", {"chat_id": 1001, "text": "hi"})
        waited = clock.monotonic() - began
        simulated.network.answers = [RawAnswer(429, JSON, refusal.replace(b"2", b"60"))]
        long = await simulated.call("sendMessage", {"chat_id": 1002, "text": "hi"})

    assert answer.status == 200
    assert waited >= 2.0
    assert (long.status, long.json["parameters"]["retry_after"] >= 56) == (429, True)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, b'{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}'),
        (400, b'{"ok":false, "error_code":400,"description":"Bad Request: chat not found"}'),
        (400, b'{"ok":false,"error_code":400,"parameters":{"migrate_to_chat_id":-100200}}'),
        (502, b"<html>Bad Gateway</html>"),
        (500, b""),
    ],
)
async def test_other_errors_of_telegram_are_passed_on_unchanged(
    clock: VirtualClock, status: int, body: bytes
) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        simulated.network.answers = [RawAnswer(status, "text/x", body)]
        answer = await simulated.call("sendMessage", {"chat_id": 1001, "text": "hi"})

    assert (answer.status, answer.body, answer.headers["content-type"]) == (status, body, "text/x")


async def test_without_an_answer_the_client_hears_whether_the_call_may_have_been_made(
    clock: VirtualClock,
) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        simulated.network.down = True
        down = await simulated.call("sendMessage", {"chat_id": 1001, "text": "hi"})
        simulated.network.down = False

    assert down.status == 502
    assert down.error == "Bad Gateway: Telegram cannot be reached (connect): the call was not made"


async def test_a_client_that_goes_away_leaves_its_turn_to_others(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("sendMessage", {"chat_id": 1001, "text": "first"})
        gone = asyncio.Event()
        waiting = asyncio.create_task(
            simulated.call("sendMessage", {"chat_id": 1001, "text": "nobody waits for it"}, gone=gone)
        )
        await clock.sleep(0.3)
        gone.set()
        left = await waiting
        began = clock.monotonic()
        answer = await simulated.call("sendMessage", {"chat_id": 1001, "text": "second"})
        waited = clock.monotonic() - began
        stats = await simulated.gate.stats()

    texts = [call.parts for call in simulated.network.calls]
    assert left.status == 0
    assert answer.status == 200
    assert waited < 1.0
    assert not any(b"nobody" in part for parts in texts for part in parts if isinstance(part, bytes))
    assert stats.direct == 2


async def test_methods_in_any_case_count_as_what_they_are(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        message = await simulated.call("SENDMESSAGE", {"chat_id": 1001, "text": "hi"})
        began = clock.monotonic()
        number = message.json["result"]["message_id"]
        edit = await simulated.call("editmessagetext", {"chat_id": 1001, "message_id": number, "text": "ho"})

    assert edit.status == 200
    assert clock.monotonic() - began >= 0.99
    assert [call.method for call in simulated.network.calls[-2:]] == ["sendMessage", "editMessageText"]


@pytest.mark.parametrize("again", ["chat_id", r"\u0063hat_id"])
async def test_of_two_chats_in_one_body_the_call_is_paced_for_the_one_that_telegram_reads(
    clock: VirtualClock, again: str
) -> None:
    async with gateway(clock) as simulated:
        content = f'{{"chat_id":1001,"text":"hi","{again}":1002}}'.encode()
        await simulated.request(f"/bot{TOKEN}/sendMessage", content=content, headers={"content-type": JSON})
        began = clock.monotonic()
        await simulated.call("sendMessage", {"chat_id": 1002, "text": "at once"})
        to_another = clock.monotonic() - began
        await simulated.call("sendMessage", {"chat_id": 1001, "text": "the second of this second"})
        to_the_first = clock.monotonic() - began

    assert (to_another < 0.5, to_the_first >= 0.99) == (True, True)
    assert simulated.network.calls[1].parts == (content,)


async def test_an_album_in_a_form_takes_as_many_slots_as_it_has_items(clock: VirtualClock) -> None:
    async with gateway(clock, max_wait=60.0) as simulated:
        media = '[{"type":"photo","media":"attach://a"},{"type":"photo","media":"attach://b"}]'
        content, headers = form({"chat_id": "-1001", "media": media}, {"a": b"1", "b": b"2"})
        path = f"/bot{TOKEN}/sendMediaGroup"
        for _ in range(10):
            answer = await simulated.request(path, content=content, headers=headers)
            assert answer.status == 200, answer.body
        began = clock.monotonic()
        await simulated.call("sendMessage", {"chat_id": -1001, "text": "the 21st of this minute"})

    assert clock.monotonic() - began > 20
    assert simulated.refused == 0


async def test_calls_without_a_chat_wait_for_nothing(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        began = clock.monotonic()
        answers = await asyncio.gather(*(simulated.call("getMe") for _ in range(50)))

    assert {answer.status for answer in answers} == {200}
    assert clock.monotonic() == began


async def test_calls_to_a_chat_that_has_just_written_are_replies_and_may_burst(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        bot = simulated.telegram.world.bot(TOKEN)
        assert bot is not None
        Person(simulated.telegram, bot, 1001).says("/start")
        updates = await simulated.call("getUpdates", {"timeout": 10})
        began = clock.monotonic()
        for _ in range(5):
            assert (await simulated.call("sendMessage", {"chat_id": 1001, "text": "x"})).status == 200
        replies = clock.monotonic() - began
        for _ in range(2):
            assert (await simulated.call("sendMessage", {"chat_id": 1002, "text": "x"})).status == 200
        others = clock.monotonic() - began - replies

    assert len(updates.json["result"]) == 1
    assert replies < 0.5
    assert others >= 1.0


async def test_a_long_poll_lasts_as_long_as_it_asks_and_ends_when_its_client_goes_away(
    clock: VirtualClock,
) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        began = clock.monotonic()
        empty = await simulated.call("getUpdates", {"timeout": 50})
        lasted = clock.monotonic() - began
        gone = asyncio.Event()
        poll = asyncio.create_task(simulated.call("getUpdates", {"timeout": 50}, gone=gone))
        await clock.sleep(1.0)
        gone.set()
        await poll

    assert (empty.json, lasted) == ({"ok": True, "result": []}, 50.0)
    assert simulated.network.cancelled == ["getUpdates"]  # else Telegram would answer the next poll with 409


async def test_a_long_poll_ends_without_updates_when_the_server_stops(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        poll = asyncio.create_task(simulated.call("getUpdates", {"timeout": 50}))
        await clock.sleep(1.0)
        simulated.app.drain()
        answer = await poll

    assert answer.json == {"ok": True, "result": []}


async def test_calls_that_still_wait_when_the_server_stops_are_answered_soon(clock: VirtualClock) -> None:
    async with gateway(clock, max_wait=600.0) as simulated:
        for _ in range(20):
            await simulated.call("sendMessage", {"chat_id": -1001, "text": "x"})
        due_soon = asyncio.create_task(simulated.call("sendMessage", {"chat_id": -1002, "text": "x"}))
        waiting = asyncio.create_task(simulated.call("sendMessage", {"chat_id": -1001, "text": "x"}))
        began = clock.monotonic()
        simulated.app.drain()
        answered, refused = await due_soon, await waiting
        lasted = clock.monotonic() - began
        stats = await simulated.gate.stats()

    assert answered.status == 200
    assert refused.error == "Too Many Requests: the gateway stops: retry after 1"
    assert 9.0 < lasted < 11.0
    assert (stats.direct, stats.direct_given_up) == (21, 1)


async def test_a_failure_of_the_gateway_itself_is_an_answer_of_the_bot_api_and_is_logged(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise LookupError(f"no {TOKEN}")

    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        monkeypatch.setattr(ReplyChats, "priority", broken)
        answer = await simulated.call("sendMessage", {"chat_id": 1, "text": "x"})

    assert (answer.status, answer.error) == (500, "Internal Server Error: the gateway failed: see its log")
    assert "in broken" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("api_url", "url"),
    [
        ("http://one.test", "http://one.test/file/bot42:x/photos/a%20b.jpg"),
        ("http://one.test/bot{token}/{method}", "http://one.test/file/bot42:x/photos/a%20b.jpg"),
        ("http://one.test/bot{token}/test/{method}", "http://one.test/file/bot42:x/test/photos/a%20b.jpg"),
    ],
)
def test_files_are_where_the_server_of_the_bot_has_them(api_url: str, url: str) -> None:
    assert file_url(BotAccess("42:x", api_url), "photos/a b.jpg") == url


async def test_the_test_environment_has_a_hint(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        answer = await simulated.call("test/getMe")

    assert answer.status == 404
    assert "--telegram https://api.telegram.org/bot{token}/test/{method}" in answer.error


async def test_more_calls_than_it_bears_are_refused_at_once(clock: VirtualClock) -> None:
    async with gateway(clock, most_waits=3) as simulated:
        await simulated.call("sendMessage", {"chat_id": 1001, "text": "the others wait for this one"})
        calls = [simulated.call("sendMessage", {"chat_id": 1001, "text": "hi"}) for _ in range(5)]
        answers = await asyncio.gather(*calls)

    refused = [answer for answer in answers if answer.status == 429]
    assert len(refused) == 2
    assert refused[0].json["parameters"] == {"retry_after": 1}


async def test_texts_of_calls_are_recorded_as_those_of_every_bot(clock: VirtualClock) -> None:
    from tidegate.events import CallAttempted  # noqa: PLC0415

    told: list[CallAttempted] = []
    async with gateway(clock) as simulated:
        simulated.gate.core.events.subscribe(CallAttempted, told.append)
        await simulated.call("sendMessage", {"chat_id": 1001, "text": "hi", "reply_markup": {}})

    [event] = [one for one in told if one.method == "sendMessage"]
    assert (event.bot, event.chat_id, event.content()) == (42, 1001, {"text": "hi"})
    assert event.result()["text"] == "hi"
