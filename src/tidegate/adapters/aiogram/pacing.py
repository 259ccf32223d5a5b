"""A session middleware of aiogram: each call waits its turn; what surely did not happen is tried again."""

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

from tidegate.adapters.aiogram.errors import TurnTooLateError, unknown
from tidegate.adapters.aiogram.outcomes import delivered, outcome_of
from tidegate.adapters.aiogram.queueing import queue
from tidegate.adapters.aiogram.uploads import uploads
from tidegate.adapters.catching import catch
from tidegate.adapters.gate import Gate
from tidegate.adapters.handling import priority_for
from tidegate.delivery.direct import has_lane
from tidegate.delivery.policy import RetryPolicy
from tidegate.errors import LimitedError
from tidegate.model import BotId, Migrated, NotSent, Outcome, Priority, Refused, Retry, Unknown, Unreachable
from tidegate.pacing.rules import family_of

log = logging.getLogger("tidegate")

_UNTOUCHED: Final = frozenset(("logOut", "close"))

Polling = Callable[
    [NextRequestMiddlewareType[Any], Bot, TelegramMethod[Any]], Awaitable[Any]
]  # what becomes of getUpdates


class Pacing(BaseRequestMiddleware):
    """`ready` is awaited before the first turn: it opens the gate where nobody did."""

    def __init__(
        self, gate: Gate, ready: Callable[[], Awaitable[None]], polling: Polling, max_wait: float | None
    ) -> None:
        self.gate = gate
        self._ready = ready
        self._polling = polling
        self._max_wait = max_wait
        settings = gate.settings
        self._policy = RetryPolicy(settings.telegram_base_delay, settings.telegram_max_delay)
        self._attempts = settings.telegram_max_retries

    async def __call__(
        self,
        make_request: NextRequestMiddlewareType[TelegramType],
        bot: Bot,
        method: TelegramMethod[TelegramType],
    ) -> Response[TelegramType]:
        name = method.__api_method__
        _keep(method.__returning__)
        catch(lambda options: queue(self.gate, method, bot, options))
        if name == "getUpdates":
            fetched: Response[TelegramType] = await self._polling(make_request, bot, method)
            return fetched
        if name in _UNTOUCHED:
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
                raise unknown(method, answer, outcome.reason) from answer
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
        look = {field: getattr(method, field) for field in _looked_at(type(method))}
        chat_id = look.get("chat_id")
        max_wait = None if give_up == math.inf else max(0.0, give_up - self.gate.clock.monotonic())
        priority = priority_for(bot_id, chat_id, Priority.NORMAL)
        turn = self.gate.direct.turn(
            bot_id, name, look, priority=priority, max_wait=max_wait, uploads=uploads(method)
        )
        try:
            async with turn as held:
                try:
                    response = await make_request(bot, method)
                except AiogramError as error:
                    held.outcome = outcome_of(error, name, attempt, self._policy)
                    return held.outcome, error
                held.outcome = delivered(chat_id, response)
                return held.outcome, response
        except LimitedError as error:
            raise TurnTooLateError(method, error.retry_after) from None


@functools.cache
def _keep(returned: Any) -> object:  # noqa: ANN401  (a type, of whichever kind)
    """Aiogram makes this type for every answer, and pydantic forgets it as soon as nobody holds it."""
    return Response[returned]


@functools.cache
def _looked_at(kind: type[TelegramMethod[Any]]) -> tuple[str, ...]:
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
