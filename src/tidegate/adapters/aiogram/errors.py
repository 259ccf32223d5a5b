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
    """It would have to wait longer than it was given. Nothing was sent."""

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
    """What to raise instead of `error` where nobody knows what became of a call."""
    if isinstance(error, ClientDecodeError):
        return UnreadableError(method, error)
    return UnansweredError(method, reason) if isinstance(error, TelegramNetworkError) else error


# The first that fits: aiogram does not keep the status.
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


def outcome_of(error: AiogramError, method: str, attempt: int, policy: RetryBackoff) -> Outcome:
    """Never raises. What is not known counts as unknown: it may have happened."""
    if isinstance(error, TelegramRetryAfter):
        return Refused(max(1.0, float(error.retry_after)))
    if isinstance(error, TelegramMigrateToChat):
        return Migrated(error.migrate_to_chat_id)
    if not isinstance(error, TelegramAPIError):
        return Unknown("malformed")
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), None)
    if status is None:
        return _without_answer(error, policy) if isinstance(error, TelegramNetworkError) else Unknown("error")
    body = {"ok": False, "error_code": status, "description": error.message}
    return judge(ApiAnswer(status, body), attempt=attempt, policy=policy, draw=_draw, method=method)


def _without_answer(error: TelegramNetworkError, policy: RetryBackoff) -> Outcome:
    if isinstance(error.__cause__, _NEVER_LEFT):
        return Unreachable(policy.base_delay, "connect")
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_FILE:
        return Dead("bad_input", "a file cannot be read")  # Telegram never had all of it
    return Unknown("timeout" if isinstance(error.__cause__, TimeoutError) else "disconnected")


def delivered_outcome(chat_id: object, result: object) -> Delivered:
    """Of the result only what teaches which chat a name stands for."""
    chat = getattr(result, "chat", None) if isinstance(chat_id, str) else None
    return Delivered(None if chat is None else {"chat": {"id": chat.id}})
