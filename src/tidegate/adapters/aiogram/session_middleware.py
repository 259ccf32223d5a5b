"""A session middleware for aiogram: each call waits for its turn and is retried if it surely failed."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic

from aiogram import Bot
from aiogram.client.session.middlewares.base import BaseRequestMiddleware, NextRequestMiddlewareType
from aiogram.exceptions import AiogramError
from aiogram.methods import Response, TelegramMethod
from aiogram.methods.base import TelegramType
from aiogram.types import InputFile, Message, MessageId, TelegramObject

from tidegate.adapters.aiogram.errors import (
    TurnTooLateError,
    delivered_outcome,
    outcome_of,
    unknown_outcome_error,
)
from tidegate.adapters.aiogram.queued_method import queue_method
from tidegate.adapters.call_context import capture_if_queued, reply_priority
from tidegate.adapters.port import Gate
from tidegate.delivery.direct import DirectRetryPolicy, call_with_retries, has_lane
from tidegate.delivery.outcome_policy import RetryBackoff
from tidegate.errors import LimitedError, name_of
from tidegate.model import BotId, ChatId, Outcome, Priority, Refused, Unknown
from tidegate.pacing.rules import family_of

_UNPACED_METHODS: Final = frozenset(("logOut", "close"))

HandleGetUpdates = Callable[[NextRequestMiddlewareType[Any], Bot, TelegramMethod[Any]], Awaitable[Any]]


class PacingMiddleware(BaseRequestMiddleware):
    """`ready` is awaited before the first turn: it opens the gate if nobody did."""

    def __init__(
        self,
        gate: Gate,
        ready: Callable[[], Awaitable[None]],
        handle_get_updates: HandleGetUpdates,
        max_wait: float | None,
    ) -> None:
        self.gate = gate
        self._ready = ready
        self._handle_get_updates = handle_get_updates
        self._max_wait = max_wait
        settings = gate.settings
        self._backoff = RetryBackoff(
            settings.telegram_base_delay, settings.telegram_max_delay, settings.tidegate_longest_closure
        )
        self._policy = DirectRetryPolicy(settings.telegram_max_retries)

    async def __call__(
        self,
        make_request: NextRequestMiddlewareType[TelegramType],
        bot: Bot,
        method: TelegramMethod[TelegramType],
    ) -> Response[TelegramType]:
        name = method.__api_method__
        _keep_response_type(method.__returning__)
        capture_if_queued(lambda options: queue_method(self.gate, method, bot, options))
        if name == "getUpdates":
            fetched: Response[TelegramType] = await self._handle_get_updates(make_request, bot, method)
            return fetched
        if name in _UNPACED_METHODS:
            return await make_request(bot, method)
        if family_of(name) != "free":
            await self._ready()
        call = _MethodCall(self.gate, self._backoff, make_request, bot, method)
        outcome, answer, too_late = await call_with_retries(
            call,
            self._policy,
            self.gate.clock,
            self._max_wait,
            note=functools.partial(self.gate.direct.note, BotId(bot.id), call),
        )
        if not isinstance(answer, AiogramError):
            return answer
        if isinstance(outcome, Unknown):
            raise unknown_outcome_error(call.method, answer, outcome.reason) from answer
        if too_late and isinstance(outcome, Refused):
            raise TurnTooLateError(call.method, outcome.retry_after) from answer
        raise answer


class _MethodCall(Generic[TelegramType]):
    """A direct call that aiogram makes."""

    def __init__(
        self,
        gate: Gate,
        backoff: RetryBackoff,
        make_request: NextRequestMiddlewareType[TelegramType],
        bot: Bot,
        method: TelegramMethod[TelegramType],
    ) -> None:
        self._gate = gate
        self._backoff = backoff
        self._make_request = make_request
        self._bot = bot
        self.method = method  # readdressed if its chat moves
        self.api_method = method.__api_method__
        self.seconds = 0.0
        self._answer: Response[TelegramType] | None = None

    def __str__(self) -> str:
        return name_of(self.api_method, self.chat_id)

    @property
    def chat_id(self) -> ChatId | None:
        chat_id: ChatId | None = getattr(self.method, "chat_id", None)
        return chat_id

    @property
    def in_lane(self) -> bool:
        return has_lane(self.api_method, {"chat_id": self.chat_id})

    def content(self) -> dict[str, Any]:
        names = ("text", "caption", "question", "message_id", "message_ids")
        found = {name: getattr(self.method, name, None) for name in names}
        if (reply := getattr(self.method, "reply_parameters", None)) is not None:
            found["reply_parameters"] = {"message_id": reply.message_id}
        if isinstance(album := getattr(self.method, "media", None), list):
            found["media"] = [{"caption": getattr(item, "caption", None)} for item in album]
        return {name: value for name, value in found.items() if value is not None}

    def result(self) -> Any:  # noqa: ANN401  (Telegram's)
        return _plain_result(self._answer)

    def readdress(self, chat_id: ChatId) -> None:
        self.method = self.method.model_copy(update={"chat_id": chat_id})

    async def attempt(
        self, number: int, max_wait: float | None
    ) -> tuple[Outcome, Response[TelegramType] | AiogramError]:
        method, bot_id = self.method, BotId(self._bot.id)
        is_upload = has_upload(method)
        turn = self._gate.direct.turn(
            bot_id,
            self.api_method,
            {field: getattr(method, field) for field in _fields_that_limits_read(type(method))},
            priority=reply_priority(bot_id, self.chat_id, Priority.NORMAL),
            max_wait=max_wait,
            uploads=is_upload,
        )
        try:
            async with turn as held:
                began = self._gate.clock.monotonic()
                try:
                    response = await self._make_request(self._bot, method)
                except AiogramError as error:
                    held.outcome = outcome_of(error, self.api_method, number, self._backoff)
                    return held.outcome, error
                finally:
                    self.seconds = self._gate.clock.monotonic() - began
                    if not is_upload:
                        self._gate.slow_calls.note_http("Telegram", self.api_method, self.seconds)
                held.outcome, self._answer = delivered_outcome(self.chat_id, response), response
                return held.outcome, response
        except LimitedError as error:
            raise TurnTooLateError(method, error.retry_after) from None


def _plain_result(answer: object) -> object:
    """Return the ids and times of the messages in an answer, as Telegram spells them."""
    if isinstance(answer, list):
        return [_plain_result(one) for one in answer]
    if isinstance(answer, Message):
        return {
            "message_id": answer.message_id,
            "date": int(answer.date.timestamp()),
            "chat": {"id": answer.chat.id},
        }
    if isinstance(answer, MessageId):  # of a copy
        return {"message_id": answer.message_id}
    return answer if isinstance(answer, bool) else None


@functools.cache
def _keep_response_type(returned: Any) -> object:  # noqa: ANN401  (a type, of whichever kind)
    """Keep the type that aiogram makes for every answer: pydantic drops it when it is not referenced."""
    return Response[returned]


@functools.cache
def _fields_that_limits_read(kind: type[TelegramMethod[Any]]) -> tuple[str, ...]:
    """Return those fields of a method on which its limits and its cost depend."""
    fields = ("chat_id", "media", "message_ids", "allow_paid_broadcast")
    return tuple(field for field in fields if field in kind.model_fields)


def has_upload(method: TelegramMethod[Any]) -> bool:
    """Return whether a call carries files: uploads may be silent for long."""
    return any(_holds_file(getattr(method, field)) for field in _fields_that_may_hold_files(type(method)))


@functools.cache
def _fields_that_may_hold_files(kind: type[TelegramMethod[Any]]) -> tuple[str, ...]:
    """Decided by the types: most methods have no such field, and cost nothing."""
    return tuple(name for name, field in kind.model_fields.items() if "Input" in str(field.annotation))


def _holds_file(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_holds_file, value))
    if isinstance(value, TelegramObject):
        return any(_holds_file(inner) for _, inner in value)
    return isinstance(value, InputFile)
