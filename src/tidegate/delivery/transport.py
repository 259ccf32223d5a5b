"""The transport that delivery needs: one call out, and an answer or the reason why there is none."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec


class ApiAnswer(msgspec.Struct, frozen=True):
    """An answer. `body` is None if it was not Telegram's JSON: a proxy's page, a truncated text."""

    status: int
    body: Mapping[str, Any] | None


class NoAnswer(msgspec.Struct, frozen=True):
    """No answer. With `left` false not one byte was sent, so the call surely did not happen.

    `reason` is a fixed word ("late" where the deadline had passed), never an error's own text:
    that may hold the token.
    """

    left: bool
    reason: str


class BotApiTransport(Protocol):
    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,
        deadline: float,
        on_written: Callable[[], None] | None = None,
    ) -> ApiAnswer | NoAnswer:
        """Make one call, at most once.

        A call that has not left at `deadline` (monotonic time) is not sent: NoAnswer(left=False, "late").
        `on_written` is called once, when the whole request has been handed to the network; it must not raise.
        Raises nothing but `CancelledError`, and `BadInputError` for parameters that cannot be sent.
        """
        ...

    async def close(self) -> None: ...
