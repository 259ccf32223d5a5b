"""A python-telegram-bot handler that drops the updates of users who send too many."""

from collections.abc import Callable
from typing import Any, Final

from telegram import CallbackQuery, Update
from telegram.ext import Application, ApplicationHandlerStop, BaseHandler

from tidegate.adapters.ptb.update_processor import REPLY_TRACKER_GROUP, never_called
from tidegate.errors import BadInputError
from tidegate.inbound.throttle import Throttle
from tidegate.inbound.throttle_middleware import SendNotice, UpdateThrottle
from tidegate.inbound.updates import album_of, describe_event

THROTTLE_GROUP: Final = REPLY_TRACKER_GROUP + 1  # before all others

AnyApplication = Application[Any, Any, Any, Any, Any, Any]


class PtbThrottleHandler(BaseHandler[Any, Any, None]):
    """A handler that lets an update through to the handlers after it, or stops it."""

    def __init__(self, make_throttle: Callable[[], Throttle], send_notice: SendNotice) -> None:
        super().__init__(never_called, block=True)
        self._make_throttle = make_throttle  # the gate is open when the first update comes
        self._send_notice = send_notice
        self._throttle: UpdateThrottle | None = None

    def check_update(self, update: object) -> tuple[str, object] | None:
        """Return the kind of an update, and its content."""
        if not isinstance(update, Update):
            return None
        fields = ((kind, getattr(update, kind, None)) for kind in Update.ALL_TYPES)
        return next(((str(kind), content) for kind, content in fields if content is not None), None)

    async def handle_update(
        self,
        update: object,  # noqa: ARG002  (the library's)
        application: AnyApplication,
        check_result: Any,  # noqa: ANN401  (from check_update)
        context: object,  # noqa: ARG002
    ) -> None:
        kind, content = check_result
        bot = int(application.bot.token.partition(":")[0])
        answer_button = content.answer if isinstance(content, CallbackQuery) else None
        if self._throttle is None:
            self._throttle = UpdateThrottle(self._make_throttle(), self._send_notice)
        if not await self._throttle.allows(
            describe_event(kind, content), bot, album_of(content), answer_button
        ):
            raise ApplicationHandlerStop


def throttle_application(
    application: AnyApplication, make_throttle: Callable[[], Throttle], send_notice: SendNotice
) -> None:
    """Throttle an application from now on. Raises BadInputError if it has a throttle already."""
    if any(isinstance(known, PtbThrottleHandler) for known in application.handlers.get(THROTTLE_GROUP, [])):
        raise BadInputError("this application has a throttle already: give it one, with all its rules")
    application.add_handler(PtbThrottleHandler(make_throttle, send_notice), group=THROTTLE_GROUP)
