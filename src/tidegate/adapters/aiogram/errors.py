"""Errors that are both aiogram's and Tidegate's, and outcomes of calls by the error aiogram raised."""

import errno
import math
import random
from collections.abc import Sequence
from typing import Final

import aiohttp
from aiogram.exceptions import (
    AiogramError,
    ClientDecodeError,
    TelegramAPIError,
    TelegramBadRequest,
    TelegramConflictError,
    TelegramEntityTooLarge,
    TelegramForbiddenError,
    TelegramMigrateToChat,
    TelegramNetworkError,
    TelegramNotFound,
    TelegramRetryAfter,
    TelegramServerError,
    TelegramUnauthorizedError,
)
from aiogram.methods import TelegramMethod
from aiogram.methods.base import TelegramType

from tidegate.delivery.outcome_policy import RetryBackoff, judge
from tidegate.delivery.transport import ApiAnswer
from tidegate.errors import LimitedError, OutcomeUnknownError, name_of
from tidegate.model import Dead, Delivered, Migrated, Outcome, Refused, Unknown, Unreachable

# `method` is aiogram's method object where an error of aiogram has one, and its name otherwise.


class UnansweredError(TelegramNetworkError, OutcomeUnknownError):  # type: ignore[misc]
    """The request left and no answer came: it may have happened, and repeating it may double it."""

    def __init__(self, method: TelegramMethod[TelegramType], reason: str) -> None:
        text = f"{method.__api_method__} left and was not answered ({reason}): it may have happened"
        super().__init__(method=method, message=text)
        self.chat_id = getattr(method, "chat_id", None)


class UnreadableError(ClientDecodeError, OutcomeUnknownError):
    """An answer came that is not Telegram's: it may have happened, and repeating it may double it."""

    def __init__(self, method: TelegramMethod[TelegramType], error: ClientDecodeError) -> None:
        text = f"the answer to {method.__api_method__} cannot be read: it may have happened"
        super().__init__(text, error.original, error.data)
        self.method = method.__api_method__
        self.chat_id = getattr(method, "chat_id", None)


class TurnTooLateError(TelegramRetryAfter, LimitedError):  # type: ignore[misc]
    """The call was not made: its turn comes later than `max_wait` allows."""

    def __init__(self, method: TelegramMethod[TelegramType], wait: float) -> None:
        super().__init__(
            method=method,
            message="not sent: its turn would come later than max_wait allows",
            retry_after=math.ceil(wait),
        )
        self.chat_id = getattr(method, "chat_id", None)

    def __str__(self) -> str:
        what = name_of(type(self.method).__name__, self.chat_id)
        return f"{what} was not sent: its turn comes in {self.retry_after} s, later than max_wait allows"


def unknown_outcome_error(
    method: TelegramMethod[TelegramType], error: AiogramError, reason: str
) -> AiogramError:
    """Return the error to raise instead of aiogram's for a call that may have happened."""
    if isinstance(error, ClientDecodeError):
        return UnreadableError(method, error)
    return UnansweredError(method, reason) if isinstance(error, TelegramNetworkError) else error


# aiogram does not keep the status of an answer. The first class that fits counts.
_STATUSES: Final[Sequence[tuple[type[TelegramAPIError], int]]] = (
    (TelegramEntityTooLarge, 413),
    (TelegramBadRequest, 400),
    (TelegramUnauthorizedError, 401),
    (TelegramForbiddenError, 403),
    (TelegramNotFound, 404),
    (TelegramConflictError, 409),
    (TelegramServerError, 500),
)
# Raised before a byte of the request has left.
_NEVER_LEFT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
_NO_FILE: Final = frozenset((errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR))
_draw = random.Random()  # noqa: S311  (jitter)


def outcome_of(error: AiogramError, method: str, attempt: int, backoff: RetryBackoff) -> Outcome:
    """Return how a call ended that raised this. An error that says nothing counts as unknown."""
    if isinstance(error, TelegramRetryAfter):
        return Refused(min(backoff.longest_closure, max(1.0, float(error.retry_after))))
    if isinstance(error, TelegramMigrateToChat):
        return Migrated(error.migrate_to_chat_id)
    if not isinstance(error, TelegramAPIError):
        return Unknown("malformed")
    if isinstance(error, TelegramNetworkError) and not isinstance(error, TelegramEntityTooLarge):
        return _without_answer(error, backoff)
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), None)
    if status is None:
        return Unknown("error")
    body = {"ok": False, "error_code": status, "description": error.message}
    return judge(ApiAnswer(status, body), attempt=attempt, policy=backoff, draw=_draw, method=method)


def _without_answer(error: TelegramNetworkError, backoff: RetryBackoff) -> Outcome:
    if isinstance(error.__cause__, _NEVER_LEFT):
        return Unreachable(backoff.base_delay, "connect")
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_FILE:
        return Dead("bad_input", "a file cannot be read")  # so the request was never complete
    return Unknown("timeout" if isinstance(error.__cause__, TimeoutError) else "disconnected")


def delivered_outcome(chat_id: object, result: object) -> Delivered:
    """Keep of the result only the chat id that a name stands for."""
    chat = getattr(result, "chat", None) if isinstance(chat_id, str) else None
    return Delivered(None if chat is None else {"chat": {"id": chat.id}})
