"""The verbs of the client as values: what is asked, what an answer means, and what is tried again."""

import datetime as dt
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import BadInputError, File
from tidegate.client.clients import ApiAddress
from tidegate.client.verbs import (
    ATTEMPTS,
    BYTES_PER_REQUEST,
    LINES_PER_REQUEST,
    ApiResponse,
    ApiVerb,
    ApiVerbs,
    LineChunks,
    LineError,
    SendSummary,
    added,
    error_of,
    pause_before,
)
from tidegate.errors import (
    ServiceAwayError,
    ServiceError,
    ServiceInputError,
    ServiceRefusedError,
)
from tidegate.sim.virtual_time import VirtualClock


@pytest.fixture
async def verbs(clock: VirtualClock) -> ApiVerbs:
    return ApiVerbs(None, clock)


def body_of(verb: ApiVerb[Any]) -> Any:  # noqa: ANN401
    return msgspec.json.decode(verb.request.body or b"null")


def answer(status: int, **content: object) -> ApiResponse:
    return ApiResponse(status, msgspec.json.encode(content))


async def test_a_message_is_asked_for_as_the_api_takes_it(clock: VirtualClock) -> None:
    verb = ApiVerbs(42, clock).send(
        {
            "chat_id": 1,
            "text": "Hi",
            "parse_mode": None,
            "expires_in": dt.timedelta(hours=1),
            "not_before": dt.datetime(2026, 1, 6, tzinfo=dt.UTC),
        }
    )
    assert (verb.request.method, verb.request.path) == ("POST", "/api/v1/messages")
    assert body_of(verb) == {
        "bot": 42,
        "chat_id": 1,
        "text": "Hi",
        "expires_at": clock.now() + 3600,
        "not_before": 1_767_657_600.0,
    }
    assert verb.outcome(answer(202, id="a-1", fresh=True)) == "a-1"


async def test_every_request_that_changes_something_has_a_key_of_its_own(verbs: ApiVerbs) -> None:
    made: list[ApiVerb[Any]] = [
        verbs.send({"chat_id": 1}),
        verbs.send({"chat_id": 1}),
        verbs.send_lines(b"{}"),
        verbs.cancel("a"),
        verbs.reprioritize("a", "high"),
        verbs.replay({"everything": True}),
        verbs.broadcast("sale", [1], {"text": "Hi"}),
    ]
    keys = {verb.request.headers["idempotency-key"] for verb in made}
    assert len(keys) == len(made)


async def test_a_file_is_refused_before_it_is_sent(verbs: ApiVerbs) -> None:
    with pytest.raises(BadInputError, match="photo is a file: the API takes a file_id"):
        verbs.send({"chat_id": 1, "method": "sendPhoto", "photo": File(path="cat.jpg")})


@pytest.mark.parametrize(
    "fields",
    [
        {"text": b"Hi"},  # it was sent as the text SGk=
        {"text": object()},
        {"text": "\ud800"},
        {"method": "sendMediaGroup", "media": [{"type": "photo", "media": File(content=b"x")}]},
    ],
)
async def test_what_the_api_cannot_be_given_is_bad_input_and_never_something_else(
    verbs: ApiVerbs, fields: dict[str, object]
) -> None:
    with pytest.raises(BadInputError):
        verbs.send({"chat_id": 1, **fields})
    with pytest.raises(BadInputError):
        verbs.line({"chat_id": 1}, fields)
    with pytest.raises(BadInputError):
        verbs.broadcast("sale", [{"chat_id": 1, **fields}], {})


@pytest.mark.parametrize("item", [5, None, "1001", [("chat_id", 1)]])
async def test_a_message_that_is_no_mapping_is_told_in_words(verbs: ApiVerbs, item: object) -> None:
    """It was a TypeError of the client's insides."""
    with pytest.raises(BadInputError, match="a message is a mapping, such as"):
        verbs.line({"bot": 42}, item)


async def test_ids_and_filters_are_quoted(verbs: ApiVerbs) -> None:
    assert verbs.get("a/b?c").request.path == "/api/v1/messages/a%2Fb%3Fc"
    path = verbs.dead_letters({"reason": "a&b", "chat_id": "@x"}, "c=").request.path
    assert path == "/api/v1/dead-letters?limit=200&cursor=c%3D&reason=a%26b&chat_id=%40x"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ServiceInputError),
        (422, ServiceInputError),
        (422, BadInputError),
        (413, ServiceInputError),
        (401, ServiceRefusedError),
        (403, ServiceRefusedError),
        (404, ServiceError),
        (409, ServiceError),
        (429, ServiceAwayError),
        (503, ServiceAwayError),
        (500, ServiceError),
    ],
)
def test_an_error_is_built_from_the_problem(status: int, kind: type[Exception]) -> None:
    found = error_of(
        answer(status, type="urn:tidegate:problem:x-y", detail="it is so", retry_after=7, errors=[1])
    )
    assert isinstance(found, kind)
    assert (str(found), found.status, found.kind) == ("it is so", status, "x-y")
    assert found.more["errors"] == [1]
    if isinstance(found, ServiceAwayError):
        assert found.retry_after == 7


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"", b"\xff"])
def test_an_answer_that_is_no_problem_is_an_error_all_the_same(body: bytes) -> None:
    assert str(error_of(ApiResponse(502, body))) == "the API has answered 502"


async def test_an_answer_of_another_server_says_so(verbs: ApiVerbs) -> None:
    with pytest.raises(ServiceError, match="is this the address of a Tidegate"):
        verbs.stats().outcome(ApiResponse(200, b"<html>"))


