"""The chats whose update is being handled: calls to them are replies, with high priority."""

from collections.abc import Iterable
from contextvars import ContextVar, Token

from tidegate.model import BotId, ChatId, Priority

Chats = frozenset[tuple[BotId, ChatId]]

_chats: ContextVar[Chats] = ContextVar("tidegate_chats", default=frozenset())


def begin_reply(bot: BotId, chats: Iterable[ChatId]) -> Token[Chats]:
    """Mark this task, and every task that it starts, as handling an update of these chats."""
    return _chats.set(frozenset((bot, chat) for chat in chats))


def end_reply(before: Token[Chats]) -> None:
    """Unmark this task; tasks that it started stay marked."""
    _chats.reset(before)


def reply_priority(bot: BotId, chat: object, otherwise: Priority) -> Priority:
    """Return high inside a handler of that chat, else `otherwise`."""
    return Priority.HIGH if (bot, chat) in _chats.get() else otherwise
