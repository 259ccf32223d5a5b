"""Errors are problem details: what happened, to what, what to do, and nothing of the server's insides."""

import asyncio
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_caller import ApiCaller
from tidegate.errors import (
    BadInputError,
    ClosedError,
    LimitedError,
    NotTheSenderError,
    StoreAwayError,
    StoreError,
    StoreFullError,
    TidegateError,
    UpstreamAwayError,
    WrongKeyError,
)
from tidegate.inbound.webhook_request import MAX_BODY_BYTES
from tidegate.ops.api.message_stream import MESSAGE_BYTES
from tidegate.ops.api.pagination import decode_cursor, encode_cursor
from tidegate.ops.api.problems import ProblemError, problem_of, word_error
from unit.ops.api.service import BOT, Service, problem


def test_a_connection_too_many_is_refused_in_the_words_of_the_api() -> None:
    content_type, body = word_error(503, "too many connections are open here", 5)
    told = json.loads(body)
    assert content_type == "application/problem+json"
    assert (told["status"], told["type"]) == (503, "urn:tidegate:problem:unavailable")
    assert (told["detail"], told["retry_after"]) == ("too many connections are open here", 5)


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (BadInputError("bad"), 422, None),
        (ClosedError("closed"), 503, 5),
        (StoreAwayError("away"), 503, 5),
        (StoreFullError("full"), 503, 30),
        (StoreError("broken"), 503, 5),
        (WrongKeyError("key"), 503, None),
        (NotTheSenderError("another"), 409, None),
        (LimitedError(method="sendMessage", chat_id=1, retry_after=2.5), 429, 3),
        (UpstreamAwayError("x", api="a", method="GET", endpoint="/"), 409, None),
        (TidegateError("its process does not answer"), 409, None),
        (TimeoutError(), 503, 5),
    ],
)
def test_every_expected_error_is_a_problem_with_its_status(
    error: Exception, status: int, retry_after: int | None
) -> None:
    found = problem_of(error)
    assert (found.status, found.retry_after) == (status, retry_after)
    assert found.detail
    assert found.headers().get("retry-after") == (None if retry_after is None else str(retry_after))


def test_an_unexpected_error_is_in_the_log_and_not_in_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        found = problem_of(KeyError("the insides"))
    assert found.status == 500
    assert "insides" not in found.body().decode()
    assert "KeyError: 'the insides'" in caplog.text


