"""Messages over HTTP: put, list, show, explain, cancel."""

import msgspec
import pytest

from tidegate.model import State
from tidegate.ops.api.message_stream import MESSAGE_BYTES
from unit.ops.api.service import BOT, CHAT, OTHER_BOT, SECRET_TEXT, Service, problem


async def test_a_message_is_put_and_shown(service: Service) -> None:
    put = await service.operator.post(
        "/api/v1/messages", {"bot": BOT, "chat_id": CHAT, "text": "Hi", "priority": "high", "delay": 60}
    )
    assert put.status == 202
    assert put.json["fresh"]

    shown = (await service.operator.get(f"/api/v1/messages/{put.json['id']}")).json
    assert (shown["state"], shown["priority"], shown["params"]) == ("queued", "high", {"text": "Hi"})
    assert shown["not_before"] == pytest.approx(service.gate.clock.now() + 60)


async def test_the_bot_of_a_message_is_that_of_its_token(service: Service) -> None:
    put = await (await service.caller("operator", OTHER_BOT)).post(
        "/api/v1/messages", {"chat_id": 1, "text": "Hi"}
    )
    assert (await service.find(put.json["id"])).message.bot == OTHER_BOT


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"bot": BOT, "chat_id": 0, "text": "Hi"}, "chat_id 0 is no chat"),
        ({"bot": BOT, "chat_id": 1}, "text is empty"),
        ({"bot": BOT, "chat_id": 1, "txt": "Hi", "text": "x"}, "'text' may be meant"),
        ({"chat_id": 1, "text": "Hi"}, "which bot is not clear: give a number of GET /api/v1/bots as bot"),
        ({"bot": 9, "chat_id": 1, "text": "Hi"}, "bot 9 is not known: give a number of GET /api/v1/bots"),
        ({"bot": "42:token", "chat_id": 1, "text": "Hi"}, "bot is the number of a bot"),
        ([1], "a message is a JSON object"),
        (msgspec.Raw(b'{"chat_id": 1e400, "text": "Hi"}'), "a number is too large"),
    ],
)
async def test_what_is_no_message_is_refused_and_says_why(
    service: Service, fields: object, detail: str
) -> None:
    answer = await service.operator.post("/api/v1/messages", fields)
    assert problem(answer)[:2] == (422, "bad-input")
    assert detail in answer.json["detail"]
    assert (await service.gate.stats()).waiting == 0


LOCAL = "file:///etc/passwd"


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "sendDocument", "document": LOCAL},
        {"method": "sendPhoto", "photo": " FILE:/etc/passwd"},
        {"method": "sendMediaGroup", "media": [{"type": "photo", "media": LOCAL}]},
        {"method": "sendMediaGroup", "media": f'[{{"type": "photo", "media": "{LOCAL}"}}]'},
        {"method": "sendDocument", "extra": {"document": LOCAL}},
        {"method": "sendMediaGroup", "extra": {"media": f'[{{"type": "photo", "media": "{LOCAL}"}}]'}},
    ],
)
async def test_a_file_on_the_disk_of_a_bot_api_server_is_not_sent(
    service: Service, fields: dict[str, object]
) -> None:
    """A token of an operator was enough to read any file that the server may read; the gateway refused it."""
    message = {"bot": BOT, "chat_id": CHAT, **fields}
    refused = [
        await service.operator.post("/api/v1/messages", message),
        await service.operator.call(
            "POST",
            "/api/v1/messages/stream",
            content=msgspec.json.encode(message),
            headers={"content-type": "application/x-ndjson"},
        ),
        await service.operator.post("/api/v1/reminders", {**message, "at": "09:00", "zone": "UTC"}),
        await service.operator.post(
            "/api/v1/broadcasts", {"name": "news", "bot": BOT, "audience": [CHAT], **fields}
        ),
    ]
    for answer in refused:
        assert problem(answer)[:2] == (422, "bad-input")
        assert "names a file of the Bot API server" in answer.body.decode()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"delay": "2h"}, "delay is no duration: give seconds; in Python also a timedelta"),
        ({"text": {"a": 1}}, 'text must be a string, such as "Hi"'),
        ({"chat_id": None}, "chat_id is missing: give a number other than 0, or an @name"),
        ({"urgent": "yes"}, "urgent 'yes' is not possible: give true or false"),
        ({"dedup_key": 5}, "dedup_key 5 is not possible: give a text"),
        ({"coalesce_key": []}, "coalesce_key [] is not possible: give a text"),
        ({"max_attempts": "3"}, "max_attempts '3' is not possible: give a whole number from 1 to 1000"),
        ({"on_unknown": "drop"}, "on_unknown 'drop' is not possible: give resend or park"),
        (
            {"method": "sendPhoto"},
            "'text' is no parameter of sendPhoto: 'caption' may be meant; to send it as",
        ),
        ({"new": 1}, 'to send it as it is, give it in extra: {"new": …}'),
    ],
)
async def test_what_is_wrong_with_a_message_is_said_in_words_that_are_not_of_python_alone(
    service: Service, fields: dict[str, object], why: str
) -> None:
    refused = await service.operator.post(
        "/api/v1/messages", {"bot": BOT, "chat_id": CHAT, "text": "Hi", **fields}
    )
    assert problem(refused)[:2] == (422, "bad-input")
    assert why in refused.json["detail"]


