"""A call of a bot library caught on its way out, so that it is written down instead of made."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any

from tidegate.errors import BadInputError

Store = Callable[[Mapping[str, Any]], Awaitable[Any]]  # with options; gives a ticket

_catching: ContextVar[bool] = ContextVar("tidegate_catching", default=False)


class Caught(BaseException):
    """Carries the call to whoever queues it. No `except Exception` of anybody may take it."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store


def catch(store: Store) -> None:
    """Called where a call would be made: ends it here, if it is to be queued."""
    if _catching.get():
        raise Caught(store)


async def queue_call(call: Coroutine[Any, Any, Any], options: Mapping[str, Any]) -> Any:  # noqa: ANN401  (a ticket)
    """Run a call as far as its library's border, and write it down there."""
    before = _catching.set(True)
    try:
        await call
    except Caught as caught:
        store = caught.store
    else:
        raise BadInputError(
            "nothing was queued: give one call of an attached bot that was not awaited, such as"
            ' bot.send_message(chat, "Hi")'
        )
    finally:
        _catching.reset(before)
    return await store(options)
