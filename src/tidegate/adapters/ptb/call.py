"""One request as python-telegram-bot hands it to its limiter."""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from telegram import Bot, InputFile

from tidegate.adapters.handling import priority_for
from tidegate.adapters.ptb.pace import Pace
from tidegate.errors import BadInputError, name_of
from tidegate.model import BotId, Priority
from tidegate.outbox.admission import check_chat
from tidegate.pacing.rules import family_of

Result = bool | dict[str, Any] | list[dict[str, Any]]
Callback = Callable[..., Coroutine[Any, Any, Result]]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    callback: Callback
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    endpoint: str
    data: dict[str, Any]
    bot: Bot
    pace: Pace

    def __repr__(self) -> str:
        return f"Call({self})"  # a bot shows its token in its own

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("call", str(self))]

    def __str__(self) -> str:
        return name_of(self.endpoint, self.chat_id)

    @property
    def chat_id(self) -> Any:  # noqa: ANN401  (whatever the application has given)
        return self.data.get("chat_id")

    @property
    def paced(self) -> bool:
        """Whether any limit applies that can be waited for."""
        if family_of(self.endpoint) == "free":
            return False
        try:
            check_chat(self.chat_id)
        except BadInputError:
            return False  # Telegram says what is wrong with it
        return True

    @property
    def uploads(self) -> bool:
        """Whether it carries files: those take their time on the way."""
        return any(map(_holds_file, self.data.values()))

    async def make(self) -> Result:
        return await self.callback(*self.args, **self.kwargs)

    def priority(self, bot: BotId, otherwise: Priority) -> Priority:
        """As asked for, else high where it answers an update of its chat."""
        if self.pace.priority is not None:
            return Priority(self.pace.priority)
        return priority_for(bot, self.chat_id, otherwise)


def _holds_file(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_file, value))
    return isinstance(value, InputFile) or isinstance(getattr(value, "media", None), InputFile)
