"""Types of the fields that callers give: for type checkers and editors."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from tidegate.model import ChatId, Priority
from tidegate.outbox.message_times import Moment, Span
from tidegate.outbox.telegram_fields import TelegramFields


class SendOptions(TypedDict, total=False):
    """The options of a queued message, as in the reference."""

    priority: Priority | Literal["high", "normal", "low"]
    urgent: bool
    not_before: Moment | None
    delay: Span | None
    expires_at: Moment | None
    expires_in: Span | None
    dedup_key: str | None
    dedup_for: Span
    coalesce_key: str | None
    max_attempts: int
    on_unknown: Literal["resend", "park"]


class MessageFields(SendOptions, TelegramFields, total=False):
    """Everything that `send` takes, except the bot."""

    method: str
    chat_id: ChatId
    extra: Mapping[str, Any] | None
