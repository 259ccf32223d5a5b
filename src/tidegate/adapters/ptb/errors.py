"""Errors that are both python-telegram-bot's and Tidegate's, and outcomes of calls by the error it raised.

NetworkError, TimedOut       and OutcomeUnknownError  the request left and no answer came
RetryAfter                   and LimitedError         the turn comes later than max_wait allows
Forbidden, BadRequest,
InvalidToken, NetworkError   and DeadError            a queued call will not be retried
TimedOut                     and ExpiredError         a queued call was past its deadline
TelegramError                and WithdrawnError       a queued call was cancelled, or replaced
"""

import functools
import math
import random
import re
import warnings
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

import httpx
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

from tidegate.delivery.outcome_policy import RetryBackoff, judge
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.errors import (
    DeadError,
    ExpiredError,
    LimitedError,
    NotDeliveredError,
    OutcomeUnknownError,
    WithdrawnError,
    name_of,
)
from tidegate.model import NotSent, Outcome
from tidegate.network_errors import status_phrase

Kind = TypeVar("Kind", bound=TelegramError)


class _PicklableError(TelegramError):
    """An error that can be pickled, as every error of python-telegram-bot can."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), {**vars(self), "message": self.message})


def _unpickle(kind: type[Kind], state: Mapping[str, object]) -> Kind:
    error = kind.__new__(kind)
    for name, value in state.items():
        setattr(error, name, value)
    return error


# Tidegate's class stands first: its constructor passes on the text alone, as python-telegram-bot's needs it.
class UnansweredTimedOutError(OutcomeUnknownError, _PicklableError, TimedOut):
    """It may have happened; repeating it may double it."""


class UnansweredNetworkError(OutcomeUnknownError, _PicklableError, NetworkError):
    """It may have happened; repeating it may double it."""


class QueuedExpiredError(ExpiredError, _PicklableError, TimedOut):
    """Its deadline passed before its turn came."""


class QueuedWithdrawnError(WithdrawnError, _PicklableError, TelegramError):
    """It was cancelled, or replaced by a newer one."""


class _QueuedDeadError(DeadError, _PicklableError):
    """Has the text that python-telegram-bot's error would have, for code that compares texts."""

    def __init__(self, *, method: str, chat_id: int | str | None, reason: str, description: str) -> None:
        super().__init__(method=method, chat_id=chat_id, reason=reason, description=description)
        if description:
            TelegramError.__init__(self, self.description)


class QueuedForbiddenError(_QueuedDeadError, Forbidden):
    pass


class QueuedBadRequestError(_QueuedDeadError, BadRequest):
    pass


class QueuedTokenError(_QueuedDeadError, InvalidToken):
    pass


class QueuedNetworkError(DeadError, _PicklableError, NetworkError):
    """Telegram gave no reason: its attempts are used up, or it was lost with its sender."""


class LimitedRetryAfterError(LimitedError, RetryAfter):  # type: ignore[misc]  # retry_after, as it says
    """Nothing was sent. `retry_after` is in python-telegram-bot's form, `seconds` are exact."""

    def __init__(self, *, method: str, chat_id: int | str | None, retry_after: float) -> None:
        self.method, self.chat_id, self.seconds = method, chat_id, retry_after
        with warnings.catch_warnings():  # it looks at its own deprecated attribute
            warnings.simplefilter("ignore")
            RetryAfter.__init__(self, max(1, math.ceil(retry_after)))
        self.message = f"{name_of(method, chat_id)} may not be made for another {retry_after:.1f} s"

    def __reduce__(self) -> tuple[Any, ...]:
        again = functools.partial(
            type(self), method=self.method, chat_id=self.chat_id, retry_after=self.seconds
        )
        return again, ()


_BY_REASON: Final[Mapping[str, type[DeadError]]] = {
    "blocked": QueuedForbiddenError,
    "deactivated": QueuedForbiddenError,
    "kicked": QueuedForbiddenError,
    "forbidden": QueuedForbiddenError,
    "unauthorized": QueuedTokenError,
    "not_found_method": QueuedTokenError,
    "attempts": QueuedNetworkError,
    "lost": QueuedNetworkError,
}


def as_ptb_error(error: NotDeliveredError) -> NotDeliveredError:
    """Return the same error as one that is also python-telegram-bot's."""
    about: dict[str, Any] = {"method": error.method, "chat_id": error.chat_id}
    match error:
        case DeadError():
            return _kind_of(error)(**about, reason=error.reason, description=error.description)
        case LimitedError():
            return LimitedRetryAfterError(**about, retry_after=error.retry_after)
        case ExpiredError():
            return QueuedExpiredError(str(error), **about)
        case WithdrawnError():
            return QueuedWithdrawnError(str(error), **about)
        case _:
            return UnansweredNetworkError(str(error), **about)


