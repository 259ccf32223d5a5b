"""Captures a call of a bot library before it is made, so that it is queued instead."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any

from tidegate.errors import BadInputError

StoreCall = Callable[[Mapping[str, Any]], Awaitable[Any]]  # with options; gives a ticket

_is_queueing: ContextVar[bool] = ContextVar("tidegate_catching", default=False)


class CapturedCall(BaseException):
    """Carries the call to whoever queues it. No `except Exception` of anybody may take it."""

    def __init__(self, store: StoreCall) -> None:
        super().__init__()
        self.store = store


def capture_if_queued(store: StoreCall) -> None:
    """Called where a call would be made: ends it here, if it is to be queued."""
    if _is_queueing.get():
        raise CapturedCall(store)


async def queue_call(call: Coroutine[Any, Any, Any], options: Mapping[str, Any]) -> Any:  # noqa: ANN401  (a ticket)
    """Run a call as far as its library's border, and write it down there."""
    before = _is_queueing.set(True)
    try:
        await call
    except CapturedCall as caught:
        store = caught.store
    else:
        raise BadInputError(
            "nothing was queued: give one call of an attached bot that was not awaited, such as"
            ' bot.send_message(chat, "Hi")'
        )
    finally:
        _is_queueing.reset(before)
    return await store(options)
