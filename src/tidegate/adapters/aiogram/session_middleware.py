"""A session middleware for aiogram: each call waits for its turn and is retried if it surely failed."""

import functools
import itertools
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiogram import Bot
from aiogram.client.session.middlewares.base import BaseRequestMiddleware, NextRequestMiddlewareType
from aiogram.exceptions import AiogramError
from aiogram.methods import Response, TelegramMethod
from aiogram.methods.base import TelegramType
from aiogram.types import InputFile, TelegramObject

from tidegate.adapters.aiogram.errors import (
    TurnTooLateError,
    delivered_outcome,
    outcome_of,
    unknown_outcome_error,
)
from tidegate.adapters.aiogram.queued_method import queue_method
from tidegate.adapters.call_capture import capture_if_queued
from tidegate.adapters.port import Gate
from tidegate.adapters.reply_context import reply_priority
from tidegate.delivery.direct import has_lane
from tidegate.delivery.outcome_policy import RetryBackoff
from tidegate.errors import LimitedError
from tidegate.model import BotId, Migrated, NotSent, Outcome, Priority, Refused, Retry, Unknown, Unreachable
from tidegate.pacing.rules import family_of


def has_upload(method: TelegramMethod[Any]) -> bool:
    return any(_holds_file(getattr(method, field)) for field in _may_hold_files(type(method)))


@functools.cache
def _may_hold_files(kind: type[TelegramMethod[Any]]) -> tuple[str, ...]:
    """Told by its types: most methods have no such field, and cost nothing."""
    return tuple(name for name, field in kind.model_fields.items() if "Input" in str(field.annotation))


def _holds_file(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_holds_file, value))
    if isinstance(value, TelegramObject):
        return any(_holds_file(inner) for _, inner in value)
    return isinstance(value, InputFile)


log = logging.getLogger("tidegate")

_UNPACED_METHODS: Final = frozenset(("logOut", "close"))

HandleGetUpdates = Callable[
    [NextRequestMiddlewareType[Any], Bot, TelegramMethod[Any]], Awaitable[Any]
]  # what becomes of getUpdates


class PacingMiddleware(BaseRequestMiddleware):
    """`ready` is awaited before the first turn: it opens the gate where nobody did."""

    def __init__(
        self,
        gate: Gate,
        ready: Callable[[], Awaitable[None]],
        polling: HandleGetUpdates,
        max_wait: float | None,
    ) -> None:
        self.gate = gate
        self._ready = ready
        self._polling = polling
        self._max_wait = max_wait
        settings = gate.settings
        self._policy = RetryBackoff(settings.telegram_base_delay, settings.telegram_max_delay)
        self._attempts = settings.telegram_max_retries

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
            fetched: Response[TelegramType] = await self._polling(make_request, bot, method)
            return fetched
        if name in _UNPACED_METHODS:
            return await make_request(bot, method)
        if family_of(name) != "free":
            await self._ready()
        clock = self.gate.clock
        give_up = math.inf if self._max_wait is None else clock.monotonic() + self._max_wait
        for attempt in itertools.count(1):
            outcome, answer = await self._try(make_request, bot, method, attempt, give_up)
            if not isinstance(answer, AiogramError):
                return answer
            if isinstance(outcome, Unknown):
                raise unknown_outcome_error(method, answer, outcome.reason) from answer
            pause = _pause(outcome, paced=has_lane(name, {"chat_id": getattr(method, "chat_id", None)}))
            if pause is None or attempt >= self._attempts or clock.monotonic() + pause > give_up:
                raise answer
            if isinstance(outcome, Refused):
                log.warning("Telegram refused %s: it is tried again in %.0f s", name, outcome.retry_after)
            if isinstance(outcome, Migrated):
                method = method.model_copy(update={"chat_id": outcome.chat_id})
            await clock.sleep(pause)
        raise AssertionError("attempts are bounded")

    async def _try(
        self,
        make_request: NextRequestMiddlewareType[TelegramType],
        bot: Bot,
        method: TelegramMethod[TelegramType],
        attempt: int,
        give_up: float,
    ) -> tuple[Outcome, Response[TelegramType] | AiogramError]:
        name, bot_id = method.__api_method__, BotId(bot.id)
        look = {field: getattr(method, field) for field in _fields_that_limits_read(type(method))}
        chat_id = look.get("chat_id")
        max_wait = None if give_up == math.inf else max(0.0, give_up - self.gate.clock.monotonic())
        priority = reply_priority(bot_id, chat_id, Priority.NORMAL)
        turn = self.gate.direct.turn(
            bot_id, name, look, priority=priority, max_wait=max_wait, uploads=has_upload(method)
        )
        try:
            async with turn as held:
                try:
                    response = await make_request(bot, method)
                except AiogramError as error:
                    held.outcome = outcome_of(error, name, attempt, self._policy)
                    return held.outcome, error
                held.outcome = delivered_outcome(chat_id, response)
                return held.outcome, response
        except LimitedError as error:
            raise TurnTooLateError(method, error.retry_after) from None


@functools.cache
def _keep_response_type(returned: Any) -> object:  # noqa: ANN401  (a type, of whichever kind)
    """Aiogram makes this type for every answer, and pydantic forgets it as soon as nobody holds it."""
    return Response[returned]


@functools.cache
def _fields_that_limits_read(kind: type[TelegramMethod[Any]]) -> tuple[str, ...]:
    """The fields on which a call's limits and its cost depend, of those that this method has."""
    fields = ("chat_id", "media", "message_ids", "allow_paid_broadcast")
    return tuple(field for field in fields if field in kind.model_fields)


def _pause(outcome: Outcome, *, paced: bool) -> float | None:
    """Seconds before the next attempt; None if there is none. What has a lane waits there for its turn."""
    match outcome:
        case Retry(delay=pause) | Unreachable(wait=pause):
            return pause
        case Refused(retry_after=pause):
            return 0.0 if paced else pause
        case NotSent() | Migrated():
            return 0.0
        case _:
            return None
