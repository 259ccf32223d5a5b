"""Captures a call of a bot library before it is made, so that it is queued instead."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any

from tidegate.errors import BadInputError

StoreCall = Callable[[Mapping[str, Any]], Awaitable[Any]]  # takes options, returns a ticket

_is_queueing: ContextVar[bool] = ContextVar("tidegate_catching", default=False)


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
            "nothing was queued: give one call of an attached bot that was not awaited, such as"
            ' bot.send_message(chat, "Hi")'
        )
    finally:
        _is_queueing.reset(before)
    return await store(options)
