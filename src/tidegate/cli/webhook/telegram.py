"""Calls about webhooks, and what to do where Telegram does not do what was asked."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar

from tidegate.cli.webhook.address import shown
from tidegate.clock import Clock
from tidegate.delivery.botapi import BotApi
from tidegate.delivery.sender import BotAccess
from tidegate.delivery.wire import Answer, NoAnswer, Wire
from tidegate.errors import NotDeliveredError

Result = TypeVar("Result")
WITHIN: Final = 20.0  # seconds for a call to leave; its answer has its own time
_ADVICE: Final = (
    ("https url", "give an address that begins with https://"),
    ("port", "put it behind one of the ports that Telegram takes: 443, 80, 88 or 8443"),
    ("resolve host", "is the name right, and in the public DNS already?"),
    ("reserved", "Telegram reaches public addresses only: use one, or long polling"),
    ("allowed_updates", "look at the kinds in --allowed-updates"),
    ("connections", "give fewer --max-connections"),
)


class Telegram:
    """Whom to ask; `wire` stays its owner's."""

    def __init__(self, wire: Wire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    async def call(self, bot: BotAccess, method: str, params: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401  (Telegram's)
        """The result. Raises NotDeliveredError, in one line that says what to do."""
        deadline = self._clock.monotonic() + WITHIN
        wire = bot.wire or self._wire
        answer = await wire.call(bot.token, method, params or {}, api_url=bot.api_url, deadline=deadline)
        if isinstance(answer, Answer) and answer.body is not None and answer.body.get("ok"):
            return answer.body.get("result")
        number = bot.token.partition(":")[0]
        text = f"{method} of {number}:… failed: {shown(complaint(answer, bot.api_url), bot.token)}"
        raise NotDeliveredError(text, method=method, chat_id=None)


async def asking(work: Callable[[Telegram], Awaitable[Result]]) -> Result:
    """What `work` makes of Telegram, which is reached for it and let go after it."""
    clock = Clock()
    wire = BotApi(clock)
    try:
        return await work(Telegram(wire, clock))
    finally:
        await wire.close()


def complaint(answer: Answer | NoAnswer, api_url: str) -> str:
    """What was said, and what to do."""
    if isinstance(answer, NoAnswer):
        perhaps = "; it may have been done all the same: tidegate webhook info" if answer.left else ""
        return f"no answer from {api_url} ({answer.reason}): look at the address and the network{perhaps}"
    if answer.body is None:
        return f"{api_url} answers with status {answer.status}, but not as Telegram does: look at the address"
    said = str(answer.body.get("description") or f"status {answer.status}")
    return f"{said}: {_advice(answer.status, said, answer.body)}"


def _advice(status: int, said: str, body: Mapping[str, Any]) -> str:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND}:
        return "the token is not good any more: take the new one from @BotFather, tidegate bot add"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        seconds = (body.get("parameters") or {}).get("retry_after", 1)
        return f"do it again in {seconds} s"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "Telegram has trouble of its own: do it again in a minute"
    known = (advice for word, advice in _ADVICE if word in said.lower())
    return next(known, "correct that and do it again")