@pytest.mark.parametrize(
    "content",
    [
        f'{{"chat_id": 1, "bot": {BOT}, "method": "sendPhoto", "photo": "{LOCAL}"}}'.encode("utf-16"),
        b'{"\xff": "file:/"}',
        b'["file:/"]',
        b'{"photo": "file:/"',
        b'{"photo": ' + b"[" * 100_000 + b'"file:/"',
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/messages", "/api/v1/reminders", "/api/v1/broadcasts"])
async def test_a_strange_body_that_may_name_a_file_is_refused_and_no_error(
    service: Service, path: str, content: bytes
) -> None:
    headers = {"content-type": "application/json"}
    answer = await service.operator.call("POST", path, content=content, headers=headers)
    assert answer.status in {400, 422}


async def test_a_text_may_look_like_the_address_of_a_file(service: Service) -> None:
    answer = await service.operator.post("/api/v1/messages", {"bot": BOT, "chat_id": CHAT, "text": LOCAL})
    assert answer.status == 202


async def test_a_body_that_cannot_be_read_is_refused(service: Service) -> None:
    async def put(content: bytes, content_type: str = "application/json") -> tuple[int, str]:
        headers = {"content-type": content_type}
        answer = await service.operator.call("POST", "/api/v1/messages", content=content, headers=headers)
        return problem(answer)[:2]

    assert await put(b'{"chat_id": 1') == (400, "malformed")
    assert await put(b"") == (400, "malformed")
    assert await put(b"\xff\xfe") == (400, "malformed")
    assert await put(b"chat_id=1", "text/plain") == (415, "unsupported-media-type")
    assert await put(b" " * (MESSAGE_BYTES + 1)) == (413, "too-large")


async def test_an_answer_before_the_end_of_the_body_ends_the_connection(service: Service) -> None:
    parts = [b" " * MESSAGE_BYTES, b" "] * 2
    headers = {"content-type": "application/json"}
    answer = await service.operator.call("POST", "/api/v1/messages", content=parts, headers=headers)
    assert answer.status == 413
    assert answer.headers["connection"] == "close"

    whole = await service.operator.post("/api/v1/messages", {"bot": BOT, "chat_id": 0})
    assert "connection" not in whole.headers


async def test_messages_are_listed_page_by_page(service: Service) -> None:
    tickets = [await service.put(chat) for chat in range(1, 8)]
    await service.put(bot=OTHER_BOT)
    found, cursor = list[str](), ""
    while True:
        page = (await service.viewer.get(f"/api/v1/messages?bot={BOT}&limit=3{cursor}")).json
        found += [item["id"] for item in page["items"]]
        assert len(page["items"]) <= 3
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == tickets


async def test_messages_are_listed_by_chat_state_reason_and_key(service: Service) -> None:
    first, keyed = await service.put(1), await service.put(2, dedup_key="order-17")
    letter = await service.put_letter(3, reason="blocked")

    async def listed(query: str) -> list[str]:
        answer = await service.viewer.get(f"/api/v1/messages?{query}")
        assert answer.status == 200, answer.body
        return [item["id"] for item in answer.json["items"]]

    assert await listed("chat_id=1") == [first]
    assert await listed("state=dead&state=parked") == [letter]
    assert await listed("reason=blocked") == [letter]
    assert await listed(f"bot={BOT}&dedup_key=order-17") == [keyed]
    assert await listed(f"bot={BOT}&dedup_key=order-18") == []


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "state=lost", "cursor=xyz", "chat_id=nobody", "bot=0", "cursor=WyJqb2JzIiwxXQ"],
)
async def test_a_filter_that_cannot_be_meant_is_refused(service: Service, query: str) -> None:
    answer = await service.viewer.get(f"/api/v1/messages?{query}")
    assert problem(answer)[:2] == (422, "bad-input")


async def test_lists_cut_long_values_short_and_one_message_is_shown_whole(service: Service) -> None:
    ticket = await service.put(text="x" * 4000)
    [listed] = (await service.operator.get("/api/v1/messages")).json["items"]
    shown = (await service.operator.get(f"/api/v1/messages/{ticket}")).json
    assert listed["params"]["text"].endswith("… and 3,500 characters")
    assert len(shown["params"]["text"]) == 4000


async def test_a_message_that_waits_is_explained(service: Service) -> None:
    await service.gate.outbox.pause(BOT)
    ticket = await service.put()
    why = (await service.viewer.get(f"/api/v1/messages/{ticket}/why")).json
    assert why["state"] == "queued"
    assert any("paused" in reason for reason in why["waits_for"])
    assert why["expected_in"] is None


