"""What an exception of python-telegram-bot means for the call that raised it."""

import httpx
import pytest
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)

from tidegate.adapters.ptb.errors import outcome_of
from tidegate.model import Dead, Delivered, Migrated, NotSent, Outcome, Refused, Retry, Unknown, Unreachable

NO_JSON = TelegramError("Invalid server response")


def caused(error: TelegramError, cause: Exception | None) -> TelegramError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("as_timedelta", ["0", "1"])
def test_a_refusal_says_how_long_in_either_form(as_timedelta: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "1")  # a deprecation that is an error here
    error = RetryAfter(7)
    monkeypatch.setenv("PTB_TIMEDELTA", as_timedelta)
    assert outcome_of(error, "sendMessage") == Refused(7)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BadRequest("Too Many Requests: retry after 8"), Refused(8)),
        (ChatMigrated(-100123), Migrated(-100123)),
        (
            Forbidden("Forbidden: bot was blocked by the user"),
            Dead("blocked", "Forbidden: bot was blocked by the user", whole_chat=True),
        ),
        (BadRequest("Chat not found"), Dead("not_found", "Chat not found", whole_chat=True)),
        (BadRequest("Can't parse entities"), Dead("bad_request", "Can't parse entities")),
        (BadRequest("Message is not modified: the same"), Delivered(result=True)),
        (InvalidToken("Unauthorized"), Dead("unauthorized", "Unauthorized")),
        (InvalidToken("Not Found"), Dead("not_found_method", "Not Found")),
        (NetworkError("Request Entity Too Large"), Dead("too_large", "Request Entity Too Large")),
    ],
)
def test_what_telegram_said_is_judged_as_for_any_other_call(error: TelegramError, outcome: Outcome) -> None:
    assert outcome_of(error, "sendMessage") == outcome


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NetworkError("Bad Gateway"), "server_error"),
        (NetworkError("Internal Server Error: restart"), "server_error"),
        (
            caused(NetworkError("Bad Gateway (502). Parsing the server response failed"), NO_JSON),
            "server_error",
        ),
        (NetworkError("Unknown HTTPError (520)"), "server_error"),
        (Conflict("Conflict: terminated by other getUpdates request"), "conflict"),
        (caused(Forbidden("Forbidden (403). Parsing the server response failed"), NO_JSON), "not_telegram"),
    ],
)
def test_a_failure_of_the_server_did_not_happen(error: TelegramError, reason: str) -> None:
    outcome = outcome_of(error, "sendMessage")
    assert isinstance(outcome, Retry)
    assert outcome.reason == reason


@pytest.mark.parametrize(
    "error",
    [
        caused(NetworkError("httpx.ConnectError: refused"), httpx.ConnectError("refused")),
        caused(TimedOut(), httpx.ConnectTimeout("slow")),
        caused(NetworkError("httpx.ProxyError: 407"), httpx.ProxyError("407")),
    ],
)
def test_without_a_connection_the_bot_waits(error: TelegramError) -> None:
    assert outcome_of(error, "sendMessage") == Unreachable(1, "connect")


@pytest.mark.parametrize(
    "error",
    [
        caused(TimedOut("Pool timeout"), httpx.PoolTimeout("full")),
        caused(NetworkError("Unknown error"), RuntimeError("This HTTPXRequest is not initialized!")),
    ],
)
def test_what_was_never_tried_was_not_sent(error: TelegramError) -> None:
    assert outcome_of(error, "sendMessage") == NotSent("not_tried")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (caused(TimedOut(), httpx.ReadTimeout("slow")), "timeout"),
        (caused(TimedOut(), httpx.WriteTimeout("slow")), "timeout"),
        (TimedOut(), "timeout"),
        (caused(NetworkError("httpx.ReadError: "), httpx.ReadError("cut")), "disconnected"),
        (caused(NetworkError("gone"), httpx.RemoteProtocolError("gone")), "disconnected"),
        (NetworkError("a client of somebody's own failed"), "disconnected"),
        (caused(TelegramError("Invalid server response"), ValueError("torn")), "malformed"),
    ],
)
def test_what_left_and_was_not_answered_may_have_happened(error: TelegramError, reason: str) -> None:
    outcome = outcome_of(error, "sendMessage")
    assert isinstance(outcome, Unknown)
    assert outcome.reason == reason
