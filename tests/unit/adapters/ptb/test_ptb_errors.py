"""Errors that belong to both worlds."""

import copy
import pickle

import pytest
from telegram.error import (
    BadRequest,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)

from tidegate.adapters.ptb.errors import as_ptb_error, unknown_outcome_error
from tidegate.errors import (
    DeadError,
    ExpiredError,
    LimitedError,
    NotDeliveredError,
    OutcomeUnknownError,
    WithdrawnError,
)


@pytest.fixture(autouse=True)
def timedelta_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is deprecated, and warnings are errors here."""
    monkeypatch.setenv("PTB_TIMEDELTA", "1")


def dead(reason: str, description: str) -> DeadError:
    return DeadError(method="sendMessage", chat_id=7, reason=reason, description=description)


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (dead("blocked", "Forbidden: bot was blocked by the user"), Forbidden, "Forbidden: bot was blocked"),
        (dead("blocked", "Bad Request: USER_IS_BLOCKED"), Forbidden, "User_is_blocked"),
        (dead("not_found", "Forbidden: the group chat was deleted"), Forbidden, "the group chat was deleted"),
        (dead("not_found", "Bad Request: chat not found"), BadRequest, "Chat not found"),
        (dead("bad_request", "Bad Request: can't parse entities"), BadRequest, "Can't parse entities"),
        (dead("bad_input", ""), BadRequest, "sendMessage to 7 is dead: bad_input"),
        (dead("unauthorized", "Unauthorized"), InvalidToken, "Unauthorized"),
        (dead("attempts", "server_error"), NetworkError, r"sendMessage to 7 is dead: attempts \(server_err"),
    ],
)
def test_a_dead_call_raises_what_the_library_would(
    error: DeadError, kind: type[TelegramError], says: str
) -> None:
    with pytest.raises(kind, match=says) as caught:
        raise as_ptb_error(error)
    both = caught.value
    assert isinstance(both, DeadError)
    assert (both.method, both.chat_id, both.reason, both.description) == (
        "sendMessage",
        7,
        error.reason,
        error.description,
    )
    assert isinstance(both, BadRequest) == (kind is BadRequest)  # which is a NetworkError there


OTHERS: tuple[tuple[NotDeliveredError, type[TelegramError]], ...] = (
    (LimitedError(method="sendMessage", chat_id=7, retry_after=2.2), RetryAfter),
    (ExpiredError("sendMessage to 7 expired", method="sendMessage", chat_id=7), TimedOut),
    (WithdrawnError("sendMessage to 7 was cancelled", method="sendMessage", chat_id=7), TelegramError),
    (OutcomeUnknownError("sendMessage to 7 was parked", method="sendMessage", chat_id=7), NetworkError),
)


@pytest.mark.parametrize(("error", "kind"), OTHERS)
def test_every_other_end_is_an_error_of_both_with_the_same_text(
    error: NotDeliveredError, kind: type[TelegramError]
) -> None:
    both = as_ptb_error(error)
    assert isinstance(both, kind)
    assert isinstance(both, type(error))
    assert str(both) == str(error)
    assert (both.method, both.chat_id) == ("sendMessage", 7)


def test_a_wait_is_told_in_the_form_of_the_library() -> None:
    both = as_ptb_error(LimitedError(method="sendMessage", chat_id=7, retry_after=2.2))
    assert isinstance(both, RetryAfter)
    assert getattr(both.retry_after, "seconds", None) == 3


@pytest.mark.parametrize("error", [TimedOut(), NetworkError("gone")])
def test_an_unanswered_call_says_that_it_may_have_happened(error: NetworkError) -> None:
    told = unknown_outcome_error(error, "timeout", "sendMessage", 7)
    assert isinstance(told, type(error))
    assert isinstance(told, OutcomeUnknownError)
    assert str(told) == "sendMessage to 7 left and was not answered (timeout): it may have happened"


@pytest.mark.parametrize(
    "error",
    [
        as_ptb_error(dead("blocked", "Forbidden: bot was blocked by the user")),
        unknown_outcome_error(TimedOut(), "timeout", "sendMessage", 7),
        as_ptb_error(OTHERS[0][0]),
    ],
)
def test_they_can_be_pickled_and_copied(error: NotDeliveredError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  (our own)
        assert type(again) is type(error)
        assert (str(again), repr(again), vars(again)) == (str(error), repr(error), vars(error))
