"""Whose update is being handled: a call made meanwhile to that chat is a reply, and goes first."""

from collections.abc import Iterable
from contextvars import ContextVar

from tidegate.model import BotId, ChatId, Priority

_chats: ContextVar[frozenset[tuple[BotId, ChatId]]] = ContextVar("tidegate_chats", default=frozenset())


def handling(bot: BotId, chats: Iterable[ChatId]) -> None:
    """From here on this task, and every task that it starts, handles an update of these chats."""
    _chats.set(frozenset((bot, chat) for chat in chats))


def priority_for(bot: BotId, chat: object, otherwise: Priority) -> Priority:
    """High inside a handler of that chat."""
    return Priority.HIGH if (bot, chat) in _chats.get() else otherwise
