"""What a caller is told beyond aiogram's errors. Each is one of those too, so that handlers go on working."""

import math

from aiogram.exceptions import AiogramError, ClientDecodeError, TelegramNetworkError, TelegramRetryAfter
from aiogram.methods import TelegramMethod
from aiogram.methods.base import TelegramType

from tidegate.errors import LimitedError, OutcomeUnknownError, name_of

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


def unknown(method: TelegramMethod[TelegramType], error: AiogramError, reason: str) -> AiogramError:
    """What to raise instead of `error` where nobody knows what became of a call."""
    if isinstance(error, ClientDecodeError):
        return UnreadableError(method, error)
    return UnansweredError(method, reason) if isinstance(error, TelegramNetworkError) else error