async def test_a_message_that_waits_is_cancelled_once(service: Service) -> None:
    ticket = await service.put()
    assert (await service.operator.post(f"/api/v1/messages/{ticket}/cancel")).json == {"cancelled": True}
    assert await service.state_of(ticket) == State.CANCELLED

    again = await service.operator.post(f"/api/v1/messages/{ticket}/cancel")
    assert problem(again) == (409, "conflict", f"message {ticket} is cancelled: it does not wait")
    assert again.json["state"] == "cancelled"
    assert await service.audited() == ["messages.cancel"]


async def test_a_message_that_waits_gets_another_priority(service: Service) -> None:
    await service.gate.outbox.pause(BOT)
    ticket = await service.put()
    path, new = f"/api/v1/messages/{ticket}/priority", {"priority": "high"}

    for _ in range(2):  # a request may be repeated
        assert (await service.operator.post(path, new)).json == {"id": ticket, "priority": "high"}

    assert (await service.viewer.get(f"/api/v1/messages/{ticket}")).json["priority"] == "high"
    assert (await service.viewer.post(path, new)).status == 403
    assert (await service.operator.post(path, {"priority": "urgent"})).status == 422
    await service.gate.outbox.cancel([ticket])
    again = await service.operator.post(path, new)
    text = f"message {ticket} is cancelled: its priority cannot be changed"
    assert problem(again) == (409, "conflict", text)
    assert again.json["state"] == "cancelled"
    assert await service.audited() == ["messages.priority", "messages.priority"]


async def test_an_urgent_message_has_no_priority_to_change(service: Service) -> None:
    await service.gate.outbox.pause(BOT)
    ticket = await service.put(urgent=True)
    refused = await service.operator.post(f"/api/v1/messages/{ticket}/priority", {"priority": "low"})
    assert refused.status == 409
    assert "is urgent, and goes before every priority" in refused.json["detail"]


async def test_an_unknown_message_is_not_found(service: Service) -> None:
    for call in (
        service.viewer.get("/api/v1/messages/nothing"),
        service.viewer.get("/api/v1/messages/nothing/why"),
        service.operator.post("/api/v1/messages/nothing/cancel"),
        service.operator.post("/api/v1/messages/nothing/priority", {"priority": "low"}),
    ):
        assert problem(await call) == (404, "not-found", "message nothing is not known here")


async def test_the_text_of_a_message_is_for_operators(service: Service) -> None:
    ticket = await service.put_letter()
    path = f"/api/v1/messages/{ticket}"
    for_operator, for_viewer = (await service.operator.get(path)).json, (await service.viewer.get(path)).json
    assert SECRET_TEXT in for_operator["description"]
    assert for_viewer["reason"] == "blocked"
    assert for_viewer["params"] is for_viewer["description"] is for_viewer["result"] is None


async def test_attempts_of_a_message_are_listed_and_their_descriptions_hidden_from_viewers(
    service: Service,
) -> None:
    ticket = await service.put()
    await service.put_attempt(ticket, outcome="refused", reason=None, description=None, wait=17.0, at=10.0)
    await service.put_attempt(ticket, number=2, at=30.0)
    path = f"/api/v1/messages/{ticket}/attempts"

    shown, hidden = [(await caller.get(path)).json["items"] for caller in (service.operator, service.viewer)]

    assert [(one["number"], one["outcome"], one["wait"]) for one in shown] == [
        (1, "refused", 17.0),
        (2, "dead", None),
    ]
    assert SECRET_TEXT in shown[1]["description"]
    assert [one["description"] for one in hidden] == [None, None]
    assert hidden[1]["reason"] == "blocked"


async def test_attempts_outlive_the_message_in_the_outbox(service: Service) -> None:
    await service.put_attempt("gone-1")
    await service.put_history(ticket="gone-2")
    other = await service.caller("operator", OTHER_BOT)

    assert len((await service.operator.get("/api/v1/messages/gone-1/attempts")).json["items"]) == 1
    assert (await service.operator.get("/api/v1/messages/gone-2/attempts")).json["items"] == []
    for ticket in ("gone-1", "gone-2", "never"):
        caller = other if ticket != "never" else service.operator
        assert problem(await caller.get(f"/api/v1/messages/{ticket}/attempts"))[:2] == (404, "not-found")


async def test_a_message_that_is_forgotten_is_found_in_history_by_its_id(service: Service) -> None:
    await service.put_history(ticket="gone-1", created_at=10.0)
    waiting = await service.put()

    found = (await service.viewer.get("/api/v1/messages/gone-1/history")).json["items"]

    assert [(one["ticket"], one["state"], one["text"]) for one in found] == [("gone-1", "dead", None)]
    assert (await service.viewer.get(f"/api/v1/messages/{waiting}/history")).json["items"] == []
    assert problem(await service.viewer.get("/api/v1/messages/never/history"))[0] == 404
