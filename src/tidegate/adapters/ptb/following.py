"""Which chats an application is answering: seen from a handler that takes no update."""

from collections.abc import Iterator
from typing import Any, Final

from telegram import Update
from telegram.ext import BaseHandler

from tidegate.adapters.handling import handling
from tidegate.model import BotId, ChatId

GROUP: Final = -(2**31)  # before everybody


class Follower(BaseHandler[Any, Any, None]):
    """Notes whose update is being handled, in the task that handles it.

    It does so when asked whether it would take the update, and says no: handlers, contexts and persistence
    are as without it.
    """

    def __init__(self, bot: BotId) -> None:
        super().__init__(_take_nothing, block=True)
        self._bot = bot

    def check_update(self, update: object) -> None:
        # Also for what is no update: one task handles many, and the one before must be forgotten.
        handling(self._bot, chats_of(update))


def chats_of(update: object) -> Iterator[ChatId]:
    """Where an answer to an update would go, by every name."""
    if not isinstance(update, Update):
        return
    if (user := update.effective_user) is not None:
        yield from _names(user.id, None)
    if (chat := update.effective_chat) is not None:
        yield from _names(chat.id, chat.username)
    if (request := update.chat_join_request) is not None:
        yield from _names(request.user_chat_id, None)


def _names(chat: int, username: str | None) -> Iterator[ChatId]:
    yield chat
    yield str(chat)
    if username:
        yield f"@{username}"


async def _take_nothing(_update: object, _context: object) -> None:
    """Never called."""
