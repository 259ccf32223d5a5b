"""Every answer has one meaning, and none can surprise the worker."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.delivery.outcome_policy import ASSUMED_WAIT, LONGEST_CLOSURE, RESEND_FACTOR, RetryBackoff, judge
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.model import (
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Rate,
    Refused,
    Retry,
    Unknown,
    Unreachable,
)
from tidegate.sim.faults import ConnectionCut
from tidegate.sim.telegram import Faults, Limits, SimulatedTelegram, World
from tidegate.sim.virtual_time import VirtualClock

OUTCOMES = (Dead, Delivered, Migrated, NotSent, Refused, Retry, Unknown, Unreachable)


def judged(
    answer: ApiAnswer | NoAnswer, *, attempt: int = 1, policy: RetryBackoff | None = None, method: str = ""
) -> Outcome:
    draw = random.Random(1)
    return judge(answer, attempt=attempt, policy=policy or RetryBackoff(), draw=draw, method=method)


def error(code: int, description: str, **parameters: object) -> ApiAnswer:
    body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    return ApiAnswer(code, body | {"parameters": parameters} if parameters else body)


def test_a_result_is_delivered() -> None:
    assert judged(ApiAnswer(200, {"ok": True, "result": {"message_id": 1}})) == Delivered({"message_id": 1})


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (error(429, "Too Many Requests: retry after 17", retry_after=17), 17),
        (error(429, "Too Many Requests: retry after 9"), 9),
        (error(429, "FLOOD_WAIT_12"), 12),
        (error(429, "Too Many Requests"), ASSUMED_WAIT),
        (error(429, "Too Many Requests: retry after 0", retry_after=0), 1),
        (error(429, "", retry_after=10**400), LONGEST_CLOSURE),
        (error(429, "", retry_after=True), ASSUMED_WAIT),
        (ApiAnswer(429, None), ASSUMED_WAIT),
        (
            error(
                400,
                "Bad Request: failed to send message #1 with the error message "
                '"Too Many Requests: retry after 8"',
            ),
            8,
        ),
        (error(400, "bad request: TOO MANY REQUESTS: Retry After 3"), 3),
    ],
)
def test_a_refusal_says_how_long(answer: ApiAnswer, seconds: float) -> None:
    assert judged(answer) == Refused(seconds)


@pytest.mark.parametrize("code", [409, 500, 502, 503, 504])
def test_a_wait_that_telegram_names_is_kept_whatever_its_status(code: int) -> None:
    answer = error(code, "try again later", retry_after=23)
    assert [judged(answer, attempt=attempt) for attempt in (1, 5)] == [Refused(23), Refused(23)]


def test_a_group_that_became_a_supergroup_moves() -> None:
    text = "Bad Request: group chat was upgraded to a supergroup chat"
    assert judged(error(400, text, migrate_to_chat_id=-1005)) == Migrated(-1005)
    assert judged(error(400, text)) == Dead("not_found", text, whole_chat=True)


@pytest.mark.parametrize(
    ("code", "description", "reason", "whole_chat"),
    [
        (403, "Forbidden: bot was blocked by the user", "blocked", True),
        (400, "Bad Request: USER_IS_BLOCKED", "blocked", True),
        (403, "FORBIDDEN: BOT WAS BLOCKED BY THE USER", "blocked", True),
        (403, "Forbidden: user is deactivated", "deactivated", True),
        (400, "Bad Request: INPUT_USER_DEACTIVATED", "deactivated", True),
        (403, "Forbidden: bot was kicked from the group chat", "kicked", True),
        (403, "Forbidden: bot was kicked from the supergroup chat", "kicked", True),
        (403, "Forbidden: bot was kicked from the channel chat", "kicked", True),
        (403, "Forbidden: bot is not a member of the channel chat", "kicked", True),
        (400, "Bad Request: CHANNEL_PRIVATE", "kicked", True),
        (403, "Forbidden: the group chat was deleted", "not_found", True),
        (403, "Forbidden: bot can't initiate conversation with a user", "forbidden", True),
        (403, "Forbidden: bot can’t send messages to bots", "forbidden", True),  # noqa: RUF001
        (403, "Forbidden: bot can't send messages to the user", "forbidden", True),
        (400, "Bad Request: have no rights to send a message", "forbidden", True),
        (400, "Bad Request: CHAT_WRITE_FORBIDDEN", "forbidden", True),
        (400, "Bad Request: need administrator rights in the channel chat", "forbidden", True),
        (400, "Bad Request: not enough rights to send photos to the chat", "forbidden", False),
        (400, "Bad Request: CHAT_SEND_PHOTOS_FORBIDDEN", "forbidden", False),
        (400, "Bad Request: VOICE_MESSAGES_FORBIDDEN", "forbidden", False),
        (403, "Forbidden: something new", "forbidden", False),
        (400, "Bad Request: chat not found", "not_found", True),
        (400, "Bad Request: private chat not found", "not_found", True),
        (400, "Bad Request: PEER_ID_INVALID", "not_found", True),
        (400, "Bad Request: user not found", "not_found", True),
        (400, "Bad Request: message is too long", "bad_request", False),
        (400, "Bad Request: can't parse entities", "bad_request", False),
        (400, "", "bad_request", False),
        (406, "Not Acceptable", "bad_request", False),
        (401, "Unauthorized", "unauthorized", False),
        (404, "Not Found", "not_found_method", False),
        (413, "Request Entity Too Large", "too_large", False),
    ],
)
def test_what_can_never_succeed_is_dead_with_a_reason(
    code: int, description: str, reason: str, *, whole_chat: bool
) -> None:
    assert judged(error(code, description)) == Dead(reason, description, whole_chat=whole_chat)


@pytest.mark.parametrize(
    ("method", "description", "whole_chat"),
    [
        ("sendMessage", "Bad Request: chat not found", True),
        ("forwardMessage", "Bad Request: chat not found", False),
        ("copyMessages", "Forbidden: bot is not a member of the channel chat", False),
        ("getChatMember", "Bad Request: user not found", False),
        ("forwardMessage", "Forbidden: bot was blocked by the user", True),
    ],
)
def test_a_call_that_names_two_does_not_condemn_its_chat_for_the_other(
    method: str, description: str, *, whole_chat: bool
) -> None:
    outcome = judged(error(400, description), method=method)
    assert isinstance(outcome, Dead)
    assert outcome.whole_chat is whole_chat


@pytest.mark.parametrize("method", ["copyMessage", "copyMessages", "forwardMessage", "forwardMessages"])
@pytest.mark.parametrize(
    ("code", "description", "reason"),
    [
        (403, "Forbidden: bot was kicked from the channel chat", "forbidden"),
        (403, "Forbidden: bot is not a member of the channel chat", "forbidden"),
        (403, "Forbidden: the group chat was deleted", "forbidden"),
        (400, "Bad Request: chat not found", "bad_request"),
        (400, "Bad Request: CHANNEL_PRIVATE", "bad_request"),
    ],
)
def test_a_copy_whose_source_may_be_gone_takes_nobody_for_gone(
    method: str, code: int, description: str, reason: str
) -> None:
    assert judged(error(code, description), method=method) == Dead(reason, description, whole_chat=False)


@pytest.mark.parametrize(
    "description",
    [
        "Bad Request: message is not modified: specified new message content and reply markup are the same",
        "Bad Request: MESSAGE_NOT_MODIFIED",
        "Bad Request: chat description is not modified",
    ],
)
def test_an_edit_that_changes_nothing_has_got_its_wish(description: str) -> None:
    assert judged(error(400, description)) == Delivered(result=True)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (error(500, "Internal Server Error"), "server_error"),
        (ApiAnswer(502, None), "server_error"),
        (ApiAnswer(504, None), "server_error"),
        (ApiAnswer(403, None), "not_telegram"),
        (ApiAnswer(404, None), "not_telegram"),
        (ApiAnswer(302, None), "not_telegram"),
        (ApiAnswer(307, None), "not_telegram"),
    ],
)
def test_what_may_be_the_fault_of_telegram_as_a_whole_is_tried_again_uncounted(
    answer: ApiAnswer | NoAnswer, reason: str
) -> None:
    outcome = judged(answer)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (reason, False)


def test_a_conflict_is_an_answer_of_telegram_and_counts() -> None:
    outcome = judged(error(409, "Conflict: terminated by other getUpdates request"))
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == ("conflict", True)


@pytest.mark.parametrize("code", [500, 503, 409])
def test_a_retry_after_on_another_error_is_honoured(code: int) -> None:
    assert judged(error(code, "wait", retry_after=17)) == Refused(17)


def test_a_retry_after_of_years_closes_for_a_bounded_time() -> None:
    assert judged(error(429, "", retry_after=10**9)) == Refused(LONGEST_CLOSURE)
    assert judged(error(429, "", retry_after=600), policy=RetryBackoff(longest_closure=60)) == Refused(60)


@given(st.integers(1, 100), st.integers(0, 1000))
def test_a_message_that_may_have_arrived_waits_long_and_longer(attempt: int, seed: int) -> None:
    policy = RetryBackoff()
    bound = min(policy.max_delay, RESEND_FACTOR * 2.0 ** (attempt - 1))
    assert bound / 2 <= policy.resend_delay(attempt, random.Random(seed)) <= bound


@pytest.mark.parametrize("reason", ["connect", "dns", "tls"])
def test_where_nobody_is_reached_the_bot_waits_and_no_attempt_is_counted(reason: str) -> None:
    assert judged(NoAnswer(left=False, reason=reason)) == Unreachable(1.0, reason)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ApiAnswer(200, None), "malformed"),
        (ApiAnswer(200, {"ok": "yes"}), "malformed"),
        (ApiAnswer(201, {}), "malformed"),
        (NoAnswer(left=True, reason="timeout"), "timeout"),
    ],
)
def test_what_may_have_happened_is_unknown(answer: ApiAnswer | NoAnswer, reason: str) -> None:
    outcome = judged(answer)
    assert isinstance(outcome, Unknown)
    assert (outcome.reason, outcome.wait) == (reason, 0)


def test_a_late_claim_goes_back_and_counts_for_nothing() -> None:
    assert judged(NoAnswer(left=False, reason="late")) == NotSent("late")


def test_a_page_that_says_413_is_the_server_before_telegram_and_right() -> None:
    assert judged(ApiAnswer(413, None)) == Dead("too_large", "")


def test_an_error_inside_a_200_counts_by_its_own_code() -> None:
    body = {"ok": False, "error_code": 403, "description": "Forbidden: bot was blocked by the user"}
    assert judged(ApiAnswer(200, body)) == Dead(
        "blocked", "Forbidden: bot was blocked by the user", whole_chat=True
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(
    ["retry after 99999999999999999999", "Too Many Requests", "chat not found", "not modified", "FLOOD_WAIT_"]
)
BODIES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "ok": st.booleans() | JSON,
        "result": JSON,
        "error_code": st.integers() | JSON,
        "description": st.lists(WORDS | st.text(), max_size=4).map(" ".join) | JSON,
        "parameters": st.dictionaries(st.sampled_from(["retry_after", "migrate_to_chat_id"]), JSON) | JSON,
    },
)


@given(st.integers(-1, 1000) | st.sampled_from([200, 400, 403, 429]), BODIES, st.integers(-1, 10**6))
def test_whatever_is_answered_has_an_outcome(
    status: int, body: Mapping[str, Any] | None, attempt: int
) -> None:
    outcome = judged(ApiAnswer(status, body), attempt=attempt)
    assert isinstance(outcome, OUTCOMES)
    match outcome:
        case Refused(retry_after):
            assert 1 <= retry_after <= LONGEST_CLOSURE
        case Retry(delay):
            assert 0 <= delay <= 60
        case Migrated(chat_id):
            assert chat_id in range(-(2**63), 2**63)
        case Delivered():
            assert body is not None


@given(
    st.integers(1, 10**9),
    st.floats(0, 1e6, allow_nan=False),
    st.floats(0, 1e6, allow_nan=False),
    st.randoms(use_true_random=False),
)
def test_delays_are_anywhere_within_a_doubling_bound(
    attempt: int, base: float, most: float, draw: random.Random
) -> None:
    delay = RetryBackoff(base, most).delay(attempt, draw)
    assert 0 <= delay <= most
    assert delay <= base * 2.0 ** min(attempt - 1, 60)


def test_the_bound_doubles_and_jitter_is_full() -> None:
    draw = random.Random(7)
    for attempt, bound in ((1, 1.0), (2, 2.0), (4, 8.0), (20, 60.0)):
        delays = [RetryBackoff().delay(attempt, draw) for _ in range(500)]
        assert min(delays) < bound / 10
        assert bound * 0.9 < max(delays) <= bound


async def _errors_of(telegram: SimulatedTelegram) -> list[ApiAnswer]:
    """One answer for every kind of error that the simulator can give."""
    world = telegram.world
    bot = world.bot("42:token")
    assert bot is not None
    for user in (1, 2, 3):
        world.add_private(bot, user)
    world.chats[42, 1].blocked = True
    world.users[2].deactivated = True
    world.add_group(-5).kicked.add(42)
    world.add_group(-6)
    world.migrate(-6, 0)
    photo = {"type": "photo", "media": "https://example.org/a"}
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("1:stranger", "getMe", {}),
        ("42:token", "sendTelepathy", {}),
        *(("42:token", "sendMessage", {"chat_id": chat, "text": "x"}) for chat in (1, 2, -5, -6, 99)),
        ("42:token", "sendMessage", {"chat_id": 3}),
        ("42:token", "sendMessage", {"text": "x"}),
        ("42:token", "sendMessage", {"chat_id": 3, "text": "x" * 5000}),
        ("42:token", "sendPhoto", {"chat_id": 3, "photo": "no such id"}),
        ("42:token", "editMessageText", {"chat_id": 3, "message_id": 99, "text": "x"}),
        ("42:token", "deleteMessage", {"chat_id": 3, "message_id": 99}),
        ("42:token", "getChatMember", {"chat_id": 3, "user_id": 99}),
        ("42:token", "getFile", {"file_id": "no such id"}),
        ("42:token", "answerCallbackQuery", {"callback_query_id": "0"}),
        ("42:token", "sendMessage", {"chat_id": 3, "text": "x"}),
        ("42:token", "sendMessage", {"chat_id": 3, "text": "x"}),  # the second in a minute
        ("42:token", "sendMediaGroup", {"chat_id": 3, "media": [photo, photo]}),
    ]
    return [await _answer(telegram, *call) for call in calls]


async def _answer(telegram: SimulatedTelegram, token: str, method: str, params: dict[str, Any]) -> ApiAnswer:
    answer = await telegram.call(token, method, params)
    return ApiAnswer(answer.status, None if answer.raw is not None else answer.body)


async def test_every_error_of_the_simulator_has_its_outcome(clock: VirtualClock) -> None:
    world = World(tokens={"42:token"}, open_world=False)
    telegram = SimulatedTelegram(
        clock, world=world, limits=Limits(burst=1, private=Rate(1, 60), hidden_floods=1.0)
    )
    outcomes = [judged(answer) for answer in await _errors_of(telegram)]
    reasons = [getattr(outcome, "reason", type(outcome).__name__) for outcome in outcomes]
    assert reasons == [
        "unauthorized",
        "not_found_method",
        *("blocked", "deactivated", "kicked", "Migrated", "not_found"),
        *("bad_request",) * 6,
        "not_found",
        *("bad_request",) * 2,
        *("Delivered", "Refused", "Refused"),
    ]


@pytest.mark.parametrize(
    ("faults", "outcome"),
    [(Faults(server_error=1), Retry), (Faults(malformed=1), Unknown), (Faults(lost_answer=1), Unknown)],
)
async def test_every_fault_of_the_simulator_has_its_outcome(
    clock: VirtualClock, faults: Faults, outcome: type
) -> None:
    telegram = SimulatedTelegram(clock, faults=faults)
    for _ in range(5):
        try:
            answer: ApiAnswer | NoAnswer = await _answer(telegram, "42:token", "getMe", {})
        except ConnectionCut:
            answer = NoAnswer(left=True, reason="disconnected")
        assert isinstance(judged(answer), outcome)
