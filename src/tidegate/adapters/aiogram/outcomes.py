"""What became of a call that aiogram made, from what it raised or gave."""

import errno
import random
from collections.abc import Sequence
from typing import Final

import aiohttp
from aiogram.exceptions import (
    AiogramError,
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

from tidegate.delivery.policy import RetryPolicy, judge
from tidegate.delivery.wire import Answer
from tidegate.model import Dead, Delivered, Migrated, Outcome, Refused, Unknown, Unreachable

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


def outcome_of(error: AiogramError, method: str, attempt: int, policy: RetryPolicy) -> Outcome:
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
    return judge(Answer(status, body), attempt=attempt, policy=policy, draw=_draw, method=method)


def _without_answer(error: TelegramNetworkError, policy: RetryPolicy) -> Outcome:
    if isinstance(error.__cause__, _NEVER_LEFT):
        return Unreachable(policy.base_delay, "connect")
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_FILE:
        return Dead("bad_input", "a file cannot be read")  # Telegram never had all of it
    return Unknown("timeout" if isinstance(error.__cause__, TimeoutError) else "disconnected")


def delivered(chat_id: object, result: object) -> Delivered:
    """Of the result only what teaches which chat a name stands for."""
    chat = getattr(result, "chat", None) if isinstance(chat_id, str) else None
    return Delivered(None if chat is None else {"chat": {"id": chat.id}})
