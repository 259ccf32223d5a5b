"""Calls that are made now: a turn in the schedule instead of a place in the queue."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any, assert_never

from tidegate.clock import Clock
from tidegate.delivery.sender import Call, Sender, interrupted
from tidegate.errors import DeadError, LimitedError, NotDeliveredError, OutcomeUnknownError, name_of
from tidegate.model import (
    BotId,
    ChatId,
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Refused,
    Retry,
    Unknown,
    Unreachable,
)
from tidegate.outbox.base import Outbox, Turn
from tidegate.pacing.rules import cost_of, family_of


class DirectCalls:
    def __init__(self, outbox: Outbox, sender: Sender, clock: Clock, max_attempts: int) -> None:
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._max_attempts = max_attempts

    async def call(
        self, bot: BotId, method: str, params: dict[str, Any], *, max_wait: float | None = None
    ) -> Any:  # noqa: ANN401  (Telegram's result)
        """Make a call, again where it surely did not happen; `max_wait` seconds of waiting in all."""
        give_up = math.inf if max_wait is None else self._clock.monotonic() + max_wait
        outcome: Outcome = NotSent("never tried")
        for attempt in range(1, self._max_attempts + 1):
            left = give_up - self._clock.monotonic()
            outcome = await self._try(
                bot, method, params, attempt, max_wait=None if left == math.inf else left
            )
            match outcome:
                case Delivered(result=result):
                    return result
                case Migrated(chat_id=chat_id):
                    params = {**params, "chat_id": chat_id}
                case Dead() | Unknown():
                    break
                case Retry() | Refused() | NotSent() | Unreachable():
                    pause = _pause(outcome, method)
                    if attempt == self._max_attempts or self._clock.monotonic() + pause > give_up:
                        break
                    await self._clock.sleep(pause)
                case _:
                    assert_never(outcome)
        raise error_for(outcome, method, params.get("chat_id"))

    async def once(self, bot: BotId, method: str, params: dict[str, Any]) -> Outcome:
        """Make a call if it may be made at this instant. LimitedError if not."""
        return await self._try(bot, method, params, 1, max_wait=0.0)

    async def _try(
        self, bot: BotId, method: str, params: Mapping[str, Any], attempt: int, *, max_wait: float | None
    ) -> Outcome:
        turn = await self._turn(bot, method, params, max_wait)
        call = Call(
            bot=bot,
            method=method,
            params=params,
            attempt=attempt,
            claimed_at=self._clock.monotonic(),
            on_silence=lambda: self._outbox.cool([turn] if turn else []),
        )
        outcome: Outcome = NotSent("failed")
        try:
            outcome = await self._sender.send(call)
        except asyncio.CancelledError:
            outcome = interrupted(call)
            raise
        finally:
            if turn is not None:
                await self._outbox.end_turn(turn, outcome, self._clock.monotonic() - call.ended_at)
        return outcome

    async def _turn(
        self, bot: BotId, method: str, params: Mapping[str, Any], max_wait: float | None
    ) -> Turn | None:
        """Wait for the right to call; None where no limit applies."""
        family, chat_id = family_of(method), params.get("chat_id")
        if family == "free" or chat_id is None:
            return None
        try:
            async with self._clock.timeout(max_wait):
                return await self._outbox.turn(bot, chat_id, family, cost_of(method, params))
        except TimeoutError:
            wait = self._outbox.wait_for(bot, chat_id, family, cost_of(method, params))
            raise LimitedError(method=method, chat_id=chat_id, retry_after=wait) from None


def _pause(outcome: Retry | Refused | NotSent | Unreachable, method: str) -> float:
    """Seconds before the next attempt. What has a lane waits there: a refusal has closed it."""
    if isinstance(outcome, Retry):
        return outcome.delay
    if isinstance(outcome, Unreachable):
        return outcome.wait if family_of(method) == "free" else 0.0
    return outcome.retry_after if isinstance(outcome, Refused) and family_of(method) == "free" else 0.0


def error_for(outcome: Outcome, method: str, chat_id: ChatId | None) -> NotDeliveredError:
    """What a caller is told of a call that was not delivered."""
    match outcome:
        case Dead(reason=reason, description=description):
            return DeadError(method=method, chat_id=chat_id, reason=reason, description=description)
        case Unknown(reason=reason):
            text = f"{name_of(method, chat_id)} left and was not answered ({reason}): it may have happened"
            return OutcomeUnknownError(text, method=method, chat_id=chat_id)
        case Refused(retry_after=retry_after):
            return LimitedError(method=method, chat_id=chat_id, retry_after=retry_after)
        case Retry(reason=reason) | NotSent(reason=reason) | Unreachable(reason=reason):
            return DeadError(
                method=method, chat_id=chat_id, reason="attempts", description=f"the last: {reason}"
            )
        case _:
            return DeadError(
                method=method, chat_id=chat_id, reason="attempts", description="the last: migrated"
            )