async def test_a_route_that_breaks_answers_500_without_its_reason(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("the insides")

    monkeypatch.setattr(service.gate.outbox, "find", breaks)
    monkeypatch.setattr(service.gate.outbox, "put", breaks)
    for answer in (
        await service.viewer.get("/api/v1/messages/x"),
        await service.operator.post("/api/v1/messages", {"bot": BOT, "chat_id": 1, "text": "x"}),
    ):
        assert problem(answer) == (500, "internal", "the error is in the log of the server")


async def test_a_store_that_is_away_is_told_with_when_to_try_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreAwayError("Redis cannot be reached")

    monkeypatch.setattr(service.gate.outbox, "find", away)
    monkeypatch.setattr(service.gate.outbox, "put", away)
    for answer in (
        await service.viewer.get("/api/v1/messages/x"),
        await service.operator.post("/api/v1/messages", {"bot": BOT, "chat_id": 1, "text": "x"}),
    ):
        assert problem(answer) == (503, "unavailable", "Redis cannot be reached")
        assert answer.headers["retry-after"] == "5"


async def test_a_path_or_method_that_does_not_exist_is_a_problem_too(service: Service) -> None:
    status, kind, detail = problem(await service.viewer.get("/api/v2/messages"))
    assert (status, kind) == (404, "not-found")
    assert "GET /openapi.json has every route" in detail
    wrong = await service.operator.call("PATCH", "/api/v1/messages")
    assert problem(wrong)[:2] == (405, "method-not-allowed")
    assert wrong.headers["allow"] == "GET, POST"
    stream = await service.operator.call("GET", "/api/v1/messages/stream")
    assert (stream.status, stream.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("headers", "detail"),
    [
        ({}, "send a token: Authorization: Bearer tg_…"),
        ({"authorization": f"Bearer tg_{'w' * 43}"}, "this token is wrong, has expired or was revoked"),
        ({"cookie": f"tidegate_session=tgs_{'w' * 43}"}, "this session has ended: log in again"),
    ],
)
async def test_whoever_is_not_known_is_told_what_to_send(
    service: Service, headers: dict[str, str], detail: str
) -> None:
    answer = await ApiCaller(service.app, headers=headers).get("/queue/stats")
    assert problem(answer)[:2] == (401, "unauthenticated")
    assert detail in problem(answer)[2]


@pytest.mark.parametrize(
    ("path", "most"), [("/api/v1/messages", MESSAGE_BYTES), ("/api/v1/tokens", MAX_BODY_BYTES)]
)
async def test_a_body_that_is_too_large_is_told_how_large_it_may_be(
    service: Service, path: str, most: int
) -> None:
    answer = await service.admin.post(path, {"name": "x" * most})
    assert problem(answer) == (413, "too-large", f"the body is too large: send {most:,} bytes at most")


async def test_fields_that_cannot_be_used_are_named_and_not_quoted(service: Service) -> None:
    answer = await service.admin.post("/api/v1/tokens", {"name": "x", "role": "secret-role", "more": 1})
    assert problem(answer)[:2] == (422, "bad-input")
    assert [error["field"] for error in answer.json["errors"]] == ["body.role", "body.more"]
    assert "secret-role" not in answer.body.decode()


async def test_a_body_that_never_ends_is_given_up(service: Service) -> None:
    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    token = await service.token()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/api/v1/messages",
        "query_string": b"",
        "client": ("192.0.2.7", 1),
        "headers": [
            (b"authorization", f"Bearer {token}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", b"10"),
        ],
    }
    await service.app(scope, receive, send)  # type: ignore[arg-type]  # dictionaries, as servers give them
    assert sent[0]["status"] == 408


@given(st.sampled_from(["messages", "jobs"]), st.integers(-(2**60), 2**60))
def test_a_cursor_leads_back_to_its_place(kind: str, place: int) -> None:
    cursor = encode_cursor(kind, place)
    assert cursor is not None
    assert cursor.isascii()
    assert decode_cursor(kind, cursor, int) == place
    with pytest.raises(ProblemError, match="not one of this list"):
        decode_cursor("other", cursor, int)


@given(st.text(max_size=30))
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ProblemError):
        decode_cursor("messages", text, str)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/tokens", {"name": "shop", "role": "viewer", "bot": True}),
        ("/api/v1/tokens", {"name": "shop", "role": "viewer", "expires_in": True}),
        (f"/api/v1/bots/{BOT}/limits/open", {"chat_id": True}),
        ("/api/v1/dead-letters/drop", {"bot": True}),
        ("/api/v1/reminders", {"bot": BOT, "chat_id": True, "text": "Hi", "at": "09:00", "every": "day"}),
    ],
)
async def test_true_is_not_taken_as_the_number_1(
    service: Service, path: str, body: dict[str, object]
) -> None:
    """A token was made for bot 1, and the limits of chat 1 were opened."""
    answer = await service.admin.post(path, body)
    assert problem(answer)[:2] == (422, "bad-input")
    assert "true and false are not taken here" in answer.body.decode()


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/api/v1/messages?chat=1001", "chat_id may be meant"),
        ("/api/v1/history?txt=mill&direction=in", "bot or chat_id or direction"),
        ("/api/v1/reminders/counts?bot=42", "this path takes none"),
    ],
)
async def test_a_misspelt_filter_is_answered_with_the_one_that_may_be_meant(
    service: Service, path: str, hint: str
) -> None:
    answer = await service.admin.get(path)
    assert hint in answer.body.decode()
