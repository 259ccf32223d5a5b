"""A python-telegram-bot handler that drops the updates of users who send too many."""

from typing import Any, Final

from telegram import CallbackQuery, Update
from telegram.ext import Application, ApplicationHandlerStop, BaseHandler

from tidegate.adapters.ptb.update_processor import REPLY_TRACKER_GROUP, never_called
from tidegate.errors import BadInputError
from tidegate.inbound.throttle import Throttle, Throttled
from tidegate.inbound.throttle_middleware import ButtonAnswerer, SendNotice, notify_sender
from tidegate.inbound.updates import UpdateInfo, album_of, describe_event

THROTTLE_GROUP: Final = REPLY_TRACKER_GROUP + 1  # and before everybody else

AnyApplication = Application[Any, Any, Any, Any, Any, Any]


class PtbThrottleHandler(BaseHandler[Any, Any, None]):
    """A handler that lets an update through to those behind it, or stops it."""

    def __init__(self, throttle: Throttle, answer: SendNotice) -> None:
        super().__init__(never_called, block=True)
        self._throttle = throttle
        self._answer = answer
        self._buttons = ButtonAnswerer(throttle)

    def check_update(self, update: object) -> tuple[str, object] | None:
        """The kind of an update, and what it holds."""
        if not isinstance(update, Update):
            return None
        fields = ((kind, getattr(update, kind, None)) for kind in Update.ALL_TYPES)
        return next(((str(kind), content) for kind, content in fields if content is not None), None)

    async def handle_update(
        self,
        update: object,  # noqa: ARG002  (the library's)
        application: AnyApplication,
        check_result: Any,  # noqa: ANN401  (ours, from check_update)
        context: object,  # noqa: ARG002
    ) -> None:
        kind, content = check_result
        about, bot = describe_event(kind, content), _bot_id(application)
        verdict = await self._throttle.check(about, bot, album_of(content))
        if isinstance(verdict, Throttled):
            await self._tell(verdict, about, content, bot)
            raise ApplicationHandlerStop

    async def _tell(self, held: Throttled, about: UpdateInfo, content: object, bot: int) -> None:
        if isinstance(content, CallbackQuery):
            self._buttons.answer(held, content.answer)
        else:
            await notify_sender(self._answer, self._throttle, held, about, bot)


def throttle_application(application: AnyApplication, throttle: Throttle, answer: SendNotice) -> None:
    """From now on. Raises BadInputError if it has a throttle."""
    if any(isinstance(known, PtbThrottleHandler) for known in application.handlers.get(THROTTLE_GROUP, [])):
        raise BadInputError("this application has a throttle already: give it one, with all its rules")
    application.add_handler(PtbThrottleHandler(throttle, answer), group=THROTTLE_GROUP)


def _bot_id(application: AnyApplication) -> int:
    return int(application.bot.token.partition(":")[0])