def _kind_of(error: DeadError) -> type[DeadError]:
    if error.description.lower().startswith("forbidden"):
        return QueuedForbiddenError
    return _BY_REASON.get(error.reason, QueuedBadRequestError)


def unknown_outcome_error(
    error: TelegramError, reason: str, method: str, chat_id: object
) -> OutcomeUnknownError:
    """Return the error for a request that left and was not answered."""
    chat = cast("int | str | None", chat_id)
    text = f"{name_of(method, chat)} left and was not answered ({reason}): it may have happened"
    kind = UnansweredTimedOutError if isinstance(error, TimedOut) else UnansweredNetworkError
    return kind(text, method=method, chat_id=chat)


_BACKOFF: Final = RetryBackoff()
_RANDOM: Final = random.Random()  # noqa: S311  (jitter)
_STATUS: Final[Mapping[type[TelegramError], int]] = {
    Forbidden: HTTPStatus.FORBIDDEN,
    InvalidToken: HTTPStatus.UNAUTHORIZED,
    BadRequest: HTTPStatus.BAD_REQUEST,
    Conflict: HTTPStatus.CONFLICT,
}
# The library's text for a status that has no exception of its own is its phrase.
_PHRASES: Final = {
    phrase.lower(): status
    for status in HTTPStatus
    if status >= HTTPStatus.BAD_REQUEST
    for phrase in (status.phrase, status_phrase(status))
}
_NAMED = re.compile("|".join(sorted(map(re.escape, _PHRASES), key=len, reverse=True)))
_NUMBERED = re.compile(r"unknown httperror \((\d{3})\)")
# There was no connection, so no byte was sent.
_NO_CONNECTION: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, ConnectionRefusedError)
_NEVER_TRIED: Final = (httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)


def outcome_of(error: TelegramError, endpoint: str) -> Outcome:
    """Return how a call ended that raised this."""
    if isinstance(error.__cause__, _NEVER_TRIED) or _client_is_closed(error):
        return NotSent("not_tried")
    return judge(_answer_in(error), attempt=1, policy=_BACKOFF, draw=_RANDOM, method=endpoint)


def _client_is_closed(error: TelegramError) -> bool:
    """Return whether the library's client was shut down, or never initialized."""
    return isinstance(error.__cause__, RuntimeError) and "is not initialized" in str(error.__cause__)


def _answer_in(error: TelegramError) -> ApiAnswer | NoAnswer:
    if isinstance(error, RetryAfter):
        return _answer_with(HTTPStatus.TOO_MANY_REQUESTS, error, retry_after=_seconds(error))
    if isinstance(error, ChatMigrated):
        return _answer_with(HTTPStatus.BAD_REQUEST, error, migrate_to_chat_id=error.new_chat_id)
    if isinstance(error, TimedOut):
        return _no_answer(error, "timeout")
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), None)
    if isinstance(error, InvalidToken) and error.message.lower().startswith("not found"):
        status = HTTPStatus.NOT_FOUND
    if status is None and isinstance(error, NetworkError):
        status = _status_in(error)
        if status is None:
            return _no_answer(error, "disconnected")
    if status is None:
        return ApiAnswer(HTTPStatus.OK, None)  # a good status, but no JSON
    return _answer_with(status, error)


def _answer_with(status: int, error: TelegramError, **parameters: object) -> ApiAnswer:
    if isinstance(error.__cause__, TelegramError):  # no JSON: the page of a proxy
        return ApiAnswer(status, None)
    body: dict[str, Any] = {"ok": False, "description": error.message, "parameters": parameters}
    return ApiAnswer(status, body)


def _no_answer(error: TelegramError, reason: str) -> NoAnswer:
    if isinstance(error.__cause__, _NO_CONNECTION):
        return NoAnswer(left=False, reason="connect")
    return NoAnswer(left=True, reason=reason)


def _status_in(error: NetworkError) -> int | None:
    """Return the status that its text begins with; None if there was no answer."""
    if not isinstance(error.__cause__, TelegramError | None):
        return None  # the text is that of the cause
    text = error.message.lower()
    if (number := _NUMBERED.match(text)) is not None:
        return int(number[1])
    name = _NAMED.match(text)
    return None if name is None else _PHRASES[name[0]]


def _seconds(error: RetryAfter) -> float:
    with warnings.catch_warnings():  # an int now, a timedelta in the next major version, as it warns
        warnings.simplefilter("ignore")
        wait = error.retry_after
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)
