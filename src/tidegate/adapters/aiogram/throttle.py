"""An aiogram middleware that drops the updates of users who send too many."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiogram import BaseMiddleware, Bot
from aiogram.methods import AnswerCallbackQuery
from aiogram.types import CallbackQuery, TelegramObject, Update
from aiogram.types.update import UpdateTypeLookupError

from tidegate.inbound.throttle import Throttle, Throttled
from tidegate.inbound.throttle_middleware import ButtonAnswerer, SendNotice, notify_sender
from tidegate.inbound.updates import UpdateInfo, album_of, describe_event

NextUpdateHandler = Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]]


class AiogramThrottleMiddleware(BaseMiddleware):
    """For `dp.update.outer_middleware`, before the others: what they do is not done for a flood."""

    def __init__(
        self, throttle: Throttle, answer: SendNotice, *, is_charged: Callable[[], bool] = lambda: False
    ) -> None:
        self._throttle = throttle
        self._is_charged = is_charged  # whether the update that is handled now was charged before
        self._answer = answer
        self._buttons = ButtonAnswerer(throttle)

    async def __call__(self, handler: NextUpdateHandler, event: TelegramObject, data: dict[str, Any]) -> Any:  # noqa: ANN401  (the handler's)
        try:
            kind = event.event_type if isinstance(event, Update) else None
        except UpdateTypeLookupError:  # newer than this aiogram
            kind = None
        if kind is None or self._is_charged():
            return await handler(event, data)
        content, bot = getattr(event, kind), data["bot"]
        about = describe_event(kind, content)
        verdict = await self._throttle.check(about, bot.id, album_of(content))
        if isinstance(verdict, Throttled):
            await self._tell(verdict, about, content, bot)
            return None
        return await handler(event, data)

    async def _tell(self, held: Throttled, about: UpdateInfo, content: object, bot: Bot) -> None:
        if isinstance(content, CallbackQuery):
            query = content.id
            self._buttons.answer(
                held, lambda text: bot(AnswerCallbackQuery(callback_query_id=query, text=text))
            )
        else:
            await notify_sender(self._answer, self._throttle, held, about, bot.id)