async def test_what_is_not_known_is_a_value(verbs: ApiVerbs) -> None:
    unknown, conflict = error_of(answer(404)), error_of(answer(409))
    assert verbs.get("a").recover(unknown) is None
    assert verbs.why("a").recover(unknown) is None
    assert verbs.cancel("a").recover(unknown) is False
    assert verbs.cancel("a").recover(conflict) is False
    assert verbs.reprioritize("a", "low").recover(conflict) is False
    with pytest.raises(ServiceError):
        verbs.get("a").recover(conflict)
    with pytest.raises(ServiceError):
        verbs.stats().recover(unknown)


async def test_a_stream_without_a_good_line_is_a_summary(verbs: ApiVerbs) -> None:
    refused = error_of(
        answer(422, detail="no", accepted=0, repeated=0, bad=1, lines=1, errors=[{"line": 1, "detail": "x"}])
    )
    assert verbs.send_lines(b"").recover(refused) == SendSummary(bad=1, errors=[LineError(1, "x")])
    with pytest.raises(ServiceInputError):
        verbs.send_lines(b"").recover(error_of(answer(422)))


def test_only_what_surely_did_not_happen_or_is_keyed_is_tried_again() -> None:
    def pause(attempt: int, status: int, **more: object) -> float | None:
        return pause_before(attempt, error_of(answer(status, **more)))

    assert [pause(attempt, 503) for attempt in range(2, ATTEMPTS + 2)] == [0.25, 0.5, 1.0, None]
    assert pause(2, 503, retry_after=5) == 5
    assert pause(2, 503, retry_after=60) is None, "the caller would wait too long"
    assert pause(2, 429, retry_after=2) == 2
    assert pause(2, 409, retry_after=1) == 1, "the first request with this key is being worked on"
    assert pause(2, 409) is pause(2, 422) is pause(2, 401) is pause(2, 404) is pause(2, 500) is None
    assert pause_before(2, ServiceAwayError("no connection")) == 0.25


@given(st.lists(st.binary(min_size=1, max_size=3), max_size=50))
def test_lines_are_sent_in_order_and_all_of_them(lines: list[bytes]) -> None:
    chunks = LineChunks()
    found = [chunk for line in lines if (chunk := chunks.add(line)) is not None]
    rest = chunks.rest()
    whole = b"".join(body for body, _ in [*found, *([rest] if rest else [])])
    assert whole == b"".join(lines)


def test_a_request_has_a_bounded_number_of_lines_and_bytes() -> None:
    chunks = LineChunks()
    assert all(chunks.add(b"x") is None for _ in range(LINES_PER_REQUEST - 1))
    assert chunks.add(b"x") == (b"x" * LINES_PER_REQUEST, LINES_PER_REQUEST)
    assert chunks.add(b"y" * BYTES_PER_REQUEST) == (b"y" * BYTES_PER_REQUEST, 1)
    assert chunks.rest() is None


def test_errors_of_later_requests_count_their_lines_from_the_beginning() -> None:
    first = SendSummary(accepted=1, bad=1, errors=[LineError(2, "a")])
    second = SendSummary(accepted=2, repeated=1, bad=1, errors=[LineError(3, "b")])
    assert added(first, second, 2) == SendSummary(
        accepted=3, repeated=1, bad=2, errors=[LineError(2, "a"), LineError(5, "b")]
    )


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("127.0.0.1:8080", "tg_x"),
        ("ftp://host", "tg_x"),
        ("http://", "tg_x"),
        ("http://me:secret@host", "tg_x"),
        ("http://host", " "),
        ("http://host", None),  # os.environ.get of a variable that is not set
    ],
)
def test_an_address_or_token_that_cannot_be_used_is_refused(url: str, token: str | None) -> None:
    with pytest.raises(BadInputError) as refused:
        ApiAddress(url, token)  # type: ignore[arg-type]
    assert "secret" not in str(refused.value)


async def test_the_token_is_in_no_text(verbs: ApiVerbs) -> None:
    address = ApiAddress("https://host/tidegate/", "tg_" + "s" * 43)
    assert address.headers(verbs.stats().request)["authorization"].endswith("sss")
    assert address.url == "https://host/tidegate"
    assert (
        "sss" not in f"{address!r} {vars(address) | {'_headers': None}} {address.away(OSError('no route'))}"
    )


async def test_limits_are_changed_for_the_bot_of_the_client_or_the_one_named(clock: VirtualClock) -> None:
    verbs = ApiVerbs(42, clock)
    made = verbs.set_limits(None, {"bot_rate": "25/1", "chat_rate": None})
    assert (made.request.method, made.request.path) == ("PUT", "/api/v1/bots/42/limits")
    assert body_of(made) == {"bot_rate": "25/1"}
    assert verbs.reset_limits(43).request.path == "/api/v1/bots/43/limits"
    assert verbs.reset_limits(43).request.method == "DELETE"
    opened = verbs.open_limits(None, -7)
    assert (opened.request.path, body_of(opened)) == ("/api/v1/bots/42/limits/open", {"chat_id": -7})
    assert opened.outcome(answer(200, opened=True)) is True
    with pytest.raises(BadInputError, match="which bot"):
        ApiVerbs(None, clock).set_limits(None, {})


async def test_limits_are_read_with_those_that_are_a_bots_own(verbs: ApiVerbs) -> None:
    bot = {"bot": 42, "bot_rate": "25/1", "chat_rate": "1/1", "group_rate": "20/60", "paid_rate": "1000/1"}
    page = answer(200, items=[], bots=[{**bot, "reply_burst": 5, "own": ["bot_rate"]}])
    found = verbs.limits().outcome(page)
    assert not isinstance(found, ServiceError)
    assert [(one.bot, one.bot_rate, one.own) for one in found.bots] == [(42, "25/1", ["bot_rate"])]
