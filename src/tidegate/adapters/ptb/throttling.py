"""python-telegram-bot's updates before the throttle: those that are held reach no handler."""

from typing import Any, Final

from telegram import CallbackQuery, Update
from telegram.ext import Application, ApplicationHandlerStop, BaseHandler

from tidegate.adapters.ptb.following import GROUP
from tidegate.errors import BadInputError
from tidegate.inbound.throttle.answers import Answer, Buttons, tell
from tidegate.inbound.throttle.base import Held
from tidegate.inbound.throttle.events import about_event, album_of
from tidegate.inbound.throttle.throttle import Throttle
from tidegate.inbound.updates import About

AFTER_FOLLOWER: Final = GROUP + 1  # and before everybody else

AnyApplication = Application[Any, Any, Any, Any, Any, Any]


class Throttler(BaseHandler[Any, Any, None]):
    """A handler that lets an update through to those behind it, or stops it."""

    def __init__(self, throttle: Throttle, answer: Answer) -> None:
        super().__init__(_never_called, block=True)
        self._throttle = throttle
        self._answer = answer
        self._buttons = Buttons(throttle)

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
        about, bot = about_event(kind, content), _number(application)
        verdict = await self._throttle.check(about, bot, album_of(content))
        if isinstance(verdict, Held):
            await self._tell(verdict, about, content, bot)
            raise ApplicationHandlerStop

    async def _tell(self, held: Held, about: About, content: object, bot: int) -> None:
        if isinstance(content, CallbackQuery):
            self._buttons.release(held, content.answer)
        else:
            await tell(self._answer, self._throttle, held, about, bot)


def throttle_application(application: AnyApplication, throttle: Throttle, answer: Answer) -> None:
    """From now on. Raises BadInputError if it has a throttle."""
    if any(isinstance(known, Throttler) for known in application.handlers.get(AFTER_FOLLOWER, [])):
        raise BadInputError("this application has a throttle already: give it one, with all its rules")
    application.add_handler(Throttler(throttle, answer), group=AFTER_FOLLOWER)


def _number(application: AnyApplication) -> int:
    return int(application.bot.token.partition(":")[0])


async def _never_called(_update: object, _context: object) -> None:
    """`handle_update` does it all."""
