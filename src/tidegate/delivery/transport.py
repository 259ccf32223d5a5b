"""The transport that delivery needs: one call out, and an answer or the reason why there is none."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec


class ApiAnswer(msgspec.Struct, frozen=True):
    """An answer. `body` is None if it was not Telegram's JSON: a proxy's page, a truncated text."""

    status: int
    body: Mapping[str, Any] | None


class RawAnswer(msgspec.Struct, frozen=True):
    """An answer as it came. The body is empty if it is too large to be Telegram's."""

    status: int
    content_type: str
    body: bytes


class NoAnswer(msgspec.Struct, frozen=True):
    """No answer. With `left` false not one byte was sent, so the call surely did not happen.

    `reason` is a fixed word, never an error's own text: that may hold the token. "late": the deadline had
    passed; "uploading": another call is uploading its file, so it should come again after `wait` seconds.
    """

    left: bool
    reason: str
    wait: float = 0.0


class BotApiTransport(Protocol):
    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,
        deadline: float,
        on_left: Callable[[], None] | None = None,
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,
    ) -> ApiAnswer | NoAnswer:
        """Make one call, at most once.

        A call that has not left at `deadline` (monotonic time) is not sent: NoAnswer(left=False, "late").
        `on_left` is called once, right before the first byte may reach the network; `on_written` once, when
        the whole request has been handed to it. Neither may raise.
        A file that another call is uploading is waited for, unless `wait_for_upload` is false: then the call
        is not made, and the answer is NoAnswer(left=False, "uploading").
        Raises nothing but `CancelledError`, and `BadInputError` for parameters that cannot be sent.
        """
        ...

    async def close(self) -> None: ...
