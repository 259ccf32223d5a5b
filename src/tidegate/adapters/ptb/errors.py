"""Errors that are both python-telegram-bot's and Tidegate's: whoever catches either finds them.

NetworkError, TimedOut       and OutcomeUnknownError  the request left and no answer came
RetryAfter                   and LimitedError         the caller would not wait as long as the limits ask
Forbidden, BadRequest,
InvalidToken, NetworkError   and DeadError            a queued call will not be tried again
TimedOut                     and ExpiredError         a queued call was past its deadline
TelegramError                and WithdrawnError       a queued call was cancelled, or replaced
"""

import functools
import math
import warnings
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from telegram.error import (
    BadRequest,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)

from tidegate.errors import (
    DeadError,
    ExpiredError,
    LimitedError,
    NotDeliveredError,
    OutcomeUnknownError,
    WithdrawnError,
    name_of,
)

Kind = TypeVar("Kind", bound=TelegramError)


class _TravellingError(TelegramError):
    """Can be pickled, as every error of python-telegram-bot can."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (type(self), {**vars(self), "message": self.message})


def _arrive(kind: type[Kind], state: Mapping[str, object]) -> Kind:
    error = kind.__new__(kind)
    for name, value in state.items():
        setattr(error, name, value)
    return error


# Tidegate's class stands first: its constructor passes the text on, python-telegram-bot's takes no more.
class UnansweredTimedOutError(OutcomeUnknownError, _TravellingError, TimedOut):
    """It may have happened; repeating it may double it."""


class UnansweredNetworkError(OutcomeUnknownError, _TravellingError, NetworkError):
    """It may have happened; repeating it may double it."""


class QueuedExpiredError(ExpiredError, _TravellingError, TimedOut):
    """It was past its deadline before its turn came."""


class QueuedWithdrawnError(WithdrawnError, _TravellingError, TelegramError):
    """It was cancelled, or replaced by a newer one."""


class _QueuedDeadError(DeadError, _TravellingError):
    """Speaks as python-telegram-bot would: code that compares texts finds those it knows."""

    def __init__(self, *, method: str, chat_id: int | str | None, reason: str, description: str) -> None:
        super().__init__(method=method, chat_id=chat_id, reason=reason, description=description)
        if description:
            TelegramError.__init__(self, description)


class QueuedForbiddenError(_QueuedDeadError, Forbidden):
    pass


class QueuedBadRequestError(_QueuedDeadError, BadRequest):
    pass


class QueuedTokenError(_QueuedDeadError, InvalidToken):
    pass


class QueuedNetworkError(DeadError, _TravellingError, NetworkError):
    """Nobody said why: it was tried as often as it may be, or was lost with its sender."""


class TurnTooLateError(LimitedError, RetryAfter):  # type: ignore[misc]  # retry_after, as it says
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


def in_both(error: NotDeliveredError) -> NotDeliveredError:
    """The same error as one that a python-telegram-bot application knows."""
    about: dict[str, Any] = {"method": error.method, "chat_id": error.chat_id}
    match error:
        case DeadError():
            return _kind_of(error)(**about, reason=error.reason, description=error.description)
        case LimitedError():
            return TurnTooLateError(**about, retry_after=error.retry_after)
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


def unknown(error: TelegramError, reason: str, method: str, chat_id: object) -> OutcomeUnknownError:
    """What a caller is told of a request that left and was not answered."""
    chat = cast("int | str | None", chat_id)
    text = f"{name_of(method, chat)} left and was not answered ({reason}): it may have happened"
    kind = UnansweredTimedOutError if isinstance(error, TimedOut) else UnansweredNetworkError
    return kind(text, method=method, chat_id=chat)
