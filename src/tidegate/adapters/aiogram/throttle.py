"""An aiogram middleware that drops the updates of users who send too many."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiogram import BaseMiddleware
from aiogram.types import CallbackQuery, TelegramObject, Update
from aiogram.types.update import UpdateTypeLookupError

from tidegate.inbound.throttle import Throttle
from tidegate.inbound.throttle_middleware import SendNotice, UpdateThrottle
from tidegate.inbound.updates import album_of, describe_event

NextUpdateHandler = Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]]


class AiogramThrottleMiddleware(BaseMiddleware):
    """For `dp.update.outer_middleware`, before the others: what they do is not done for a flood.

    `is_charged` returns whether the update that is handled now was charged before.
    """

    def __init__(
        self, throttle: Throttle, send_notice: SendNotice, *, is_charged: Callable[[], bool] = lambda: False
    ) -> None:
        self._throttle = UpdateThrottle(throttle, send_notice)
        self._is_charged = is_charged

    async def __call__(self, handler: NextUpdateHandler, event: TelegramObject, data: dict[str, Any]) -> Any:  # noqa: ANN401  (the handler's)
        try:
            kind = event.event_type if isinstance(event, Update) else None
        except UpdateTypeLookupError:  # newer than this aiogram
            kind = None
        if kind is None or self._is_charged():
            return await handler(event, data)
        content, bot = getattr(event, kind), data["bot"]
        answer_button = content.as_(bot).answer if isinstance(content, CallbackQuery) else None
        info = describe_event(kind, content)
        if await self._throttle.allows(info, bot.id, album_of(content), answer_button):
            return await handler(event, data)
        return None
