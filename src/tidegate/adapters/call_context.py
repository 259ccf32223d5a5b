"""Context of the calls that a task makes: the chats it replies to, and whether calls are queued instead."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar, Token
from typing import Any

from tidegate.errors import BadInputError
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


StoreCall = Callable[[Mapping[str, Any]], Awaitable[Any]]  # takes options, returns a ticket

_is_queueing: ContextVar[bool] = ContextVar("tidegate_queueing", default=False)


class CapturedCall(BaseException):
    """Carries the call to `queue_call`. Not an Exception, so that no handler of the library takes it."""

    def __init__(self, store: StoreCall) -> None:
        super().__init__()
        self.store = store


def capture_if_queued(store: StoreCall) -> None:
    """Raise CapturedCall if the running call is to be queued. Adapters call it where a call would be made."""
    if _is_queueing.get():
        raise CapturedCall(store)


async def queue_call(call: Coroutine[Any, Any, Any], options: Mapping[str, Any]) -> Any:  # noqa: ANN401  (a ticket)
    """Run a call until its adapter captures it, and store it instead. Raises BadInputError if none does."""
    before = _is_queueing.set(True)
    try:
        await call
    except CapturedCall as captured:
        store = captured.store
    else:
        raise BadInputError(
            "nothing was queued, and what was given has run already: its bot is not attached to this gate, or"
            " it is no call of a bot. Attach the bot, and give one call that was not awaited, such as"
            ' bot.send_message(chat, "Hi")'
        )
    finally:
        _is_queueing.reset(before)
    return await store(options)
