"""What an error of python-telegram-bot says about the call: the same judgement as for Tidegate's own calls.

The library keeps neither the status nor the JSON of an answer, so both are told from its exceptions
(telegram/request/_baserequest.py says which becomes which). Pure.
"""

import random
import re
import warnings
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final

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

from tidegate.delivery.policy import RetryPolicy, judge
from tidegate.delivery.wire import Answer, NoAnswer
from tidegate.model import NotSent, Outcome

_POLICY: Final = RetryPolicy()
_DRAW: Final = random.Random()  # noqa: S311  (jitter)
_STATUS: Final[Mapping[type[TelegramError], int]] = {
    Forbidden: HTTPStatus.FORBIDDEN,
    InvalidToken: HTTPStatus.UNAUTHORIZED,
    BadRequest: HTTPStatus.BAD_REQUEST,
    Conflict: HTTPStatus.CONFLICT,
}
# How the library words a status that has no exception of its own, as Telegram does.
_PHRASES: Final = {status.phrase.lower(): status for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST}
_NAMED = re.compile("|".join(sorted(map(re.escape, _PHRASES), key=len, reverse=True)))
_NUMBERED = re.compile(r"unknown httperror \((\d{3})\)")
# Not one byte was sent: there was no connection to send it on.
_NO_CONNECTION: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, ConnectionRefusedError)
_NEVER_TRIED: Final = (httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)


def outcome_of(error: TelegramError, endpoint: str) -> Outcome:
    """How a call ended that raised this."""
    if isinstance(error.__cause__, _NEVER_TRIED) or _is_closed(error):
        return NotSent("not_tried")
    return judge(_answer(error), attempt=1, policy=_POLICY, draw=_DRAW, method=endpoint)


def _is_closed(error: TelegramError) -> bool:
    """The library's own client was shut down, or never initialized."""
    return isinstance(error.__cause__, RuntimeError) and "is not initialized" in str(error.__cause__)


def _answer(error: TelegramError) -> Answer | NoAnswer:
    if isinstance(error, RetryAfter):
        return _told(HTTPStatus.TOO_MANY_REQUESTS, error, retry_after=_seconds(error))
    if isinstance(error, ChatMigrated):
        return _told(HTTPStatus.BAD_REQUEST, error, migrate_to_chat_id=error.new_chat_id)
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
        return Answer(HTTPStatus.OK, None)  # it answered well, with what is no JSON
    return _told(status, error)


def _told(status: int, error: TelegramError, **parameters: object) -> Answer:
    if isinstance(error.__cause__, TelegramError):  # no JSON: a page of something before Telegram
        return Answer(status, None)
    body: dict[str, Any] = {"ok": False, "description": error.message, "parameters": parameters}
    return Answer(status, body)


def _no_answer(error: TelegramError, reason: str) -> NoAnswer:
    if isinstance(error.__cause__, _NO_CONNECTION):
        return NoAnswer(left=False, reason="connect")
    return NoAnswer(left=True, reason=reason)


def _status_in(error: NetworkError) -> int | None:
    """The status that its text begins with; None if it tells of no answer."""
    if not isinstance(error.__cause__, TelegramError | None):
        return None  # the text is that of whatever failed
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
